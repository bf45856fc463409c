"""What a reference leads to, and that every attempt gets a source of its own. Imports dlt."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys

import pytest
from dlt.extract.source import DltSource

from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.exceptions import (
    PreflightError,
    SourceArgumentsError,
    SourceImportError,
    SourceNotFoundError,
)

pytestmark = pytest.mark.unit

SOURCES = """
import dlt

NUMBER = 5

@dlt.resource
def page_views(at=dlt.sources.incremental("at")):
    yield {"at": 1}

@dlt.resource(name="clicks")
def click_events(day, at=dlt.sources.incremental("at")):
    yield {"at": day}

@dlt.transformer(data_from=page_views)
def details(view):
    yield view

@dlt.source
def shop(region="eu"):
    return [page_views, click_events(region), details]

@dlt.source(name="renamed")
def strict(region):
    return page_views

@dlt.source
def secretive(api_key=dlt.secrets.value):
    return page_views

made = shop(region="us")

def plain():
    return shop()

def bare():
    return page_views

def wrong():
    return [1, 2]

def broken():
    raise ValueError("no such region")

class Nested:
    shop = staticmethod(shop)
"""

_numbers = itertools.count()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module on the path that holds ``SOURCES``."""
    name = f"shop_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(SOURCES)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def write(tmp_path):
    """Write a module's text to a file of a name that no test used before; returns its path."""
    written = []

    def write(text, name=None):
        path = tmp_path / f"{name or f'file_{next(_numbers)}'}.py"
        path.write_text(text)
        written.append(path.stem)
        return str(path)

    yield write
    for name in set(written) - sys.stdlib_module_names:
        sys.modules.pop(name, None)


def load(reference, **more) -> tuple[str, list[str]]:
    """The name of the source that a reference leads to, and the resources it loads."""
    spec = SourceSpec(reference=reference, **more)
    source = spec.load()
    assert isinstance(source, DltSource)
    return spec.source_name(source), sorted(source.selected_resources)


# --- references


@pytest.mark.parametrize(
    ("attribute", "name", "resources"),
    [
        ("shop", "shop", ["clicks", "details", "page_views"]),
        ("made", "shop", ["clicks", "details", "page_views"]),
        ("plain", "shop", ["clicks", "details", "page_views"]),
        ("Nested.shop", "shop", ["clicks", "details", "page_views"]),
        ("page_views", None, ["page_views"]),
        ("details", None, ["details"]),
        ("bare", None, ["page_views"]),
    ],
)
def test_a_reference_leads_to_a_source(module, attribute, name, resources):
    # A resource by itself is named after its module, as dlt names its section.
    assert load(f"{module}:{attribute}") == (name or module, resources)


def test_a_package_and_a_file_are_found_alike(tmp_path, monkeypatch, write):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "shop_in.py").write_text(SOURCES)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load("pack.shop_in:page_views") == ("shop_in", ["page_views"])
    path = write(SOURCES, "shop_file")
    assert load(f"{path}:page_views") == ("shop_file", ["page_views"])
    assert load(f"{path}:shop")[0] == "shop"
    monkeypatch.chdir(tmp_path)
    assert load("shop_file.py:page_views") == ("shop_file", ["page_views"])
    assert load("./shop_file.py:page_views") == ("shop_file", ["page_views"])


def test_a_file_is_run_once(write, tmp_path):
    path = write(
        "import pathlib\n" + SOURCES + f"\nwith open({str(tmp_path / 'runs')!r}, 'a') as f: f.write('x')"
    )
    for _ in range(3):
        load(f"{path}:shop")
    assert (tmp_path / "runs").read_text() == "x"


def test_two_files_of_one_name_are_two_modules(tmp_path, write):
    first = write(SOURCES, "twin")
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "twin.py"
    other.write_text(SOURCES.replace('region="eu"', 'region="eu", country="de"'))
    assert load(f"{first}:shop", arguments={"region": "us"})
    assert load(f"{other}:shop", arguments={"country": "fr"})


def test_objects_need_no_reference(module):
    shop = __import__(module)
    assert load(shop.shop)[0] == "shop"
    assert load(shop.made)[0] == "shop"
    assert load(shop.page_views) == (module, ["page_views"])
    assert load(lambda: shop.shop(region="us"))[0] == "shop"


