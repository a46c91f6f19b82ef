"""A worker's lock, held by its listening connection: when its absence means death, and when it means nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest
from tests.adapters.postgres.ears import ASYNC, LISTENER, kill_listener
from tests.adapters.postgres.scenes import Scene, open_scene
from tests.support.ears import Ear
from tests.support.postgres import Databases, PostgresServer

from queuert.adapters.broadcast import BroadcastNotify
from queuert.adapters.postgres.installation import ADVISORY_SPACE, WORKER_SPACE
from queuert.adapters.postgres.notify.locks import SessionLocks
from queuert.ports.notify import MISSED
from queuert.records.workers import WorkerRow
from queuert_conformance.state.build import queue, request
from queuert_conformance.state.registry import about

KEY = 4711

LOCKS = f"SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND classid = {WORKER_SPACE}"

Make = Callable[..., BroadcastNotify]


@pytest.fixture(params=ASYNC)
def make(request: pytest.FixtureRequest) -> Make:
    return ASYNC[request.param]


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as found:
        yield found


async def listening(make: Make, url: str) -> tuple[BroadcastNotify, Ear]:
    adapter, ear = make(url), Ear()
    await adapter.listen("job_scheduled", ear)
    return adapter, ear


async def register(scene: Scene, worker_id: str, lock_key: int | None = None) -> WorkerRow:
    return await scene.run(scene.operations.register_worker(worker_id, lock_key=lock_key))


async def row(scene: Scene, worker_id: str) -> WorkerRow:
    (found,) = [each for each in await scene.run(scene.operations.list_workers()) if each.id == worker_id]
    return found


async def dead(scene: Scene, *types: str, asked_by: str = "here", grace: float = 0) -> list[str]:
    return await scene.run(scene.operations.dead_workers(asked_by, types or ("a",), grace=grace))


async def end(scene: Scene, adapter: BroadcastNotify) -> None:
    """Until the server has noticed."""
    await adapter.close()
    await scene.watch.until_gone(LISTENER)


async def claim_as(scene: Scene, worker_id: str) -> str:
    """A job of this worker's."""
    (job_id,) = await scene.new("a")
    await scene.claim(request(queue("a"), limit=1, worker=worker_id))
    return job_id


async def test_a_lock_is_held_while_it_listens(scene: Scene, make: Make) -> None:
    adapter = make(scene.url)
    assert await adapter.hold(KEY) is None
    dispose = await adapter.listen("job_scheduled", Ear())
    session = await adapter.hold(KEY)
    assert session in scene.watch.others(LISTENER)
    assert await adapter.hold(KEY) == session
    assert scene.watch(LOCKS) == [KEY]
    await adapter.release(KEY)
    await adapter.release(KEY)
    assert scene.watch(LOCKS) == []
    assert await adapter.hold(KEY) == session
    await dispose()
    await scene.watch.until_gone(LISTENER)
    assert scene.watch(LOCKS) == []
    assert await adapter.hold(KEY) is None
    await adapter.close()


async def test_two_workers_on_one_connection(scene: Scene, make: Make) -> None:
    adapter, _ = await listening(make, scene.url)
    assert await adapter.hold(1) == await adapter.hold(2)
    await adapter.release(1)
    assert scene.watch(LOCKS) == [2]
    await adapter.close()


async def test_a_lock_that_another_session_has_is_not_waited_for(scene: Scene, make: Make) -> None:
    session = await scene.session()
    await session.connection.execute(f"SELECT pg_advisory_lock({WORKER_SPACE}, {KEY})")
    adapter, _ = await listening(make, scene.url)
    assert await adapter.hold(KEY) is None
    await session.connection.execute(f"SELECT pg_advisory_unlock({WORKER_SPACE}, {KEY})")
    assert await adapter.hold(KEY) is not None
    await adapter.close()


async def test_after_a_cut_another_session_holds_it(scene: Scene, make: Make) -> None:
    adapter, ear = await listening(make, scene.url)
    first = await adapter.hold(KEY)
    kill_listener(scene.watch)
    await ear.until(MISSED)
    assert scene.watch(LOCKS) == []
    assert await adapter.hold(KEY) not in (None, first)
    assert scene.watch(LOCKS) == [KEY]
    await adapter.close()


