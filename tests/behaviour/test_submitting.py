"""Starts that are submitted at once: they are stored together, and no caller depends on another one."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Gate, Step, eventually, patiently
from tests.behaviour.watching import Points, watched
from tests.conformance.postgres_harness import database
from tests.support.proxy import proxy_to

import queuert
from queuert import (
    Chain,
    Client,
    ClientClosed,
    JobIdExists,
    JobTypeError,
    StorageBusy,
    StorageUnavailable,
    TransactionNested,
)
from queuert.base.ids import generate_uuid7
from queuert.client import submitting
from queuert.engine.transaction import Hooks
from queuert.ports.program import Program

pytestmark = pytest.mark.drivers


class Scene:
    """A client whose first submission is held at the database, while others gather."""

    def __init__(self, client: Client[Any], points: Points) -> None:
        self.client = client
        self.points = points
        self.tasks: list[asyncio.Task[Chain[Step]]] = []

    async def hold(self) -> Gate:
        gate = self.points.hold("create_jobs")
        self.submit(0)
        await gate.arrival()
        return gate

    def submit(self, number: int, **options: Any) -> asyncio.Task[Chain[Step]]:
        self.tasks.append(asyncio.create_task(self.client.submit(Step(number=number), **options)))
        return self.tasks[-1]

    async def numbers(self) -> list[int]:
        """What is stored."""
        return sorted(record.job.number for record in (await self.client.list_jobs(Step)).items)

    @property
    def groups(self) -> list[int]:
        """How many jobs each statement had."""
        return self.points.sizes("create_jobs")


async def waiting(number: int, client: Client[Any]) -> None:
    """Until so many wait for the one that is under way."""
    submissions = client._submissions  # pyright: ignore[reportPrivateUsage]
    await eventually(lambda: len(submissions._waiting) == number)  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def no_overtaking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitting, "SLOW", 3600.0)


@pytest.mark.usefixtures("no_overtaking")
async def test_those_that_come_meanwhile_go_together(setting: Setting) -> None:
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        scene = Scene(client, points)
        points.counts.clear()
        gate = await scene.hold()
        few = [scene.submit(number) for number in (1, 2, 3)]
        many = asyncio.create_task(client.submit_many([Step(number=4), Step(number=5).set(priority=7)]))
        await waiting(4, client)
        gate.open()
        chains = [*[await patiently(task) for task in few], *await patiently(many)]
        await patiently(scene.tasks[0])

        assert scene.groups == [1, 5]
        assert points.counts["create_jobs"] == points.statements == 2
        records = [await client.get_job(chain.id, Step) for chain in chains]
        assert [record and (record.job.number, record.priority) for record in records] == [
            (1, 100), (2, 100), (3, 100), (4, 100), (5, 7)
        ]  # fmt: skip
        # One that is alone is one statement, and no transaction of ours.
        await client.submit(Step(number=6))
        assert scene.groups == [1, 5, 1]
        assert "begin" not in points.counts


@pytest.mark.usefixtures("no_overtaking")
async def test_a_group_is_announced_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    points, announced = Points(), list[list[object]]()
    async with watched(setting.connect([Step]), points) as client:
        flush = client.sessions.flush

        async def counted(hooks: Hooks) -> None:
            announced.append(list(hooks._by_name))
            await flush(hooks)

        monkeypatch.setattr(client.sessions, "flush", counted)
        scene = Scene(client, points)
        gate = await scene.hold()
        for number in range(1, 8):
            scene.submit(number)
        gone = scene.submit(8)
        await waiting(8, client)
        gone.cancel()
        gate.open()
        await asyncio.wait(scene.tasks)
        assert await scene.numbers() == list(range(8))
        assert announced == [["notifications"]] * 2  # the first one, and all others


@pytest.mark.usefixtures("no_overtaking")
async def test_a_bad_one_does_not_fail_its_neighbours(setting: Setting) -> None:
    points, taken, ids = Points(), generate_uuid7(), dict[int, str]()
    async with watched(setting.connect([Step]), points) as client:
        object.__setattr__(client._engine, "generate_id", lambda: ids.pop(0, None) or generate_uuid7())
        await client.submit(Step(), id=taken)
        scene = Scene(client, points)
        gate = await scene.hold()
        for number in range(1, 8):
            if number == 5:
                ids[0] = taken
            scene.submit(number)
            await waiting(number, client)
        gate.open()
        results = await patiently(asyncio.gather(*scene.tasks, return_exceptions=True))

        assert [number for number, result in enumerate(results) if isinstance(result, Exception)] == [5]
        assert isinstance(results[5], JobIdExists)
        assert await scene.numbers() == [0, 0, 1, 2, 3, 4, 6, 7]


async def test_a_job_that_cannot_be_encoded_joins_no_group(setting: Setting) -> None:
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        with pytest.raises(JobTypeError):
            await client.submit(Step(number="five"))  # type: ignore[arg-type]
        assert Scene(client, points).groups == []


@pytest.mark.usefixtures("no_overtaking")
async def test_a_caller_that_is_cancelled_leaves_the_others_alone(setting: Setting) -> None:
    """While it waits, it takes its job back. When its group is under way, the job is stored."""
    points, heard = Points(), list[str]()
    async with watched(setting.connect([Step]), points) as client:
        scene = Scene(client, points)
        gate = await scene.hold()
        taken_back, kept = scene.submit(1), scene.submit(2)
        await waiting(2, client)
        taken_back.cancel()
        gate.open()
        assert (await patiently(kept)).id
        with pytest.raises(asyncio.CancelledError):
            await taken_back
        assert await scene.numbers() == [0, 2]

        first = await scene.hold()
        too_late, stays = scene.submit(3), scene.submit(4)
        await waiting(2, client)
        second = points.hold("create_jobs")
        first.open()
        await second.arrival()
        too_late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await patiently(too_late)
        dispose = await client.sessions.channel.listen("job_scheduled", heard.append)
        second.open()
        await patiently(stays)
        assert await scene.numbers() == [0, 0, 2, 3, 4]
        await dispose()


async def test_the_caller_whose_job_is_under_way_is_cancelled(setting: Setting) -> None:
    """It is the first one, which stores its own job. The others go on."""
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        scene = Scene(client, points)
        gate = await scene.hold()
        others = [scene.submit(number) for number in (1, 2)]
        await waiting(2, client)
        scene.tasks[0].cancel()
        gate.open()
        await patiently(asyncio.gather(*others))
        assert await scene.numbers() == [1, 2]


@pytest.mark.usefixtures("no_overtaking")
async def test_a_lost_answer_is_looked_up(setting: Setting) -> None:
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        scene = Scene(client, points)
        gate = await scene.hold()
        scene.submit(1)
        scene.submit(2)
        await waiting(2, client)
        points.fail("create_jobs.done", StorageUnavailable("the first answer"), StorageUnavailable("the second"))
        gate.open()
        chains = await patiently(asyncio.gather(*scene.tasks))
        assert [chain.status for chain in chains] == ["pending"] * 3
        assert scene.groups == [1, 2]
        assert await scene.numbers() == [0, 1, 2]

        # With an id that was given, a job that is found may be an older one.
        points.fail("create_jobs.done", StorageUnavailable("the third"))
        with pytest.raises(StorageUnavailable, match="the third"):
            await client.submit(Step(number=3), id=generate_uuid7())


@pytest.mark.usefixtures("no_overtaking")
async def test_a_database_that_is_gone_fails_each_of_them(setting: Setting) -> None:
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        scene = Scene(client, points)
        gate = await scene.hold()
        scene.submit(1)
        scene.submit(2)
        await waiting(2, client)
        points.fail("create_jobs", StorageUnavailable("gone"))
        gate.open()
        first, *results = await patiently(asyncio.gather(*scene.tasks, return_exceptions=True))
        assert isinstance(first, Chain)
        assert [str(error) for error in results] == ["gone"] * 2
        assert all(isinstance(error, StorageUnavailable) for error in results)
        assert results[0] is not results[1]
        assert scene.groups == [1, 2]  # nothing was sent again
        assert await scene.numbers() == [0]
        await client.submit(Step(number=3))


@pytest.mark.usefixtures("no_overtaking")
async def test_an_error_that_we_do_not_know(setting: Setting) -> None:
    """A driver of the user's own may raise anything. It may be about one of the jobs."""
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        scene = Scene(client, points)
        gate = await scene.hold()
        scene.submit(1)
        scene.submit(2)
        await waiting(2, client)
        gate.open()
        points.fail("create_jobs", RuntimeError("strange"), RuntimeError("of the first"))
        _, *results = await patiently(asyncio.gather(*scene.tasks, return_exceptions=True))
        assert isinstance(results[0], RuntimeError)
        assert isinstance(results[1], Chain)
        assert await scene.numbers() == [0, 2]


