"""Files of archived chains: what is written, what is left by a process that was killed, and who writes at once."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from queuert import ArchivedChain, ArchivedJob, InvalidArgument, JsonLines, read_json_lines
from queuert.features.retention import json_lines

NOW = datetime(2026, 11, 5, 12, 30, 1, 5, tzinfo=UTC)


def chain(number: int) -> ArchivedChain:
    job = ArchivedJob(
        id=f"job-{number}",
        job_type="note",
        chain_index=0,
        status="completed",
        priority=100,
        created_at=NOW,
        scheduled_at=NOW,
    )
    return ArchivedChain(
        id=f"chain-{number}", chain_type="note", status="completed", created_at=NOW, ended_at=NOW, jobs=(job,)
    )


def ids(path: Path) -> list[str]:
    return [each.id for each in read_json_lines(path)]


@pytest.fixture(params=[False, True], ids=["plain", "zstd"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> JsonLines:
    if request.param:
        pytest.importorskip("zstandard")
    return JsonLines(tmp_path / "new" / "archive", compress=request.param)


def write(archive: JsonLines, *numbers: int) -> Path:
    archive(None, [chain(number) for number in numbers])  # type: ignore[arg-type]
    directory = Path(archive.place.removeprefix("files in "))
    return sorted(directory.iterdir())[-1]


def test_what_is_written_is_read(archive: JsonLines) -> None:
    write(archive, 1, 2)
    path = write(archive, 3)
    assert list(read_json_lines(path)) == [chain(1), chain(2), chain(3)]


def test_a_file_for_each_month(archive: JsonLines, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        month = 11

        @classmethod
        def now(cls, zone: Any) -> datetime:
            return datetime(2026, cls.month, 30, tzinfo=zone)

    monkeypatch.setattr(json_lines, "datetime", Clock)
    november = write(archive, 1)
    Clock.month = 12
    december = write(archive, 2)
    assert [path.name.partition(".")[0] for path in (november, december)] == ["queuert-2026-11", "queuert-2026-12"]
    assert (ids(november), ids(december)) == (["chain-1"], ["chain-2"])


def test_every_place_at_which_a_process_can_be_killed(archive: JsonLines, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it leaves is no problem for a reader, and the next writer cuts it off."""
    monkeypatch.setattr(json_lines, "_BLOCK", 100)
    whole = write(archive, 1).read_bytes()
    path = write(archive, 2, 3)
    both = path.read_bytes()
    for length in range(len(whole), len(both)):
        path.write_bytes(both[:length])
        read = ids(path)
        assert read[0] == "chain-1"
        assert set(read) <= {"chain-1", "chain-2"}
        write(archive, 4)
        assert ids(path) == [*read, "chain-4"]


def test_a_full_disk(archive: JsonLines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is left, and the next one works."""
    path = write(archive, 1)
    before = path.read_bytes()

    def fails(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="No space"):
            write(archive, 2)
    assert path.read_bytes() == before
    write(archive, 3)
    assert ids(path) == ["chain-1", "chain-3"]


def test_it_is_on_disk_when_it_returns(archive: JsonLines, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    write(archive, 1)
    assert len(synced) == 2  # the file, and the directory that its name is new in
    write(archive, 2)
    assert len(synced) == 3


def test_many_writers(archive: JsonLines) -> None:
    """Each with its own object, as processes have."""
    directory = archive.place.removeprefix("files in ")
    compress = "compress=True" in repr(archive)

    def run(first: int) -> None:
        for number in range(first, first + 20):
            JsonLines(directory, compress=compress)(None, [chain(number)])  # type: ignore[arg-type]

    threads = [threading.Thread(target=run, args=(100 * each,)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (path,) = Path(directory).iterdir()
    assert sorted(ids(path)) == sorted(f"chain-{100 * each + number}" for each in range(4) for number in range(20))


def test_damage_in_the_middle_is_told(archive: JsonLines) -> None:
    path = write(archive, 1)
    data = path.read_bytes()
    write(archive, 2)
    with path.open("r+b") as file:
        file.seek(len(data) // 2)
        file.write(b"\x00\x00\x00\x00")
    with pytest.raises(InvalidArgument, match=r"line 1: this is not an archived chain|cannot be decompressed"):
        ids(path)


def test_without_zstd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_zstd", lambda: None)
    with pytest.raises(ImportError, match="zstd"):
        JsonLines(tmp_path, compress=True)
    assert repr(JsonLines(tmp_path)) == f"JsonLines({str(tmp_path)!r}, compress=False)"
    (tmp_path / "queuert-2026-11.jsonl.zst").write_bytes(b"")
    with pytest.raises(ImportError, match="zstd"):
        ids(tmp_path / "queuert-2026-11.jsonl.zst")