def test_the_name_airflow_gives_a_dag_file_stays_out_of_identity(tmp_path):
    """Its digits are of the file's path, which differs between machines."""
    path = tmp_path / "web_dag.py"
    path.write_text(SOURCES)
    found = []
    for digits in ("0123456789abcdef0123456789abcdef01234567", "a" * 40):
        name = f"unusual_prefix_{digits}_web_dag"
        spec = importlib.util.spec_from_file_location(name, path)
        dag_file = importlib.util.module_from_spec(spec)
        sys.modules[name] = dag_file
        try:
            spec.loader.exec_module(dag_file)
            resource = SourceSpec(reference=dag_file.page_views)
            source = resource.load()
            found.append((resource.source_name(source), source.schema.name, source.section))
            assert load(dag_file.shop)[0] == "shop"
        finally:
            del sys.modules[name]
    assert set(found) == {("web_dag", "web_dag", "web_dag")}


# --- arguments, selection, name


def test_arguments_reach_whatever_is_called(module):
    assert load(f"{module}:strict", arguments={"region": "us"}) == ("renamed", ["page_views"])
    assert load(f"{module}:shop", arguments={"region": "us"})[0] == "shop"
    assert load(f"{module}:click_events", arguments={"day": 3}) == (module, ["clicks"])
    assert load(f"{module}:secretive", arguments={"api_key": "k"})[0] == "secretive"
    clicks = SourceSpec(reference=f"{module}:click_events", arguments={"day": 3}).load()
    assert list(clicks) == [{"at": 3}]


