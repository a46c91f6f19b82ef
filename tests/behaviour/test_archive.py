"""Workers archive chains before they delete them: functions that fail or hang, and workers that are killed."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.programs.archiving_worker import Event
from tests.behaviour.steps import SOON, eventually
from tests.behaviour.test_retention import at_once, gone, handling
from tests.behaviour.watching import Points, watched
from tests.behaviour.working import begin

import queuert
from queuert import (
    ArchivedChain,
    ArchiveTable,
    ChainArchived,
    Client,
    EntryJob,
    Keep,
    StorageError,
    Worker,
    read_json_lines,
)
from queuert.records.retention import TypeRetention

__all__ = ["at_once"]

SHORT = 0.05


class Recorder:
    def __init__(self) -> None:
        self.ids: list[str] = []
        self.calls = 0
        self.fails = False

    async def __call__(self, tx: Any, chains: Sequence[ArchivedChain]) -> None:
        self.calls += 1
        if self.fails:
            raise RuntimeError("the bucket is gone")
        self.ids += [chain.id for chain in chains]


def job_class(name: str, archive: Any) -> Any:
    class Job(EntryJob[int], name=name, keep=Keep(completed=SHORT, archive=archive)):
        pass

    return Job


async def archived(client: Client[Any], *chains: Any) -> bool:
    for chain in chains:
        try:
            await client.get_chain(chain)
        except ChainArchived:
            continue
        return False
    return True


async def known(client: Client[Any], name: str) -> TypeRetention:
    return next(each for each in (await client.retention()).types if each.policy.chain_type == name)


def worker(setting: Setting, client: Client[Any], *types: Any) -> Worker:
    return Worker(client, handling(*types), poll_interval=setting.poll_interval, recovery_backoff=SOON)


@pytest.mark.drivers
async def test_a_worker_archives_what_it_deletes(setting: Setting) -> None:
    """By a function of each kind, and others without one."""
    recorder, plain = Recorder(), list[str]()

    def note(tx: Any, chains: Sequence[ArchivedChain]) -> None:
        plain.extend(chain.id for chain in chains)

    one, two, three = job_class("one", recorder), job_class("two", note), job_class("three", ArchiveTable())
    four = job_class("four", None)
    async with setting.connect([one, two, three, four]) as client:
        chains = [[await begin(client, each()) for _ in range(3)] for each in (one, two, three, four)]
        async with worker(setting, client, one, two, three, four):
            await eventually(lambda: archived(client, *chains[0], *chains[1], *chains[2]))
            await eventually(lambda: gone(client, *chains[3]))
        assert sorted(recorder.ids) == sorted(chain.id for chain in chains[0])
        assert sorted(plain) == sorted(chain.id for chain in chains[1])
        found = await client.get_archived(chains[2][0])
        assert found is not None
        assert found.jobs[0].output == 1


@pytest.mark.drivers
async def test_a_function_that_fails(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is deleted, it is tried again, it is told, and it stops no other type. Then it works."""
    failing, working = Recorder(), Recorder()
    failing.fails = True
    one, two, three = job_class("one", failing), job_class("two", working), job_class("three", None)
    async with setting.connect([one, two, three]) as client:
        stays, archived_one, deleted = [await begin(client, each()) for each in (one, two, three)]
        async with worker(setting, client, one, two, three):
            await eventually(lambda: archived(client, archived_one))
            await eventually(lambda: gone(client, deleted))
            await eventually(lambda: failing.calls >= 3)
            assert await client.get_chain(stays) is not None
            found = await known(client, "one")
            assert (found.waiting, found.archive_error) == (1, "RuntimeError: the bucket is gone")
            failing.fails = False
            await eventually(lambda: archived(client, stays))
        assert failing.ids == [stays.id]
        assert (await known(client, "one")).archive_error is None
    told = [each for each in caplog.records if "could not archive chains of one" in each.message]
    assert told
    assert all(each.levelno >= logging.WARNING for each in told)