async def test_holding_and_hearing_at_the_same_time(scene: Scene, make: Make) -> None:
    """The answer and notifications come over one connection."""
    adapter, ear = await listening(make, scene.url)
    adapter.heartbeat = 0.001
    for number in range(100):
        await adapter.publish("job_scheduled", [str(number)])
        assert await adapter.hold(number) is not None
    await ear.until("99")
    assert ear.heard == [str(number) for number in range(100)]
    assert sorted(scene.watch(LOCKS)) == list(range(100))
    await adapter.close()


async def test_the_row_has_a_lock_only_if_the_database_sees_it(scene: Scene, make: Make, postgres: Databases) -> None:
    with postgres.fresh() as elsewhere:
        other, _ = await listening(make, elsewhere)
        assert await other.hold(KEY) is not None
        assert (await register(scene, "one", KEY)).lock_key is None
        await other.close()
    adapter, _ = await listening(make, scene.url)
    await adapter.hold(KEY)
    assert (await register(scene, "one", KEY)).lock_key == KEY
    assert (await register(scene, "one")).lock_key is None
    await adapter.close()


async def test_a_missing_lock_means_death_after_the_grace(scene: Scene, make: Make) -> None:
    adapter, _ = await listening(make, scene.url)
    await adapter.hold(KEY)
    await register(scene, "one", KEY)
    await claim_as(scene, "one")
    assert await dead(scene) == []
    await end(scene, adapter)
    assert await dead(scene, grace=3600) == []
    silent_since = (await row(scene, "one")).silent_since
    assert silent_since is not None
    assert await dead(scene, grace=3600) == []
    assert (await row(scene, "one")).silent_since == silent_since, "the first look counts"
    assert await dead(scene, "b") == [], "it has no jobs of this type"
    assert await dead(scene) == ["one"]
    reaped = await scene.run(scene.operations.reap(["a"], [], 10, b"{}", ["one"]))
    assert len(reaped) == 1
    assert await dead(scene) == [], "it has no jobs any more"


async def test_a_worker_that_is_back_in_time(scene: Scene, make: Make) -> None:
    adapter, ear = await listening(make, scene.url)
    await adapter.hold(KEY)
    await register(scene, "one", KEY)
    await claim_as(scene, "one")
    kill_listener(scene.watch)
    assert await dead(scene, grace=3600) == []
    await ear.until(MISSED)
    await adapter.hold(KEY)
    assert await dead(scene) == [], "the lock is there, whatever the row says"
    assert (await row(scene, "one")).silent_since is None, "the next silence begins anew"
    kill_listener(scene.watch)
    assert await dead(scene, grace=3600) == []
    await ear.until(MISSED, times=2)
    await adapter.hold(KEY)
    assert (await register(scene, "one", KEY)).silent_since is None, "its own word counts as well"
    assert await dead(scene) == []
    await end(scene, adapter)


async def test_a_worker_that_says_that_it_has_no_lock(scene: Scene, make: Make) -> None:
    adapter, _ = await listening(make, scene.url)
    await adapter.hold(KEY)
    await register(scene, "one", KEY)
    await claim_as(scene, "one")
    await end(scene, adapter)
    assert await dead(scene, grace=3600) == []
    await register(scene, "one")
    assert await dead(scene) == []


async def test_a_worker_that_misses_its_own_lock(scene: Scene, make: Make) -> None:
    """Its connection is gone, and it does not know yet: nobody may act on that any more."""
    adapter, _ = await listening(make, scene.url)
    await adapter.hold(KEY)
    await register(scene, "one", KEY)
    await claim_as(scene, "one")
    await end(scene, adapter)
    assert await dead(scene, grace=3600) == []
    assert await dead(scene, asked_by="one") == []
    found = await row(scene, "one")
    assert (found.lock_key, found.silent_since) == (None, None)
    assert await dead(scene) == []