@pytest.mark.usefixtures("no_overtaking")
async def test_what_was_submitted_is_stored_before_the_client_is_closed(setting: Setting) -> None:
    points = Points()
    client = watched(setting.connect([Step]), points)
    async with setting.connect([Step]) as other, client:
        scene = Scene(client, points)
        gate = await scene.hold()
        scene.submit(1)
        await waiting(1, client)
        closing = asyncio.create_task(client.close())
        await eventually(lambda: client.sessions.closed)
        with pytest.raises(ClientClosed):
            await client.submit(Step(number=2))
        gate.open()
        await patiently(asyncio.gather(*scene.tasks, closing))
        assert await Scene(other, points).numbers() == [0, 1]


async def test_inside_of_a_transaction_while_others_gather(setting: Setting) -> None:
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        async with client.transaction() as tx:
            await client.start(tx, Step())
            with pytest.raises(TransactionNested, match=r"client\.start\(tx"):
                await client.submit(Step())
            other = asyncio.create_task(client.submit(Step(number=1)))  # of another task
        await patiently(other)


@pytest.mark.usefixtures("no_overtaking")
async def test_one_with_a_key_goes_alone(setting: Setting) -> None:
    """An open transaction holds its key. It keeps nobody waiting."""
    if setting.state != "postgres":
        pytest.skip("every writer waits for an open transaction here")
    async with setting.connect([Step]) as client:
        held = generate_uuid7()
        async with client.transaction() as tx:
            await client.start(tx, Step(), dedup="k")
            await client.start(tx, Step(), id=held)
            keyed = asyncio.create_task(client.submit(Step(number=1), dedup="k"))
            same = asyncio.create_task(client.submit(Step(number=2), id=held))
            plain = [asyncio.create_task(client.submit(Step(number=number))) for number in (3, 4, 5)]
            await patiently(asyncio.gather(*plain))
            assert not keyed.done()
            assert not same.done()
        assert (await patiently(keyed)).deduplicated
        with pytest.raises(JobIdExists):
            await patiently(same)