@pytest.mark.drivers
async def test_the_error_is_gone_when_the_chain_is(setting: Setting) -> None:
    """Both or neither, whatever happens in between: a worker that is stopped must not leave the error behind."""
    failing, points = Recorder(), Points()
    failing.fails = True
    one = job_class("one", failing)

    async def failed() -> bool:
        return any(each.archive_error is not None for each in (await client.retention()).types)

    async with watched(setting.connect([one]), points) as client:
        chain = await begin(client, one())
        async with worker(setting, client, one):
            await eventually(failed)
        failing.fails = False
        points.fail_times("archive_failed", 2)  # when the error is cleared, and when that is stored as a failure
        with pytest.raises(StorageError):
            await client.prune()
        assert await client.get_chain(chain) is not None
        await client.prune()
        assert await archived(client, chain)
        assert (await known(client, "one")).archive_error is None


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_function_that_hangs(setting: Setting, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """It is given up, nothing is deleted, and it is not called again while it has not returned. Others go on."""
    monkeypatch.setattr("queuert.features.retention.archiving.LIMIT", 0.2)
    calls, release, hangs = list[int](), threading.Event(), True

    async def wait_for_ever(tx: Any, chains: Sequence[ArchivedChain]) -> None:
        calls.append(len(chains))
        if hangs:
            await asyncio.Event().wait()

    def block(tx: Any, chains: Sequence[ArchivedChain]) -> None:
        calls.append(len(chains))
        if hangs:
            release.wait()

    one, two = job_class("one", wait_for_ever if kind == "async" else block), job_class("two", Recorder())
    async with setting.connect([one, two]) as client:
        stuck = await begin(client, one())
        async with worker(setting, client, one, two):
            await eventually(lambda: len(calls) > 0)
            other = await begin(client, two())
            await eventually(lambda: archived(client, other))

            async def given_up() -> bool:
                return "took more than 0.2 s" in ((await known(client, "one")).archive_error or "")

            async def not_returned() -> bool:
                return "has not returned" in ((await known(client, "one")).archive_error or "")

            await eventually(given_up if kind == "async" else not_returned)
            assert await client.get_chain(stuck) is not None
            if kind == "plain":
                assert calls == [1]
            hangs = False
            release.set()
            await eventually(lambda: archived(client, stuck))


async def test_a_worker_of_another_service_leaves_them_alone(setting: Setting) -> None:
    """It finds that they are due. Only a worker that has the function archives them."""
    recorder = Recorder()
    one, two = job_class("one", recorder), job_class("two", None)
    async with setting.connect([one]) as owner, setting.connect([two]) as other:
        async with worker(setting, owner, one):
            first = await begin(owner, one())
            await eventually(lambda: archived(owner, first))
        second = await begin(owner, one())
        async with owner.transaction() as tx, owner.take_over(tx, second) as taken:
            await taken.settle(1)
        async with worker(setting, other, two):

            async def waits() -> bool:
                return (await known(other, "one")).waiting == 1

            await eventually(waits)
            assert await owner.get_chain(second) is not None
        async with worker(setting, owner, one):
            await eventually(lambda: archived(owner, second))
    assert recorder.ids == [first.id, second.id]


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_killed_while_it_archives(setting: Setting, tmp_path: Path, moment: str) -> None:
    """Before anything is written, or when all of it is on disk but the deletion is not committed: nothing is deleted.
    The next worker archives it, for the second time if need be.
    """
    if setting.state == "memory":
        pytest.skip("memory belongs to one process")
    archive = tmp_path / "archive"
    async with queuert.connect(setting.url, jobs=[Event]) as client:
        chains = [await client.submit(Event()) for _ in range(3)]
        async with child("archiving_worker", setting.url, str(archive), moment) as victim:
            assert await victim.says() == "archiving"
            victim.send(signal.SIGKILL)
            await victim.exit_code()
        assert all([await client.get_chain(chain) is not None for chain in chains])
        async with child("archiving_worker", setting.url, str(archive), "never"):
            await eventually(lambda: archived(client, *chains))
    (file,) = archive.iterdir()
    found = [each.id for each in read_json_lines(file)]
    assert set(found) == {chain.id for chain in chains}
    assert len(found) <= 6
