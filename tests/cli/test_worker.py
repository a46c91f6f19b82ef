"""`queuert worker`: processes that die, hang, are replaced and are stopped."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.steps import PATIENCE, eventually
from tests.cli.supervising import SHOP, is_running, supervised
from tests.support.postgres import PostgresServer

import queuert
from queuert import Chain, Client, EntryJob


class Greet(EntryJob[int], name="greet"): ...


class Hold(EntryJob[int], name="hold"):
    gate: str


class Block(EntryJob[int], name="block"): ...


class Spread(EntryJob[int], name="spread"):
    gate: str
    gates: list[str]


class Fail(EntryJob[int], name="fail"): ...


class Sum(EntryJob[int], name="sum"):
    parts: list[Chain[Fail]]


@asynccontextmanager
async def client_for(url: str) -> AsyncGenerator[Client[Any]]:
    async with queuert.connect(url, jobs=[Greet, Hold, Block, Spread, Fail, Sum]) as client:
        yield client


async def start(client: Client[Any], *jobs: EntryJob[int]) -> list[Chain[Any]]:
    async with client.transaction() as tx:
        return list(await client.start_many(tx, jobs))


async def output(client: Client[Any], chain: Chain[Any]) -> int:
    """The process in which the job ran."""
    result: int = await client.wait(chain, timeout=PATIENCE)
    return result


# Every kind of end, on both databases


async def test_sigterm_lets_all_processes_finish_their_jobs(url: str, tmp_path: Path) -> None:
    async with client_for(url) as client, supervised(url, tmp_path, "--processes", "2") as workers:
        pids = await workers.ready(2)
        chains = await start(client, *(Hold(gate="gate") for _ in range(4)))
        assert await workers.reached("gate") in pids
        workers.send(signal.SIGTERM)
        await workers.writes("SIGTERM: the worker processes finish their jobs and end")
        assert (await workers.get("/ready"))[0] == 503
        assert (await workers.get("/live")) == (200, "alive\n")
        workers.open("gate")
        assert await workers.exit_code() == 0
        records = [await client.get_job(chain.id) for chain in chains]
        assert {record.status for record in records if record} <= {"completed", "pending"}
        assert {record.status for record in records if record} & {"completed"}
        assert not any(map(is_running, workers.pids))


@pytest.mark.drivers
async def test_a_killed_process_is_replaced_and_its_job_runs_again(url: str, tmp_path: Path) -> None:
    async with client_for(url) as client, supervised(url, tmp_path, "--processes", "2") as workers:
        await workers.ready(2)
        (chain,) = await start(client, Hold(gate="gate"))
        victim = await workers.reached("gate")
        workers.open("gate-2")
        os.kill(victim, signal.SIGKILL)
        await workers.writes(f"worker process {victim} was killed by SIGKILL: another one takes its place")
        workers.open("gate")
        assert await output(client, chain) != victim
        assert victim not in await workers.ready(2)
        text = (await workers.get("/metrics"))[1]
        assert 'queuert_supervisor_restarts_total{reason="ended"} 1\n' in text


async def test_sighup_starts_each_new_process_before_the_old_one_stops(url: str, tmp_path: Path) -> None:
    async with client_for(url) as client, supervised(url, tmp_path, "--processes", "2") as workers:
        old = set(await workers.ready(2))
        (chain,) = await start(client, Hold(gate="gate"))
        at_work = await workers.reached("gate")
        workers.send(signal.SIGHUP)
        # The job is still running, so its process has not ended, and the new one is ready already.
        replaced = await workers.writes(rf"worker process (\d+) replaces {at_work} \(reload\)")
        assert is_running(at_work)
        processes = {each["pid"]: each for each in await workers.processes()}
        assert processes[int(replaced[1])]["ready"]
        assert not processes[at_work]["ready"]
        workers.open("gate")
        assert await output(client, chain) == at_work  # it was not interrupted
        await workers.writes("all worker processes are replaced")
        new = await workers.ready(2, besides=old)
        (chain,) = await start(client, Greet())
        assert await output(client, chain) in new
        workers.send(signal.SIGTERM)
        assert await workers.exit_code() == 0


async def test_a_process_that_hangs_is_killed(url: str, tmp_path: Path) -> None:
    async with client_for(url) as client, supervised(url, tmp_path, "--kill-after", "1.5") as workers:
        await workers.ready(1)
        (chain,) = await start(client, Block())
        await eventually((tmp_path / "blocked").exists)
        await workers.writes(r"worker process (\d+) has not answered for \d s: it is killed. Where it is now:")
        await workers.writes(r"programs/shop\.py., line \d+ in block")  # Python shows the stack
        assert await output(client, chain) in workers.pids
        # On a busy machine, a process may not answer in time although it does not hang.
        assert re.search(r'restarts_total\{reason="unresponsive"\} [1-9]', (await workers.get("/metrics"))[1])


# The rest of its life, on SQLite


async def test_a_stopped_process_is_killed_while_all_are_stopped(sqlite_url: str, tmp_path: Path) -> None:
    """It gets SIGTERM, but cannot answer."""
    async with supervised(sqlite_url, tmp_path, "--processes", "2", "--kill-after", "1.5") as workers:
        victim = (await workers.ready(2))[1]
        os.kill(victim, signal.SIGSTOP)
        workers.send(signal.SIGTERM)
        await workers.writes(f"worker process {victim} has not answered for")
        assert await workers.exit_code() == 1
        assert not any(map(is_running, workers.pids))


async def test_a_process_that_takes_too_long_to_end_is_killed(sqlite_url: str, tmp_path: Path) -> None:
    """Its worker has stopped, and a thread of the user's keeps the process."""
    worker = "tests.cli.programs.clinging:worker"
    async with supervised(sqlite_url, tmp_path, worker=worker, QUEUERT_TEST_SHUTDOWN="0") as workers:
        await workers.ready(1)
        workers.send(signal.SIGTERM)
        await workers.writes(r"has not (ended \d+ s after it was told to stop|answered for)")
        assert await workers.exit_code() == 1