async def test_one_that_hangs_does_not_hold_up_the_others(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitting, "SLOW", 0.01)
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        scene = Scene(client, points)
        gate = await scene.hold()
        points.at("create_jobs", _nothing)
        await patiently(scene.submit(1))
        await patiently(scene.submit(2))
        assert not scene.tasks[0].done()
        gate.open()
        await patiently(scene.tasks[0])
        assert await scene.numbers() == [0, 1, 2]


async def _nothing() -> None:
    pass


def test_an_event_loop_that_ends() -> None:
    """The jobs that wait are lost with their callers, and nothing hangs."""

    async def main() -> None:
        points = Points()
        client = watched(queuert.connect("memory://", jobs=[Step]), points)
        client.sessions.open()
        scene = Scene(client, points)
        await scene.hold()
        scene.submit(1)
        await waiting(1, client)
        keep.append(client)

    keep: list[Any] = []
    asyncio.run(main())


async def test_the_connection_is_cut_during_the_commit(setting: Setting) -> None:
    """The jobs are stored and the answer does not arrive; or they are not stored."""
    if setting.state != "postgres":
        pytest.skip("there is no connection that could be cut")
    scheme, parts = setting.url.partition(":")[0], urlsplit(database())
    async with (
        proxy_to(f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432") as proxy,
        setting.connect([Step]) as direct,
        queuert.connect(
            f"{scheme}://postgres@127.0.0.1:{proxy.port}{parts.path}", jobs=[Step], notify=None, pool_size=2
        ) as client,
    ):
        await client.submit(Step(number=0))
        proxy.freeze_answers()
        tasks = [asyncio.create_task(client.submit(Step(number=number))) for number in (1, 2, 3)]
        scene = Scene(direct, Points())
        await eventually(lambda: _is(scene, [0, 1]))
        proxy.cut()
        proxy.thaw()
        await patiently(asyncio.gather(*tasks))
        assert await scene.numbers() == [0, 1, 2, 3]

        async with direct.transaction() as tx:
            await _execute(tx.connection, KILL)
        try:
            tasks = [asyncio.create_task(client.submit(Step(number=number))) for number in (4, 5, 6)]
            results = await patiently(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            async with direct.transaction() as tx:
                await _execute(tx.connection, "DROP TRIGGER kill ON queuert_job; DROP FUNCTION kill_backend")
        assert [type(error) for error in results] == [StorageUnavailable] * 3
        assert await scene.numbers() == [0, 1, 2, 3]
        await client.submit(Step(number=7))


KILL = """
CREATE FUNCTION kill_backend() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(60); RETURN NULL; END';
CREATE CONSTRAINT TRIGGER kill AFTER INSERT ON queuert_job DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION kill_backend()
"""


async def _is(scene: Scene, numbers: list[int]) -> bool:
    return await scene.numbers() == numbers


async def _execute(connection: Any, text: str) -> None:
    await connection.execute(text)


# Threads


class Held:
    """The first thread waits at the database; the jobs of each statement are counted."""

    def __init__(self, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.released = threading.Event(), threading.Event()
        self.groups: list[int] = []
        create = client._engine.state.create_jobs

        def create_jobs(jobs: Any) -> Program[Any]:
            self.groups.append(len(jobs))
            self.reached.set()
            assert self.released.wait(60)
            return (yield from create(jobs))

        monkeypatch.setattr(client._engine.state, "create_jobs", create_jobs, raising=False)


@pytest.mark.usefixtures("no_overtaking")
async def test_threads_gather(sync_setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    with sync_setting.connect_sync([Step]) as client:
        held = Held(client, monkeypatch)
        first = asyncio.create_task(asyncio.to_thread(client.submit, Step(number=0)))
        await patiently(asyncio.to_thread(held.reached.wait, 30))
        others = [asyncio.create_task(asyncio.to_thread(client.submit, Step(number=number))) for number in (1, 2, 3)]
        await waiting(3, client)  # type: ignore[arg-type]
        held.released.set()
        chains = await patiently(asyncio.gather(first, *others))

        assert held.groups == [1, 3]
        records = [client.get_job(chain.id, Step) for chain in chains]
        assert [record and record.job.number for record in records] == [0, 1, 2, 3]
        await eventually(lambda: not [thread for thread in threading.enumerate() if "submitter" in thread.name])


async def test_a_thread_that_hangs_does_not_hold_up_the_others(
    sync_setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "SLOW", 0.01)
    with sync_setting.connect_sync([Step]) as client:
        held = Held(client, monkeypatch)
        first = asyncio.create_task(asyncio.to_thread(client.submit, Step(number=0)))
        await patiently(asyncio.to_thread(held.reached.wait, 30))
        monkeypatch.undo()
        monkeypatch.setattr(submitting, "SLOW", 0.01)
        await patiently(asyncio.to_thread(client.submit, Step(number=1)))
        assert not first.done()
        held.released.set()
        await patiently(first)


async def test_sqlite_is_busy(tmp_path: Any) -> None:
    """Each caller gets an error of its own, and nothing is stored."""
    path = tmp_path / "jobs.db"
    async with queuert.connect(f"sqlite:///{path}", jobs=[Step], busy_timeout=0.05) as client:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        errors = await patiently(
            asyncio.gather(*(client.submit(Step(number=number)) for number in range(4)), return_exceptions=True)
        )
        assert [type(error) for error in errors] == [StorageBusy] * 4
        assert len({id(error) for error in errors}) == 4
        other.execute("ROLLBACK")
        other.close()
        await asyncio.gather(*(client.submit(Step(number=number)) for number in range(4)))
        assert await Scene(client, Points()).numbers() == [0, 1, 2, 3]
