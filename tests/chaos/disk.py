"""The file system of a scenario's working directory, and how it fills up or turns read-only.

Where the harness may mount, which takes root, each scenario has a real tmpfs of two megabytes, in a mount
namespace that ends with the harness. ``full-disk`` fills it to the last byte. ``read-only`` puts a read-only
view over it, so that what is opened from then on gets EROFS; a file that is open for writing keeps the real
one from being remounted. Elsewhere `Emulated` raises the same errors from Python's own calls below there.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.chaos.points import FULL_DISK, READ_ONLY

_CLONE_NEWNS = 0x00020000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18
_DETACH = 2
_SIZE = "2m"
_ERRORS = {FULL_DISK: errno.ENOSPC, READ_ONLY: errno.EROFS}


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _mount(source: str, target: Path | str, kind: str, flags: int, options: str = "") -> None:
    arguments = (source.encode(), str(target).encode(), kind.encode())
    _check(_libc().mount(*arguments, ctypes.c_ulong(flags), options.encode() or None))


def may_mount(directory: Path) -> bool:
    """Give this process, and what it forks, a mount namespace of its own; whether mounting works there."""
    try:
        _check(_libc().unshare(_CLONE_NEWNS))
        _mount("none", "/", "", _REC | _PRIVATE)
        disk = Mounted(directory / "probe")
        disk.strike(READ_ONLY)
        try:
            (disk.work / "file").touch()
            return False
        except OSError:
            return True
        finally:
            disk.remove()
    except (OSError, AttributeError):
        return False


class Mounted:
    """A tmpfs.

    Args:
        directory: Where to mount it.

    Attributes:
        work: The directory that attempts extract to.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._frozen = False
        directory.mkdir(parents=True)
        _mount("tmpfs", directory, "tmpfs", 0, f"size={_SIZE}")
        self.work = directory / "work"
        self.work.mkdir()

    def strike(self, fault: str) -> None:
        """Fill it up, or make it read-only, from now on."""
        if fault == READ_ONLY:
            _mount(str(self._directory), self._directory, "", _BIND)
            self._frozen = True
            _mount("none", self._directory, "", _REMOUNT | _BIND | _RDONLY)
            return
        with open(self._directory / "filler", "ab", buffering=0) as filler:
            for size in (1 << 16, 1 << 10, 1):
                try:
                    while True:
                        filler.write(b"x" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def mend(self) -> None:
        """As it was before."""
        if self._frozen:
            _check(_libc().umount2(str(self._directory).encode(), _DETACH))
            self._frozen = False
        (self._directory / "filler").unlink(missing_ok=True)

    def remove(self) -> None:
        self.mend()
        _check(_libc().umount2(str(self._directory).encode(), _DETACH))
        self._directory.rmdir()

    def install(self) -> None:
        """Nothing to do in a process: the kernel does it."""


class Emulated:
    """A directory whose faults `install` brings into a process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.work = directory / "work"
        self._flag = directory / "fault"
        self.work.mkdir(parents=True)

    def strike(self, fault: str) -> None:
        self._flag.write_text(str(_ERRORS[fault]))

    def mend(self) -> None:
        self._flag.unlink(missing_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def install(self) -> None:
        """From now on Python's own calls that write below the directory fail while a fault lasts."""
        # On a full disk an entry may still be removed.
        _guard(builtins, "open", self._refuse_open)
        io.open = builtins.open
        _guard(os, "open", self._refuse_flags)
        for name in ("mkdir", "rename", "replace", "link", "symlink"):
            _guard(os, name, self._refuse_any)
        for name in ("unlink", "remove", "rmdir"):
            _guard(os, name, self._refuse_removal)

    def _refuse(self, path: Any, only: int | None = None) -> None:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path).startswith(str(self.work)):
            return
        if self._flag.exists():
            number = int(self._flag.read_text())
            if only in (None, number):
                raise OSError(number, os.strerror(number), os.fspath(path))

    def _refuse_open(self, path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> None:
        if set(mode) & set("wax+"):
            self._refuse(path)

    def _refuse_flags(self, path: Any, flags: int, *args: Any, **kwargs: Any) -> None:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self._refuse(path)

    def _refuse_any(self, path: Any, *args: Any, **kwargs: Any) -> None:
        self._refuse(path)

    def _refuse_removal(self, path: Any, *args: Any, **kwargs: Any) -> None:
        self._refuse(path, errno.EROFS)


def _guard(owner: Any, name: str, refuse: Callable[..., None]) -> None:
    original = getattr(owner, name)

    def guarded(*args: Any, **kwargs: Any) -> Any:
        refuse(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(owner, name, guarded)


Disk = Mounted | Emulated