async def test_a_worker_that_ends_with_jobs_is_not_dead(scene: Scene, make: Make) -> None:
    adapter, _ = await listening(make, scene.url)
    await adapter.hold(KEY)
    await register(scene, "one", KEY)
    await claim_as(scene, "one")
    assert await scene.run(scene.operations.forget_worker("one")) is False
    await end(scene, adapter)
    assert await dead(scene) == []
    assert (await row(scene, "one")).lock_key is None


async def test_locked_rows_of_workers_hold_up_nobody(scene: Scene, make: Make) -> None:
    adapter, _ = await listening(make, scene.url)
    await adapter.hold(KEY)
    await register(scene, "one", KEY)
    await claim_as(scene, "one")
    await end(scene, adapter)
    session = await (await scene.session()).begin()
    await session.connection.execute("SELECT FROM queuert_worker FOR UPDATE")
    assert await dead(scene) == []
    assert await scene.run(scene.operations.clean_workers(unseen_for=0)) == []
    await session.rollback()
    assert await dead(scene) == ["one"]


async def test_nobody_is_dead_after_a_restart(make: Make, own_server: PostgresServer) -> None:
    """Every lock is gone. That says nothing of those who held them."""
    with own_server.fresh() as url:
        async with open_scene(own_server, at=url) as scene:
            await scene.run(scene.operations.migrate())
            adapter, _ = await listening(make, scene.url)
            await adapter.hold(KEY)
            before = await register(scene, "one", KEY)
            assert before.lock_key == KEY
            await claim_as(scene, "one")
            await end(scene, adapter)
            await scene.provider.close()
        own_server.restart(immediate=True)
        async with open_scene(own_server, at=url) as scene:
            for _ in range(3):
                assert await dead(scene) == []
            after = await register(scene, "one")
            assert after.server_started is not None
            assert before.server_started is not None
            assert after.server_started > before.server_started
            assert await dead(scene) == []


async def test_nobody_is_dead_after_a_crash_of_a_backend(make: Make, own_server: PostgresServer) -> None:
    """It ends all sessions, but the postmaster goes on."""
    with own_server.fresh() as url:
        async with open_scene(own_server, at=url) as scene:
            await scene.run(scene.operations.migrate())
            (started,) = scene.watch("SELECT pg_postmaster_start_time()")
            adapter, ear = await listening(make, scene.url)
            await adapter.hold(KEY)
            assert (await register(scene, "one", KEY)).lock_key == KEY
            await claim_as(scene, "one")
            (listener,) = scene.watch.others(LISTENER)
        os.kill(listener, signal.SIGKILL)
        await ear.until(MISSED)
        await adapter.close()
        async with open_scene(own_server, at=url) as scene:
            assert scene.watch("SELECT pg_postmaster_start_time()") == [started]
            for _ in range(3):
                assert await dead(scene) == []


