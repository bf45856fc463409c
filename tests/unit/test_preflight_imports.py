"""What a source's module does while it is imported. Imports dlt, in this process and in others."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from airflow_provider_backfill.engine.preflight import examine, imports
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.exceptions import SourceImportError
from tests.support.commands import REPOSITORY, untouched

pytestmark = pytest.mark.unit

RESOURCE = """
import dlt
from datetime import datetime


@dlt.resource
def rows(at=dlt.sources.incremental("at", initial_value=datetime(2020, 1, 1))):
    yield []
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory on the path; what is imported from it is forgotten after the test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    # So that byte code is written, as where nobody forbids it.
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    with untouched():
        yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def port():
    """Where somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


def acts(reference):
    """What is found when the source is loaded: file name and line, and what was done there."""
    spec = SourceSpec(reference=reference)
    source = spec.load()
    assert [finding.rule for finding in spec.imported] == ["import-io"] * len(spec.imported)
    assert examine(spec, source).findings == spec.imported
    found = imports.acts(reference.rpartition(":")[0])
    return [(f"{Path(act.path).name}:{act.line}", act.what) for act in found]


@pytest.mark.parametrize("reference", ["shop_one:rows", "shop_one.py:rows", "./shop_one.py:rows"])
def test_a_module_that_does_nothing_else_is_fine(folder, reference):
    write(folder / "shop_one.py", RESOURCE)
    assert acts(reference) == []


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("open('out.txt', 'w').close()", "writes to 'out.txt'"),
        ("open('out.txt', 'a').close()", "writes to 'out.txt'"),
        ("os.close(os.open('out.txt', os.O_RDWR | os.O_CREAT))", "writes to 'out.txt'"),
        ("pathlib.Path('out.txt').write_text('x')", "writes to 'out.txt'"),
        ("os.makedirs('deep')", "makes directory 'deep'"),
        ("os.remove('there.txt')", "removes 'there.txt'"),
        ("os.replace('there.txt', 'b.txt')", "renames 'there.txt'"),
        ("sqlite3.connect('a.db').close()", "opens database 'a.db'"),
        ("subprocess.run(['true', 'secret'], check=True)", "starts a process ('true')"),
        ("os.system('true secret')", "starts a process"),
        ("logging.FileHandler('a.log').close()", "writes to"),
    ],
)
@pytest.mark.parametrize("form", ["module", "file"])
def test_a_write_or_a_process_is_reported_with_file_and_line(folder, statement, what, form):
    (folder / "there.txt").touch()
    head = "import logging, os, pathlib, sqlite3, subprocess\n"
    write(folder / "shop_two.py", f"{head}{statement}\n{RESOURCE}")
    [(where, did)] = acts("shop_two:rows" if form == "module" else f"{folder}/shop_two.py:rows")
    assert where == "shop_two.py:2"
    assert did.startswith(what)
    assert "secret" not in did


@pytest.mark.parametrize(
    "statement",
    [
        "socket.create_connection(('127.0.0.1', {port})).close()",
        "socket.socket().connect_ex(('127.0.0.1', {port}))",
        "socket.getaddrinfo('127.0.0.1', {port})",
        "with Pool() as pool: pool.submit(lambda: socket.socket().connect(('127.0.0.1', {port}))).result()",
    ],
)
def test_a_connection_is_reported_with_file_and_line(folder, port, statement):
    head = "import socket; from concurrent.futures import ThreadPoolExecutor as Pool\n"
    write(folder / "shop_three.py", f"{head}{statement.format(port=port)}\n{RESOURCE}")
    assert acts("shop_three:rows") == [("shop_three.py:2", f"uses the network (127.0.0.1:{port})")]


def test_a_request_is_reported_without_what_may_be_secret(folder):
    ask = "requests.get('http://127.0.0.1:9/path?token=secret')"
    head = f"import contextlib, requests\nwith contextlib.suppress(OSError):\n    {ask}\n"
    write(folder / "shop_four.py", f"{head}{RESOURCE}")
    assert acts("shop_four:rows") == [("shop_four.py:3", "uses the network (127.0.0.1:9)")]


def test_the_innermost_code_of_the_users_is_named(folder):
    write(folder / "shops" / "__init__.py", "")
    write(folder / "shops" / "five.py", f"from common.files import touch\ntouch('out.txt')\n{RESOURCE}")
    write(folder / "common" / "files.py", "def touch(name):\n    open(name, 'w').close()\n")
    assert acts("shops.five:rows") == [("files.py:2", "writes to 'out.txt'")]


def test_a_module_beside_is_the_users_and_an_installed_one_is_not(folder):
    write(folder / "shop_six.py", f"import beside\nimport installed_one\n{RESOURCE}")
    write(folder / "beside.py", "open('beside.txt', 'w').close()\n")
    write(folder / "site-packages" / "installed_one.py", "open('installed.txt', 'w').close()\n")
    sys.path.insert(0, str(folder / "site-packages"))
    assert acts("shop_six:rows") == [("beside.py:1", "writes to 'beside.txt'")]
    assert (folder / "installed.txt").exists()


def test_a_library_that_is_called_acts_for_its_caller(folder):
    write(folder / "shop_seven.py", f"import installed_two\ninstalled_two.save()\n{RESOURCE}")
    write(
        folder / "site-packages" / "installed_two.py",
        "def save():\n    open('installed.txt', 'w').close()\n",
    )
    sys.path.insert(0, str(folder / "site-packages"))
    assert acts("shop_seven:rows") == [("shop_seven.py:2", "writes to 'installed.txt'")]


def test_a_source_that_is_installed_is_the_users_own(folder):
    package = folder / "site-packages" / "shop_eight"
    write(package / "__init__.py", "")
    write(package / "views.py", f"import installed_three\nopen('out.txt', 'w').close()\n{RESOURCE}")
    write(folder / "site-packages" / "installed_three.py", "open('installed.txt', 'w').close()\n")
    sys.path.insert(0, str(folder / "site-packages"))
    assert acts("shop_eight.views:rows") == [("views.py:2", "writes to 'out.txt'")]


@pytest.mark.parametrize(
    "statement",
    [
        "open(__file__).read()",
        "open(os.devnull, 'w').close()",
        "sqlite3.connect(':memory:').close()",
        "import helper_nine",
        "dlt.pipeline('shop_nine', destination='duckdb')",
        "from dlt.sources.rest_api import rest_api_source; from dlt.sources.sql_database import sql_table",
        "os.path.exists('x'); os.listdir('.')",
    ],
)
def test_what_imports_do_anyway_is_not_reported(folder, statement):
    write(folder / "helper_nine.py", "VALUE = 1\n")
    write(folder / "shop_nine.py", f"import os, sqlite3, dlt\n{statement}\n{RESOURCE}")
    assert acts("shop_nine:rows") == []
    if "helper" in statement:
        assert list((folder / "__pycache__").glob("helper_nine.*"))


def test_a_module_that_was_imported_stays_refused_and_one_imported_before_is_not_seen(folder):
    write(folder / "shop_ten.py", f"open('out.txt', 'w').close()\n{RESOURCE}")
    assert acts("shop_ten:rows") == acts("shop_ten:rows") != []
    write(folder / "shop_eleven.py", f"open('out.txt', 'w').close()\n{RESOURCE}")
    module = __import__("shop_eleven")
    assert acts("shop_eleven:rows") == []
    assert SourceSpec(reference=module.rows).imported == ()


def test_what_a_source_does_when_it_is_called_is_not_of_the_import(folder):
    write(
        folder / "shop_twelve.py",
        f"{RESOURCE}\n\n@dlt.source\ndef shop():\n    open('out.txt', 'w').close()\n    return rows\n",
    )
    assert acts("shop_twelve:shop") == []
    assert (folder / "out.txt").exists()


def test_an_import_that_fails_says_what_it_tried(folder):
    write(folder / "shop_thirteen.py", "import socket\nsocket.create_connection(('127.0.0.1', 9))\n")
    with pytest.raises(SourceImportError) as caught:
        SourceSpec(reference="shop_thirteen:rows").load()
    text = str(caught.value)
    assert "Connection refused" in text
    assert f"{folder}/shop_thirteen.py:2 uses the network (127.0.0.1:9)" in text


def test_nothing_is_watched_outside_an_import(folder):
    write(folder / "shop_fourteen.py", RESOURCE)
    assert acts("shop_fourteen:rows") == []
    (folder / "other.txt").write_text("x")
    assert imports._watches == ()
    assert imports.acts("shop_fourteen") == ()


def test_dlts_own_import_is_not_the_sources(folder):
    """In a fresh process the source is the first to import dlt, which runs a program and may write."""
    write(folder / "shop_fifteen.py", RESOURCE)
    code = (
        "from airflow_provider_backfill.engine.preflight import imports\n"
        "with imports.watched('shop_fifteen'):\n    import shop_fifteen\n"
        "print(imports.acts('shop_fifteen'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PYTHONPATH": f"{REPOSITORY}:{folder}", "HOME": str(folder / "home"), "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.strip() == "()"
