"""Whether another process of this machine has ended: known only where everything fits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.adapters.sqlite_support import Sqlite, job
from tests.behaviour.steps import eventually

from queuert.adapters.sqlite.processes import Identity, Processes

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")


def fields(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


def state(pid: int) -> bytes:
    return fields(pid)[0]


def identity(pid: int, **changes: object) -> str:
    """Of another process of this machine."""
    this = Processes().this_one()
    assert this is not None
    found = msgspec.structs.replace(msgspec.json.decode(this, type=Identity), pid=pid, start=int(fields(pid)[19]))
    return msgspec.json.encode(msgspec.structs.replace(found, **changes)).decode()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def test_this_process() -> None:
    this = Processes().this_one()
    assert this is not None
    assert msgspec.json.decode(this)["pid"] == os.getpid()
    assert not Processes().has_ended(this)


async def test_from_its_start_to_its_end(sleeper: subprocess.Popen[bytes]) -> None:
    """Running, stopped, a zombie, gone."""
    process, processes = identity(sleeper.pid), Processes()
    assert not processes.has_ended(process)
    sleeper.send_signal(signal.SIGSTOP)
    await eventually(lambda: state(sleeper.pid) == b"T")
    assert not processes.has_ended(process)
    sleeper.kill()
    await eventually(lambda: state(sleeper.pid) == b"Z")
    os.kill(sleeper.pid, 0)  # it is still there
    assert processes.has_ended(process)
    sleeper.wait()
    assert processes.has_ended(process)


def test_another_process_with_the_same_id(sleeper: subprocess.Popen[bytes]) -> None:
    assert Processes().has_ended(identity(sleeper.pid, start=1))


async def test_a_process_of_another_machine_or_container(sleeper: subprocess.Popen[bytes]) -> None:
    elsewhere = identity(sleeper.pid, place="another boot")
    sleeper.kill()
    sleeper.wait()
    assert not Processes().has_ended(elsewhere)


@pytest.mark.parametrize("text", ["", "{}", "null", '{"pid": "one"}'])
def test_what_another_version_wrote(text: str) -> None:
    assert not Processes().has_ended(text)


def fake_proc(directory: Path, *, boot: str = "boot", namespace: str = "pid:[1]") -> Path:
    """A /proc with this process alone."""
    own = directory / str(os.getpid())
    (own / "ns").mkdir(parents=True)
    (directory / "self").symlink_to(str(os.getpid()))
    for name in ("pid", "time"):
        (own / "ns" / name).symlink_to(namespace)
    (own / "stat").write_text(f"{os.getpid()} (a) b (c) S " + " ".join(str(number) for number in range(1, 40)))
    (directory / "sys/kernel/random").mkdir(parents=True)
    (directory / "sys/kernel/random/boot_id").write_text(f"{boot}\n")
    return directory


def test_a_whole_proc(tmp_path: Path) -> None:
    """The name of the program has parentheses in it."""
    this = Processes(str(fake_proc(tmp_path))).this_one()
    assert this is not None
    assert msgspec.json.decode(this) == {"pid": os.getpid(), "start": 19, "place": "boot pid:[1] pid:[1]"}


@pytest.mark.parametrize("missing", ["self", "self/stat", "self/ns/pid", "sys/kernel/random/boot_id"])
def test_an_unreadable_proc_means_unknown(tmp_path: Path, missing: str, sleeper: subprocess.Popen[bytes]) -> None:
    (fake_proc(tmp_path) / missing).unlink()
    processes = Processes(str(tmp_path))
    assert processes.this_one() is None
    assert not processes.has_ended(identity(sleeper.pid, start=1))


def test_the_proc_of_another_namespace(tmp_path: Path) -> None:
    proc = fake_proc(tmp_path)
    (proc / "self").unlink()
    (proc / "self").symlink_to("1")
    assert Processes(str(proc)).this_one() is None


@pytest.mark.parametrize(("what", "exists", "ended"), [
    ("nothing", False, True),
    ("nothing", True, False),  # hidden from us
    ("unreadable", True, False),
    ("nonsense", True, False),
])  # fmt: skip
def test_what_is_found_of_another(tmp_path: Path, what: str, exists: bool, ended: bool) -> None:
    processes = Processes(str(fake_proc(tmp_path)), lambda _: exists)
    if what == "unreadable":
        (tmp_path / "77" / "stat").mkdir(parents=True)  # also for root
    elif what == "nonsense":
        (tmp_path / "77").mkdir()
        (tmp_path / "77" / "stat").write_text("77 (a) S")
    other = msgspec.json.encode(Identity(77, 5, "boot pid:[1] pid:[1]")).decode()
    assert processes.has_ended(other) is ended


def test_an_identity_is_kept(tmp_path: Path) -> None:
    """It is taken when the worker starts: what becomes of /proc later does not matter."""
    processes = Processes(str(fake_proc(tmp_path)))
    first = processes.this_one()
    (tmp_path / "self").unlink()
    assert processes.this_one() == first


def test_dead_workers_have_jobs_of_these_types(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    sqlite = Sqlite(tmp_path / "jobs.db")
    process = identity(sleeper.pid)
    for name in ("worker", "idle", "here"):
        sqlite.do(sqlite.ops.register_worker(name))
    sqlite.query("UPDATE queuert_worker SET process = ? WHERE id <> 'here'", process)
    sqlite.create(job("a"), job("b"))
    sqlite.claim("a")
    assert sqlite.do(sqlite.ops.dead_workers("here", ["a"], grace=0)) == []
    sleeper.kill()
    sleeper.wait()
    assert sqlite.do(sqlite.ops.dead_workers("here", ["a", "b"], grace=0)) == ["worker"]
    assert sqlite.do(sqlite.ops.dead_workers("here", ["b"], grace=0)) == []
    assert sqlite.do(sqlite.ops.dead_workers("worker", ["a"], grace=0)) == []


def test_the_state_of_a_worker_is_that_of_its_process(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    sqlite = Sqlite(tmp_path / "jobs.db")
    sqlite.do(sqlite.ops.register_worker("worker"))
    sqlite.query("UPDATE queuert_worker SET process = ?", identity(sleeper.pid))

    def state() -> str:
        (row,) = sqlite.do(sqlite.ops.list_workers())
        return row.state

    assert state() == "alive"
    sleeper.kill()
    sleeper.wait()
    assert state() == "dead"
    sqlite.query("UPDATE queuert_worker SET process = NULL")
    assert state() == "alive"  # nothing is known but that it registered in time