async def test_a_connection_through_a_pooler_takes_no_lock(scene: Scene) -> None:
    """The driver was told another id than the session's."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(scene.url)

    async def ask(query: str) -> bool:
        return bool(await connection.fetchval(query))

    assert await SessionLocks(connection.get_server_pid() + 1, ask).hold(KEY) is None
    assert scene.watch(LOCKS) == []
    assert await SessionLocks(connection.get_server_pid(), ask).hold(KEY) == connection.get_server_pid()
    assert scene.watch(LOCKS) == [KEY]
    await connection.close()


async def test_the_lock_of_a_worker_is_never_that_of_a_cap(scene: Scene, make: Make) -> None:
    """Even if the key is the same: a claim would wait for as long as the worker runs."""
    assert WORKER_SPACE != ADVISORY_SPACE
    names = [f"queue{number}" for number in range(10)]
    keys = {name: scene.watch(f"SELECT hashtext('public/queuert_/queue.{name}')")[0] for name in names}
    adapter, _ = await listening(make, scene.url)
    for key in keys.values():
        assert await adapter.hold(key) is not None
    await scene.new("a")
    types = ["a", *names[1:]]
    queues = [queue(each, name=name, max_concurrency=5) for each, name in zip(types, names, strict=True)]
    assert len(await scene.claim(request(*queues, cluster_cap=5))) == 1
    await end(scene, adapter)


async def state(scene: Scene, worker_id: str) -> str:
    return (await row(scene, worker_id)).state


async def test_the_state_of_a_worker_with_a_lock(scene: Scene, make: Make) -> None:
    """Alive while the lock is held, however late it registers; dead when a look has noticed that it is missing."""
    adapter, _ = await listening(make, scene.url)
    await adapter.hold(KEY)
    await register(scene, "one", KEY)
    scene.watch("UPDATE queuert_worker SET seen_at = seen_at - interval '1 day'")
    assert await state(scene, "one") == "alive"
    scene.watch("UPDATE queuert_worker SET seen_at = clock_timestamp()")
    await end(scene, adapter)
    assert await state(scene, "one") == "unknown"  # perhaps it has only to connect again
    assert await dead(scene) == []
    assert (await row(scene, "one")).silent_since is not None
    assert await state(scene, "one") == "unknown"
    scene.watch("UPDATE queuert_worker SET silent_since = silent_since - interval '1 second'")
    assert await state(scene, "one") == "dead"
    assert await scene.run(scene.operations.handled_types(["a"])) == []
    assert (await register(scene, "one")).state == "alive"  # without its lock


async def test_a_worker_without_its_lock_is_dead_when_it_is_late(scene: Scene, make: Make) -> None:
    """No other worker is there to look for it."""
    adapter, _ = await listening(make, scene.url)
    await adapter.hold(KEY)
    await register(scene, "one", KEY)
    await end(scene, adapter)
    scene.watch("UPDATE queuert_worker SET seen_at = seen_at - interval '74 seconds'")
    assert await state(scene, "one") == "unknown"
    scene.watch("UPDATE queuert_worker SET seen_at = seen_at - interval '1 second'")
    assert await state(scene, "one") == "dead"


async def test_what_a_worker_tells_is_written_once(scene: Scene) -> None:
    """Registering again writes the small row of the worker, and not the long one of what it tells."""
    place = "SELECT xmin::text || ctid::text || xmax::text FROM queuert_worker_about"
    await scene.run(scene.operations.register_worker("one", about=about("a")))
    before = scene.watch(place)
    for _ in range(3):
        await scene.run(scene.operations.register_worker("one", about=about("a")))
    assert scene.watch(place) == before
    await scene.run(scene.operations.register_worker("one", about=about("b")))
    assert scene.watch(place) != before


async def test_rows_that_an_older_version_has_left(scene: Scene) -> None:
    """An older version deletes the row of a dead worker, and knows nothing of what the worker told."""
    operations = scene.operations
    await scene.run(operations.register_worker("one", about=about("a", host="first")))
    await scene.run(operations.register_worker("two", about=about("b", host="second")))
    scene.watch("DELETE FROM queuert_worker WHERE id = 'one'")
    for _ in range(2):
        assert [each and each.host for each in await scene.run(operations.last_handled(["a", "b"]))] == [
            "first", "second",
        ]  # fmt: skip
        scene.watch("UPDATE queuert_worker_about SET told_at = told_at - interval '1 minute'")
        assert await scene.run(operations.clean_workers(unseen_for=30)) == []
    assert scene.watch("SELECT id FROM queuert_worker_about") == ["two"]
    scene.watch("UPDATE queuert_worker_about SET about = '{\"queues\": 7}'")  # a newer version, perhaps
    assert (await row(scene, "two")).about is None


async def test_two_workers_that_end_at_once(scene: Scene) -> None:
    """The types that both had are locked in one order."""
    operations = scene.operations
    await scene.run(operations.register_worker("one", about=about("a", "b")))
    await scene.run(operations.register_worker("two", about=about("b", "a")))
    first, second = await scene.session(), await scene.session()
    await first.begin()
    await second.begin()
    assert await first.run(operations.forget_worker("one"))
    ending = scene.go(second.run(operations.forget_worker("two")))
    await scene.blocked(second, by=first)
    await first.commit()
    assert await ending
    await second.commit()
    assert scene.watch("SELECT type_name FROM queuert_last_handled ORDER BY 1") == ["a", "b"]