async def test_a_second_signal_aborts_running_jobs(sqlite_url: str, tmp_path: Path) -> None:
    async with client_for(sqlite_url) as client, supervised(sqlite_url, tmp_path) as workers:
        await workers.ready(1)
        (chain,) = await start(client, Hold(gate="never"))
        await workers.reached("never")
        workers.send(signal.SIGINT)
        await workers.writes("SIGINT: the worker processes finish")
        await workers.writes("worker .* stopping")
        workers.send(signal.SIGINT)
        assert await workers.exit_code() == 1
        record = await client.get_job(chain.id)
        assert record is not None
        assert (record.status, record.attempt_number) == ("pending", 0)


async def test_ctrl_c_reaches_only_the_supervisor(sqlite_url: str, tmp_path: Path) -> None:
    """A terminal signals the whole group. A process that got it twice would abort its jobs."""
    async with client_for(sqlite_url) as client, supervised(sqlite_url, tmp_path) as workers:
        await workers.ready(1)
        (chain,) = await start(client, Hold(gate="gate"))
        at_work = await workers.reached("gate")
        os.killpg(workers.pid, signal.SIGINT)
        await workers.writes("worker .* stopping")
        workers.open("gate")
        assert await workers.exit_code() == 0
        assert await output(client, chain) == at_work


async def test_the_processes_of_a_killed_supervisor_finish_their_jobs(sqlite_url: str, tmp_path: Path) -> None:
    async with client_for(sqlite_url) as client, supervised(sqlite_url, tmp_path, "--processes", "2") as workers:
        pids = await workers.ready(2)
        (chain,) = await start(client, Hold(gate="gate"))
        at_work = await workers.reached("gate")
        workers.send(signal.SIGKILL)
        await workers.writes(f" {at_work} queuert.supervisor: the supervisor is gone: this worker process stops")
        workers.open("gate")
        assert await output(client, chain) == at_work
        await eventually(lambda: not any(map(is_running, pids)))


