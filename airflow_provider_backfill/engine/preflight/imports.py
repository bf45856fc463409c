"""What a source's module does while it is imported, seen through Python's audit hooks.

Only what the module's own code does is seen: not what libraries do when they are imported, and not what
drivers written in C do, since those do not tell Python.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from airflow_provider_backfill._text import line, shown
from airflow_provider_backfill.exceptions import Finding

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LIBRARIES = {"site-packages", "dist-packages"}
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_STANDARD = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
# Byte code is first written under a name with a number at its end.
_BYTE_CODE = re.compile(r"\.py[co](\.\d+)?$")
_HARMLESS = re.compile(r"^(/dev/(null|tty|std(in|out|err)|fd/.*)|/proc/self/fd/.*|nul)$", re.IGNORECASE)

_ADDRESSES = {"socket.connect": 1, "socket.bind": 1, "socket.sendto": 1, "socket.sendmsg": 1}
_NAMES = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
_CHANGES = {
    "open": "writes to",
    "os.mkdir": "makes directory",
    "os.rmdir": "removes directory",
    "os.remove": "removes",
    "os.rename": "renames",
    "os.truncate": "writes to",
    "os.link": "links",
    "os.symlink": "links",
    "sqlite3.connect": "opens database",
}
_PROCESSES = {
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
}
_EVENTS = _ADDRESSES.keys() | _NAMES | _CHANGES.keys() | _PROCESSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Something that an import should not do.

    Args:
        path: The file whose code did it.
        line: The line in it, from 1.
        what: What it did, as a verb and an object.
    """

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.what}"


class _Watch:
    """An import that goes on.

    Args:
        roots: Files and directories of the source's own code.
        data_dir: dlt's directory, in which dlt writes as it likes.
    """

    def __init__(self, roots: tuple[str, ...], data_dir: str) -> None:
        self.acts: dict[tuple[str, int, str], Act] = {}
        self._roots = roots
        self._data_dir = data_dir
        self._thread = threading.get_ident()
        self._others = {thread.ident for thread in threading.enumerate()} - {self._thread}
        self._own: dict[str, bool] = {}

    def notice(self, event: str, arguments: tuple[Any, ...], frame: FrameType | None) -> None:
        """Take an event of the audit hook, raised by what runs in the frame."""
        # Threads that were there before have business of their own.
        if threading.get_ident() in self._others:
            return
        culprit = self._culprit(frame)
        if culprit is None:
            return
        what = self._what(event, arguments)
        if what is not None:
            path, number = os.path.abspath(culprit.f_code.co_filename), culprit.f_lineno
            # One line may raise many events of a kind; the first says most.
            kind = "network" if event in _ADDRESSES or event in _NAMES else event
            self.acts.setdefault((path, number, kind), Act(path=path, line=number, what=what))

    def _culprit(self, frame: FrameType | None) -> FrameType | None:
        """The innermost frame of the source's own code; None when a library's import stands before it."""
        while frame is not None:
            path = frame.f_code.co_filename
            if self._owns(path):
                return frame
            if frame.f_code.co_name == "<module>" or path.startswith("<frozen importlib"):
                return None
            # Frames of this package are those that began the import.
            if _below(path, _PACKAGE):
                return None
            frame = frame.f_back
        return None

    def _owns(self, path: str) -> bool:
        known = self._own.get(path)
        if known is None:
            known = self._own[path] = not path.startswith("<") and self._is_own(os.path.abspath(path))
        return known

    def _is_own(self, path: str) -> bool:
        if _below(path, _PACKAGE) or any(_below(path, root) for root in _STANDARD):
            return False
        return any(
            _below(path, root) and _LIBRARIES.isdisjoint(path[len(root) :].split(os.sep))
            for root in self._roots
        )

    def _what(self, event: str, arguments: tuple[Any, ...]) -> str | None:
        if event in _NAMES:
            return f"uses the network ({_host(arguments)})"
        if event in _ADDRESSES:
            address = arguments[_ADDRESSES[event]]
            return None if address is None else f"uses the network ({_host(address)})"
        if event in _PROCESSES:
            # Not its arguments, which may be secret.
            command = arguments[0] if arguments and event != "os.system" else None
            return f"starts a process{f' ({shown(_text(command))})' if command else ''}"
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITING):
            return None
        path = arguments[0]
        if isinstance(path, int):
            return None
        path = _text(path)
        if event == "sqlite3.connect" and path in {":memory:", ""}:
            return None
        if self._harmless(path):
            return None
        return f"{_CHANGES[event]} {shown(path)}"

    def _harmless(self, path: str) -> bool:
        if _HARMLESS.match(path) or _BYTE_CODE.search(path) or "__pycache__" in path.split(os.sep):
            return True
        return bool(self._data_dir) and _below(os.path.abspath(path), self._data_dir)


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _text(path: Any) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        return str(path)


