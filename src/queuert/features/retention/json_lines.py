"""Archived chains in files: one line of JSON for each, and one file for each month."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queuert.errors import DriverMissing, InvalidArgument
from queuert.records.archive import ArchivedChain

try:
    import fcntl
except ImportError:  # pragma: no cover  # there is none on Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from queuert.base.transaction import Transaction

PLAIN, COMPRESSED = ".jsonl", ".jsonl.zst"
MARK = b"\x5e\x2a\x4d\x18\x08\x00\x00\x00queuert\n"
"""Marks the end of each write: a frame of zstd that every reader skips."""
_BLOCK = 1 << 16


class JsonLines:
    """Archives chains in files of a directory: `queuert-2026-11.jsonl`, one for each month.

    Give it to `Keep(archive=…)`. Each line is a chain with its jobs, as JSON. What was written is
    on disk before the chains are deleted. A chain can be in the files twice, if its deletion failed
    at the last moment. `read_json_lines` reads a file.

    Any number of processes of one machine can write to a directory.

    Args:
        directory: Where the files are. It is created if it is missing.
        compress: Compress with zstd. The names then end in `.jsonl.zst` (default: if Python 3.14,
            `backports.zstd` or `zstandard` is there).
    """

    def __init__(self, directory: str | os.PathLike[str], *, compress: bool | None = None) -> None:
        self._directory = Path(directory)
        if compress is None:
            compress = _zstd() is not None
        elif compress and _zstd() is None:
            raise _missing()
        self._compress = compress
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """Where the chains are, in words."""
        return f"files in {self._directory}"

    def __repr__(self) -> str:
        return f"JsonLines({str(self._directory)!r}, compress={self._compress})"

    def __call__(self, tx: Transaction[Any], chains: Sequence[ArchivedChain]) -> None:  # noqa: ARG002
        """Append the chains to the file of this month, and wait until they are on disk."""
        data = b"".join(chain.to_json() + b"\n" for chain in chains)
        month = datetime.now(UTC).strftime("%Y-%m")
        path = self._directory / f"queuert-{month}{COMPRESSED if self._compress else PLAIN}"
        if self._compress:
            data = _compressed(data) + MARK
        with self._lock:
            self._directory.mkdir(parents=True, exist_ok=True)
            _append(path, data, MARK if self._compress else b"\n")


def read_json_lines(path: str | os.PathLike[str]) -> Iterator[ArchivedChain]:
    """The chains in a file that `JsonLines` has written, in their order.

    What a process that was killed has left unfinished at the end is skipped: its chains were not
    deleted. Raises `InvalidArgument` if another part of the file cannot be read.

    Args:
        path: The file. If its name ends in `.zst`, it is compressed.
    """
    file = Path(path)
    blocks = _compressed_blocks(file) if file.name.endswith(".zst") else _blocks(file)
    number, rest = 0, b""
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            number += 1
            try:
                yield ArchivedChain.from_json(line)
            except InvalidArgument as error:
                raise InvalidArgument(f"{file}, line {number}: {error}") from None


def _append(path: Path, data: bytes, mark: bytes) -> None:
    """Append to a file that ends with the mark. What a killed process has left after the last mark
    is cut off.
    """
    is_new = not path.exists()
    with path.open("a+b", buffering=0) as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        end = file.seek(0, os.SEEK_END)
        whole = _end_of_whole(file, end, mark)
        if whole < end:
            file.truncate(whole)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) or 0 :]
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(whole)  # a full disk: the next write begins where this one did
            raise
    if is_new:
        _sync_directory(path.parent)


def _end_of_whole(file: Any, end: int, mark: bytes) -> int:
    """Where the last mark ends; 0 if there is none."""
    at = end
    while at > 0:
        begin = max(0, at - _BLOCK)
        file.seek(begin)
        # Far enough that a mark across two blocks is found.
        block: bytes = file.read(min(end, at + len(mark) - 1) - begin)
        found = block.rfind(mark)
        if found >= 0:
            return begin + found + len(mark)
        at = begin
    return 0


def _sync_directory(directory: Path) -> None:
    """So that the name of a new file is on disk, too."""
    if os.name != "posix":  # pragma: no cover
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _compressed_blocks(path: Path) -> Iterator[bytes]:
    """Part by part: each is as large as what was archived in one transaction."""
    decompress = _decompressor()
    rest = b""
    for block in _blocks(path):
        *parts, rest = (rest + block).split(MARK)
        for part in parts:
            try:
                yield decompress(part)
            except Exception as error:
                raise InvalidArgument(f"{path} cannot be decompressed: {error}") from error


def _zstd() -> Any:
    """A module that compresses, or None."""
    for name in ("compression.zstd", "backports.zstd", "zstandard"):  # the first one since Python 3.14
        with suppress(ImportError):
            return import_module(name)
    return None


def _compressed(data: bytes) -> bytes:
    module = _zstd()
    compressed: bytes = module.compress(data)
    return compressed


def _decompressor() -> Callable[[bytes], bytes]:
    module = _zstd()
    if module is None:
        raise _missing()
    decompress: Callable[[bytes], bytes] = module.decompress
    return decompress


def _missing() -> DriverMissing:
    return DriverMissing(
        "zstd", ["zstd"], ImportError("there is neither zstandard nor backports.zstd", name="zstandard")
    )