async def test_the_pauses_before_a_restart_grow(sqlite_url: str, tmp_path: Path) -> None:
    async with supervised(sqlite_url, tmp_path) as workers:
        await workers.ready(1)
        (tmp_path / "dying").touch()
        os.kill(next(iter(workers.pids)), signal.SIGKILL)
        await workers.writes("starts in 2.0 s")
        assert re.findall(r"starts in (\S+) s", workers.text)[:3] == ["0.5", "1.0", "2.0"]
        assert len(re.findall("ended with exit code 7: another one takes its place", workers.text)) >= 2
        (tmp_path / "dying").unlink()
        await workers.ready(1)


async def test_a_broken_release_does_not_replace_the_running_one(sqlite_url: str, tmp_path: Path) -> None:
    async with client_for(sqlite_url) as client, supervised(sqlite_url, tmp_path, "--processes", "2") as workers:
        old = await workers.ready(2)
        (tmp_path / "broken").touch()
        workers.send(signal.SIGHUP)
        await workers.writes(rf"the new worker process \d+ ended with exit code 2: the old one, {old[0]}, is kept")
        await workers.writes(rf"importing {SHOP} failed: RuntimeError: this release is broken \(.*shop\.py:\d+\)")
        assert await workers.ready(2) == old
        assert len(workers.pids) == 3  # the second process was not tried
        (chain,) = await start(client, Greet())
        assert await output(client, chain) in old
        (tmp_path / "broken").unlink()
        workers.send(signal.SIGHUP)
        await workers.ready(2, besides=set(old))


@pytest.mark.drivers
async def test_until_empty_ends_when_nothing_can_run(url: str, tmp_path: Path) -> None:
    async with client_for(url) as client:
        chains = await start(client, *(Greet() for _ in range(50)))
        (later,) = await start(client, Greet().set(after=3600))
        async with supervised(url, tmp_path, "--until-empty", "--processes", "2", health=False) as workers:
            assert await workers.exit_code() == 0
        assert {await output(client, chain) for chain in chains} <= workers.pids
        record = await client.get_job(later.id)
        assert record is not None
        assert record.status == "pending"
        assert workers.out == "left: 1 scheduled for later\n"


@pytest.mark.drivers
async def test_until_empty_processes_leave_together(url: str, tmp_path: Path) -> None:
    """Each process runs two jobs at once, so three that are started late need both."""
    async with client_for(url) as client:
        gates = ["one", "two", "three"]
        await start(client, Spread(gate="gate", gates=gates))
        async with supervised(url, tmp_path, "--until-empty", "--processes", "2") as workers:
            pids = await workers.ready(2)
            await workers.reached("gate")
            workers.open("gate")
            assert {await workers.reached(gate) for gate in gates} == set(pids)
            for gate in gates:
                workers.open(gate)
            assert await workers.exit_code() == 0
        assert workers.out == "nothing is left\n"
        assert workers.pids == set(pids)


@pytest.mark.drivers
async def test_until_empty_tells_what_is_left(url: str, tmp_path: Path) -> None:
    async with client_for(url) as client:
        parts = await start(client, Fail(), Fail())
        await start(client, Sum(parts=parts), Greet())
        async with supervised(url, tmp_path, "--until-empty", "--processes", "2", health=False) as workers:
            assert await workers.exit_code() == 4
        assert re.fullmatch(r"left: 2 to be tried again, the first in \d+ min( \d+ s)?; 1 blocked\n", workers.out)


@pytest.mark.drivers
async def test_until_done_waits_for_chains(url: str, tmp_path: Path) -> None:
    async with client_for(url) as client:
        waited, other = await start(client, Hold(gate="gate"), Greet().set(after=3600))
        async with supervised(url, tmp_path, "--until-done", waited.id, "--processes", "2", health=False) as workers:
            await workers.reached("gate")
            workers.open("gate")
            assert await workers.exit_code() == 0
        assert workers.out == "completed: 1 of 1 chains\n"

        async with supervised(url, tmp_path, "--until-done", waited.id, other.id) as workers:
            await workers.ready(1)
            async with client.transaction() as tx:
                await client.cancel(tx, other)
            assert await workers.exit_code() == 1
        assert workers.out == f"completed: 1 of 2 chains; {other.id} is cancelled\n"


