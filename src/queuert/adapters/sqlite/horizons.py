"""The horizon of each worker, in a small file beside the database.

SQLite has one writer at a time. In a table, each move of a horizon would wait for the settlements
and claims before it, and for the disk. The file is mapped into memory, so a move takes a
microsecond. What a process has written is there when it is killed. It may be lost if the machine
crashes, so the file names the boot: after another boot it is not believed.
"""

from __future__ import annotations

import mmap
import os
import re
from functools import cached_property, lru_cache
from pathlib import Path

_NAME = re.compile(r"[\w.-]{1,150}", re.ASCII)
"""A worker's id that can be part of a file's name."""
_LENGTH = 20
"""Digits of the horizon: the content is overwritten in place."""


class Horizons:
    def __init__(self, boot: str = "/proc/sys/kernel/random/boot_id") -> None:
        self._boot_file = Path(boot)
        self._open: dict[Path, mmap.mmap] = {}
        """The files of workers of this process."""

    def create(self, database: str, worker_id: str) -> bool:
        """Whether the worker has a file. If not, its horizon has to be in its row."""
        if not database or not self._boot or not _NAME.fullmatch(worker_id):
            return False
        path = _path(database, worker_id)
        try:
            if self.read(database, worker_id) is None or path not in self._open:
                self._open[path] = self._mapped(path, self.read(database, worker_id) or 0)
        except OSError:
            self._open.pop(path, None)
            return False
        return True

    def _mapped(self, path: Path, horizon: int) -> mmap.mmap:
        """A new file, which takes the place of an old one."""
        beside = path.with_name(f"{path.name}.new")
        beside.unlink(missing_ok=True)
        file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            os.write(file, self._content(horizon))
            mapped = mmap.mmap(file, 0)
        finally:
            os.close(file)
        beside.replace(path)
        return mapped

    def move(self, database: str, worker_id: str, horizon: int) -> bool:
        """Never back. False if this process has no such file."""
        mapped = self._open.get(_path(database, worker_id))
        if mapped is None:
            return False
        if (self._number(mapped[:]) or 0) < horizon:
            mapped[:] = self._content(horizon)
        return True

    def read(self, database: str, worker_id: str) -> int | None:
        """None if it is not known."""
        try:
            return self._number(_path(database, worker_id).read_bytes())
        except OSError:
            return None

    def close(self, database: str, worker_id: str) -> None:
        """The worker has stopped. Others may still need the file."""
        self._open.pop(_path(database, worker_id), None)

    def remove(self, database: str, worker_id: str) -> None:
        try:
            _path(database, worker_id).unlink(missing_ok=True)
        except OSError:
            return  # without the worker's row it has no meaning

    @cached_property
    def _boot(self) -> str:
        """Of this machine; empty if it is not known."""
        try:
            return self._boot_file.read_text("ascii").strip()
        except (OSError, ValueError):
            return ""

    def _number(self, content: bytes) -> int | None:
        boot, _, horizon = content.partition(b" ")
        return int(horizon) if boot.decode("ascii", "replace") == self._boot and horizon.isdigit() else None

    def _content(self, horizon: int) -> bytes:
        return f"{self._boot} {horizon:0{_LENGTH}d}".encode("ascii")


@lru_cache(maxsize=64)
def _path(database: str, worker_id: str) -> Path:
    return Path(f"{database}-horizon-{worker_id}")
