"""The table of archived chains: a partition for each month, and what happens without the right to make one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.postgres.scenes import Scene, open_scene
from tests.support.postgres import Databases, template

from queuert.adapters.postgres.adapter import sync_psycopg_state
from queuert.ports.provider import run
from queuert.records.retention import PruneRequest
from queuert_conformance.state.build import completed, queue, request
from queuert_conformance.state.prune import archived
from queuert_conformance.state.prune_archive import row_of

ALL = PruneRequest(1000, exact=True, lap_every=0.0, restart=True)

PARTITIONS = """
    SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'queuert_archive'::regclass ORDER BY c.relname
"""
MONTHS = """
    SELECT 'queuert_archive_' || to_char(now() AT TIME ZONE 'UTC' + make_interval(months => n), 'YYYY_MM')
    FROM generate_series(0, 1) AS n
"""


@pytest.fixture
def url(postgres: Databases) -> Iterator[str]:
    """A database of its own: partitions stay."""
    with postgres.fresh(template=template()) as url:
        yield url


@pytest.fixture
def watch(url: str) -> Iterator[Watcher]:
    watcher = Watcher(url)
    yield watcher
    watcher.close()


class Store:
    def __init__(self, url: str) -> None:
        self.state = sync_psycopg_state(url)

    def run(self, program: Any) -> Any:
        return run(self.state.provider, None, program)

    def tend(self) -> bool:
        return bool(self.run(self.state.operations.tend_archive()))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = Store(url)
    yield store
    store.state.close()


def keep(store: Store, **fields: Any) -> None:
    store.run(store.state.operations.store_policies([archived("a", **fields)]))


def put(watch: Watcher, months_ago: int, number: int = 1) -> None:
    watch(f"""
        INSERT INTO queuert_archive
        SELECT gen_random_uuid(), 'a', 'completed', now(), now(),
            date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '{months_ago} months', 'here'
        FROM generate_series(1, {number}) RETURNING 1
    """)


def test_no_month_is_made_before_a_type_is_archived(store: Store, watch: Watcher) -> None:
    store.tend()
    assert watch(PARTITIONS) == ["queuert_archive_rest"]


def test_this_month_and_the_next_one(store: Store, watch: Watcher) -> None:
    keep(store, completed=0.0)
    store.tend()
    months = watch(MONTHS)
    assert watch(PARTITIONS) == [*months, "queuert_archive_rest"]
    store.tend()
    assert watch(PARTITIONS) == [*months, "queuert_archive_rest"]
    put(watch, 0)
    assert watch(f"SELECT count(*) FROM {months[0]}") == [1]


def test_old_months_are_dropped_whole(store: Store, watch: Watcher) -> None:
    """Those that are older than the longest time of any type."""
    keep(store, months=2, completed=0.0)
    for ago in (1, 2, 3, 4):
        (statement,) = watch(f"""
            SELECT format('CREATE TABLE queuert_archive_%s PARTITION OF queuert_archive FOR VALUES FROM (%L) TO (%L)',
                to_char(m, 'YYYY_MM'), m::text || '+00', (m + interval '1 month')::text || '+00')
            FROM (SELECT date_trunc('month', now() AT TIME ZONE 'UTC') - interval '{ago} months' AS m) AS month
        """)
        watch(statement)
        put(watch, ago)
    store.tend()
    assert watch("SELECT count(*) FROM queuert_archive") == [2]
    assert len(watch(PARTITIONS)) == 5  # two that are kept, this month, the next one, and the rest
    keep(store, completed=0.0)  # for ever
    put(watch, 30)
    store.tend()
    assert watch("SELECT count(*) FROM queuert_archive") == [3]


def test_the_rest_is_deleted_in_parts(store: Store, watch: Watcher) -> None:
    keep(store, months=2, completed=0.0)
    put(watch, 3, 1200)
    put(watch, 2)
    assert store.tend()
    assert not store.tend()
    assert watch("SELECT count(*) FROM queuert_archive") == [1]


def test_a_role_that_does_not_own_the_table(url: str, store: Store, watch: Watcher) -> None:
    """Rows go to the rest. Nothing fails."""
    keep(store, months=2, completed=0.0)
    watch("CREATE ROLE archiver LOGIN")
    try:
        watch("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO archiver")
        guest = Store(url.replace("postgres@", "archiver@"))
        try:
            assert not guest.tend()
        finally:
            guest.state.close()
        assert watch(PARTITIONS) == ["queuert_archive_rest"]
    finally:
        watch("DROP OWNED BY archiver")
        watch("DROP ROLE archiver")


def test_a_reader_is_not_waited_for(url: str, store: Store, watch: Watcher) -> None:
    """It gives up soon, and makes the month later. A month whose rows are in the rest stays there."""
    keep(store, completed=0.0)
    with psycopg.connect(url) as reader:
        reader.execute("SELECT count(*) FROM queuert_archive")
        store.tend()
        assert watch(PARTITIONS) == ["queuert_archive_rest"]
    put(watch, 0)
    store.tend()
    assert watch(PARTITIONS) == [watch(MONTHS)[1], "queuert_archive_rest"]


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        await scene.run(scene.operations.store_policies([archived("a", completed=0.0)]))
        yield scene


async def ended(scene: Scene) -> str:
    (chain_id,) = await scene.new("a")
    (claim,) = await scene.claim(request(queue("a")))
    await scene.settle(completed(claim))
    return chain_id


async def test_a_chain_that_another_one_has_locked_is_left(scene: Scene) -> None:
    """It is not waited for, and looked at again."""
    chains = [await ended(scene) for _ in range(3)]
    await scene.run(scene.operations.prune(ALL))
    holder = await scene.session()
    await holder.begin()
    await holder.run(scene.operations.get_chains([chains[1]], lock=True))
    session = await scene.session()
    await session.begin()
    async with asyncio.timeout(45):
        taken = await session.run(scene.operations.take_archive("a", 10))
        await session.run(scene.operations.store_archive([row_of(each) for each in taken]))
    assert sorted(each.jobs[0].id for each in taken) == sorted([chains[0], chains[2]])
    await session.commit()
    await holder.rollback()
    assert scene.watch("SELECT chain_id::text FROM queuert_kept WHERE archive IS NULL AND due_at > now()") == [
        chains[1]
    ]
    assert await scene.statuses(*chains) == ["completed"]


async def test_pruning_goes_on_beside_it(scene: Scene) -> None:
    """A step takes nothing from a transaction that archives, and waits for none of its locks."""
    first = await ended(scene)
    await scene.run(scene.operations.prune(ALL))
    session = await scene.session()
    await session.begin()
    assert len(await session.run(scene.operations.take_archive("a", 10))) == 1
    second = await ended(scene)
    async with asyncio.timeout(45):
        step = await scene.run(scene.operations.prune(PruneRequest(1000, exact=True)))
    assert (step.busy, step.deleted) == (False, 0)
    other = await scene.session()
    await other.begin()
    assert await other.run(scene.operations.take_archive("a", 10)) == []  # one at a time
    await other.commit()
    await session.rollback()
    await session.begin()
    taken = await session.run(scene.operations.take_archive("a", 10))
    assert sorted(each.jobs[0].id for each in taken) == sorted([first, second])
    await session.commit()