async def test_until_done_without_such_a_chain(sqlite_url: str, tmp_path: Path) -> None:
    async with client_for(sqlite_url), supervised(sqlite_url, tmp_path, "--until-done", "ab", health=False) as workers:
        assert await workers.exit_code() == 2
    assert workers.lines[-1] == "queuert worker: there is no job and no chain ab"


async def test_until_done_that_is_stopped_before(sqlite_url: str, tmp_path: Path) -> None:
    async with client_for(sqlite_url) as client:
        (later,) = await start(client, Greet().set(after=3600))
        async with supervised(sqlite_url, tmp_path, "--until-done", later.id) as workers:
            await workers.ready(1)
            workers.send(signal.SIGTERM)
            assert await workers.exit_code() == 1


async def test_until_empty_starts_again_after_a_crash(sqlite_url: str, tmp_path: Path) -> None:
    async with client_for(sqlite_url) as client:
        (chain,) = await start(client, Hold(gate="gate"))
        async with supervised(sqlite_url, tmp_path, "--until-empty", health=False) as workers:
            victim = await workers.reached("gate")
            os.kill(victim, signal.SIGKILL)
            workers.open("gate")
            assert await workers.exit_code() == 0
        assert await output(client, chain) != victim


async def test_a_process_is_replaced_after_its_number_of_jobs(sqlite_url: str, tmp_path: Path) -> None:
    async with client_for(sqlite_url) as client, supervised(sqlite_url, tmp_path, "--max-jobs", "10") as workers:
        old = await workers.ready(1)
        chains = await start(client, *(Greet() for _ in range(10)))
        assert {await output(client, chain) for chain in chains} == set(old)
        await workers.writes(rf"worker process \d+ replaces {old[0]} \(max_jobs\)")
        await workers.ready(1, besides=set(old))


@pytest.mark.parametrize("name", ["make", "make_async", "make_within", "worker"])
async def test_what_can_be_named(sqlite_url: str, tmp_path: Path, name: str) -> None:
    async with client_for(sqlite_url) as client:
        (chain,) = await start(client, Greet())
        async with supervised(sqlite_url, tmp_path, "--until-empty", worker=f"{SHOP}:{name}", health=False) as workers:
            assert await workers.exit_code() == 0
        assert await output(client, chain) in workers.pids
        assert ("closed" in workers.lines) == (name == "make_within")


# What can be asked


async def test_not_ready_without_a_database(tmp_path: Path, own_server: PostgresServer) -> None:
    url = own_server.url
    own_server.stop()
    async with supervised(url, tmp_path) as workers:

        async def has_an_error() -> Any:
            found = await workers.processes()
            return found and found[0]["error"]

        await eventually(has_an_error)
        (process,) = await workers.processes()
        assert (process["ready"], process["state"]) == (False, "starting")
        assert (await workers.get("/ready"))[0] == 503
        assert (await workers.get("/live"))[0] == 200
        own_server.start()
        pids = await workers.ready(1)
        own_server.stop(immediate=True)

        async def is_unready() -> bool:
            return (await workers.get("/ready"))[0] == 503

        await eventually(is_unready)
        own_server.start()
        assert await workers.ready(1) == pids  # it was not restarted for that