def _host(address: Any) -> str:
    """A host and a port as people write them, or the name of a local socket."""
    if not isinstance(address, tuple):
        return line(_text(address))
    host = "localhost" if address[0] is None else line(_text(address[0]))
    port = address[1] if len(address) > 1 else None
    return host if port in (None, 0, "") else f"{host}:{_text(port)}"


_watches: tuple[_Watch, ...] = ()
_lock = threading.Lock()
_installed = False
# A module is imported once in a process, and refused as long as that lives.
_seen: dict[str, tuple[Act, ...]] = {}


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    # It stays for as long as the process lives, and is called for all sorts of events.
    if not _watches or event not in _EVENTS:
        return
    try:
        frame = sys._getframe(1)
        for watch in _watches:
            watch.notice(event, arguments, frame)
    except Exception:  # noqa: BLE001, S110
        # An error here would become one of the code that is watched.
        pass


@contextmanager
def watched(module: str) -> Iterator[None]:
    """Watch what goes on until the block ends, which imports the module.

    Args:
        module: A module's name, or the path of a file.
    """
    global _installed, _watches
    watch = _Watch(_roots(module), _data_dir())
    with _lock:
        if not _installed:
            sys.addaudithook(_hook)
            _installed = True
        _watches = (*_watches, watch)
    try:
        yield
    finally:
        with _lock:
            _watches = tuple(other for other in _watches if other is not watch)
        if watch.acts:
            _seen[_key(module)] = tuple(watch.acts.values())


def acts(module: str) -> tuple[Act, ...]:
    """What the module did when this process imported it, in order."""
    return _seen.get(_key(module), ())


def findings(module: str) -> tuple[Finding, ...]:
    """What `acts` says, as reasons not to start."""
    return tuple(
        Finding(
            rule="import-io",
            resource=None,
            message=f"{act} when the source is imported, which happens in every task and before anything "
            "is asked of it",
            remedy="do it in the source's function or in a resource, which run when a chunk is loaded",
        )
        for act in acts(module)
    )


def _key(module: str) -> str:
    return os.path.abspath(module) if module.endswith(".py") else module


def _roots(module: str) -> tuple[str, ...]:
    """Where the source's own code stands: beside the file, or where its top-level package stands."""
    if module.endswith(".py"):
        return (os.path.dirname(os.path.abspath(module)),)
    places = [os.path.abspath(place) for place in _places(module.partition(".")[0])]
    roots = []
    for place in places:
        parent = os.path.dirname(place)
        # What is installed stands among libraries.
        roots.append(place if _LIBRARIES & set(parent.split(os.sep)) else parent)
    return tuple(dict.fromkeys(roots))


def _places(package: str) -> list[str]:
    """The directories of a top-level package, or the file of a module; none if there is no such thing."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        # Whoever has put a module there by hand need not have given it a spec.
        path = getattr(sys.modules.get(package), "__file__", None)
        return [path] if path else []
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return list(spec.submodule_search_locations)
    return [spec.origin] if spec.origin and spec.has_location else []


def _data_dir(environment: Mapping[str, str] = os.environ) -> str:
    """Where dlt keeps its state; empty if dlt does not say."""
    try:
        from dlt.common.runtime.run_context import active

        return os.path.abspath(active().data_dir)
    except Exception:  # noqa: BLE001
        given = environment.get("DLT_DATA_DIR")
        return os.path.abspath(given) if given else ""