@pytest.mark.parametrize(
    ("attribute", "arguments", "said"),
    [
        ("strict", {}, "cannot be called: missing a required argument: 'region'; it takes: region"),
        (
            "strict",
            {"town": "x"},
            "cannot be called: missing a required argument: 'region'; it takes: region",
        ),
        (
            "shop",
            {"town": "x"},
            "cannot be called: got an unexpected keyword argument 'town'; it takes: region",
        ),
        (
            "plain",
            {"town": "x"},
            "cannot be called: got an unexpected keyword argument 'town'; it takes: none",
        ),
        ("click_events", {"town": "x"}, "cannot be called: missing a required argument: 'day'"),
        ("made", {"region": "eu"}, "it is made already and takes no arguments"),
        ("secretive", {}, "cannot be called: dlt finds no value for api_key; pass it as an argument"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(module, attribute, arguments, said):
    with pytest.raises(SourceArgumentsError) as caught:
        load(f"{module}:{attribute}", arguments=arguments)
    assert said in str(caught.value)
    assert f"{module}:{attribute}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_the_users_own_function_raises_is_not_hidden(module):
    with pytest.raises(ValueError, match="no such region"):
        load(f"{module}:broken")


def test_resources_are_selected(module):
    assert load(f"{module}:shop", resources=("clicks",)) == ("shop", ["clicks"])
    assert load(f"{module}:shop", resources=("details", "clicks")) == ("shop", ["clicks", "details"])
    assert load(f"{module}:page_views", resources=("page_views",)) == (module, ["page_views"])


def test_a_resource_that_is_not_there_is_named_with_those_that_are(module):
    with pytest.raises(SourceNotFoundError) as caught:
        load(f"{module}:shop", resources=("clicks", "click", "views"))
    assert str(caught.value) == (
        f"source '{module}:shop' was not found: it has no resource click, views; "
        "pass any of: clicks, details, page_views (see docs/refusals.md#sourcenotfounderror)"
    )


def test_a_name_names_the_source_and_its_schema(module):
    spec = SourceSpec(reference=f"{module}:shop", name="Web Shop")
    source = spec.load()
    assert spec.source_name(source) == "Web Shop"
    assert source.schema.name == "web_shop"
    assert SourceSpec(reference=f"{module}:page_views", name="views").load().schema.name == "views"
    assert SourceSpec(reference=f"{module}:made").load().schema.name == "shop"


@pytest.mark.parametrize("name", ["a:b", "a,b", "a|b", ":"])
def test_a_name_that_identities_could_not_be_told_apart_by_is_refused(module, name):
    spec = SourceSpec(reference=f"{module}:shop", name=name)
    with pytest.raises(SourceNotFoundError, match="may not have : , or"):
        spec.source_name(SourceSpec(reference=f"{module}:shop").load())


# --- a source of its own


@pytest.mark.parametrize("attribute", ["shop", "made", "plain", "page_views", "bare"])
def test_each_load_gives_a_source_that_no_other_has_touched(module, attribute):
    spec = SourceSpec(reference=f"{module}:{attribute}")
    first, second = spec.load(), spec.load()
    assert first is not second
    assert first.schema is not second.schema
    name = "page_views"
    first.resources[name].apply_hints(write_disposition="replace", table_name="other")
    first.resources[name].add_limit(0)
    first.schema.update_table({"name": "elsewhere", "columns": {}})
    if attribute != "page_views" and attribute != "bare":
        first.with_resources("clicks")
        first.resources["clicks"].selected = False
    third = spec.load()
    for source in (second, third):
        assert source.resources[name].write_disposition == "append"
        assert list(source.resources[name]) == [{"at": 1}]
        assert "elsewhere" not in source.schema.tables
        assert set(source.selected_resources) == set(source.resources)


def test_selecting_resources_of_a_made_source_leaves_it_alone(module):
    shop = __import__(module)
    load(shop.made, resources=("clicks",))
    assert len(shop.made.selected_resources) == 3


# --- what leads nowhere


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("no_such_module:shop", "no module named 'no_such_module'"),
        ("no_such.module:shop", "no module named 'no_such'"),
        ("{module}.inner:shop", "no module named '{module}.inner'"),
        ("{module}:nothing", "{module} has no attribute 'nothing'"),
        ("{module}:shop.deeper", "has no attribute 'deeper'"),
        ("{module}:NUMBER", "it is a int; pass a @dlt.source or a @dlt.resource"),
        ("{module}:wrong", "it is a list; pass a @dlt.source or a @dlt.resource"),
        ("{module}", "it names no attribute"),
        ("{module}:", "it names no attribute"),
        (":shop", "it names no attribute"),
        ("", "it names no attribute"),
        ("no/such/file.py:shop", "there is no file no/such/file.py"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(module, reference, said):
    reference = reference.format(module=module)
    with pytest.raises(SourceNotFoundError) as caught:
        load(reference)
    assert said.format(module=module) in str(caught.value)
    assert str(caught.value).startswith(f"source '{reference}' was not found: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import no_such_library", "No module named 'no_such_library'"),
        ("from dlt import no_such_name", "cannot import name 'no_such_name' from 'dlt'"),
        ("def (:", "invalid syntax"),
        ("raise ValueError('first\\nsecond')", "first second"),
        (
            "raise ConnectionError('https://me:hunter2@api.example.com refused')",
            "https://***@api.example.com refused",
        ),
        ("import sys; sys.exit('bye')", "bye"),
    ],
)
@pytest.mark.parametrize("kind", ["file", "module"])
def test_a_module_that_does_not_import_is_refused(write, tmp_path, monkeypatch, text, said, kind):
    path = write(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = path.rpartition("/")[2].removesuffix(".py")
    reference = f"{path if kind == 'file' else name}:shop"
    with pytest.raises(SourceImportError) as caught:
        load(reference)
    assert "failed to import: " in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    # A second try, after the module was mended, starts anew.
    assert name not in sys.modules


def test_a_refusal_made_while_a_module_is_imported_stays_itself(write):
    path = write(
        "from airflow_provider_backfill.exceptions import Finding, PreflightError\n"
        "raise PreflightError([Finding(rule='r', resource=None, message='m', remedy='x')])"
    )
    with pytest.raises(PreflightError):
        load(f"{path}:shop")


@pytest.mark.parametrize("name", ["json", "csv", "email"])
def test_a_file_named_like_a_module_of_python_hides_nothing(write, name):
    before = __import__(name)
    path = write(SOURCES, name)
    try:
        with pytest.raises(SourceNotFoundError, match=f"{name!r} is a module of Python"):
            load(f"{path}:shop")
        assert sys.modules[name] is before
    finally:
        sys.modules[name] = before


def test_labels_are_for_people(module):
    shop = __import__(module)
    assert SourceSpec(reference=f"{module}:shop").label == f"{module}:shop"
    assert SourceSpec(reference=shop.plain).label == "plain"
    assert SourceSpec(reference=shop.page_views).label == "page_views"
    assert SourceSpec(reference=5).label == "int"
    assert "0x" not in SourceSpec(reference=shop.made).label


def test_a_reference_costs_nothing_until_it_is_loaded():
    code = (
        "import sys; from airflow_provider_backfill.engine.source import SourceSpec;"
        "SourceSpec(reference='no.such:thing', arguments={'a': 1}).label;"
        "sys.exit(any(name in sys.modules for name in ('dlt', 'airflow', 'duckdb', 'psycopg2')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