async def test_metrics_of_the_processes(sqlite_url: str, tmp_path: Path) -> None:
    async with client_for(sqlite_url) as client:
        chains = await start(client, *(Greet() for _ in range(7)))
        async with supervised(sqlite_url, tmp_path, "--processes", "2", QUEUERT_TEST_WITH="opentelemetry") as workers:
            await workers.ready(2)
            for chain in chains:
                await output(client, chain)

            async def ended() -> list[float]:
                text = (await workers.get("/metrics"))[1]
                assert text.count("# TYPE queuert_chain_completed_total counter") <= 1
                pattern = r'^queuert_chain_completed_total\{.*process="\d".*\} (\S+)$'
                return [float(number) for number in re.findall(pattern, text, re.MULTILINE)]

            async def all_are_counted() -> bool:
                return sum(await ended()) == 7

            await eventually(all_are_counted)
            status, text = await workers.get("/metrics")
    assert status == 200
    assert "\nqueuert_supervisor_ready_processes 2\n" in text
    lines = [line for line in text.splitlines() if line.startswith("queuert_supervisor_jobs_ended_total")]
    assert [line.partition(" ")[0] for line in lines] == [
        f'queuert_supervisor_jobs_ended_total{{process="{number}"}}' for number in (0, 1)
    ]


async def test_bad_requests(sqlite_url: str, tmp_path: Path) -> None:
    async with supervised(sqlite_url, tmp_path) as workers:
        await workers.ready(1)
        assert await workers.get("/nothing") == (404, "there are /live, /ready and /metrics\n")
        assert (await workers.get("/live?x=1"))[0] == 200
        assert await workers.get("/live", "HEAD") == (200, "")
        assert (await workers.get("/live", "POST"))[0] == 405
        assert await workers.exchange(b"\x16\x03\x01\r\n\r\n") != b""
        assert await workers.exchange(b"x" * 100_000) == b""  # longer than any request
        _, idle = await asyncio.open_connection("127.0.0.1", await workers.port())
        assert (await workers.get("/live"))[0] == 200  # one that is slow does not hold up others
        idle.close()


async def test_a_port_that_is_taken(sqlite_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with supervised(sqlite_url, tmp_path, "--health", f"127.0.0.1:{port}", health=False) as workers:
            assert await workers.exit_code() == 2
            (line,) = workers.lines
            assert line == f"queuert worker: --health 127.0.0.1:{port} cannot be used: Address already in use"


async def test_systemd_is_told(sqlite_url: str, tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.setblocking(False)
        heard: list[str] = []

        async def is_told(beginning: str) -> None:
            def told() -> list[int]:
                with suppress(BlockingIOError):
                    while True:
                        heard.append(manager.recv(4096).decode())
                return [number for number, text in enumerate(heard, 1) if text.startswith(beginning)]

            await eventually(told)
            del heard[: told()[0]]

        async with supervised(sqlite_url, tmp_path, NOTIFY_SOCKET=address, WATCHDOG_USEC="1000000") as workers:
            await is_told("READY=1")
            await is_told("STATUS=1 of 1 worker processes are ready")
            await is_told("WATCHDOG=1")
            await is_told("WATCHDOG=1")
            (pid,) = workers.pids
            assert b"NOTIFY_SOCKET" not in Path(f"/proc/{pid}/environ").read_bytes()
            workers.send(signal.SIGHUP)
            await is_told("RELOADING=1\nMONOTONIC_USEC=")
            await is_told("READY=1")
            workers.send(signal.SIGTERM)
            await is_told("STOPPING=1")
            assert await workers.exit_code() == 0


# What cannot be run


@pytest.mark.parametrize("name", ["staff", "forgets"])
async def test_a_worker_that_cannot_be_loaded(sqlite_url: str, tmp_path: Path, name: str) -> None:
    """All errors of this kind are in test_loading.py."""
    expected = {
        "staff": f"queuert worker: {SHOP} has no 'staff': did you mean worker?",
        "forgets": f"queuert worker: {SHOP}:forgets() returned None, not a Worker",
    }
    worker = f"{SHOP}:{name}"
    async with supervised(sqlite_url, tmp_path, "--processes", "2", worker=worker, health=False) as workers:
        assert await workers.exit_code() == 2
    assert [text for text in workers.lines if " INFO " not in text] == [expected[name]]


async def test_a_database_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("This is not a database, but quite a long text. " * 100)
    async with supervised(f"sqlite:///{tmp_path}/jobs.db", tmp_path, health=False) as workers:
        assert await workers.exit_code() == 2
    assert [text for text in workers.lines if text.startswith("queuert worker: StorageNotADatabase: ")]
