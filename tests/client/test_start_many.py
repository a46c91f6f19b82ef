"""Many jobs at once: encoded and stored in parts, so that the event loop goes on and memory is bounded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.postgres_harness import database, empty
from tests.support.facade import awaited
from tests.support.jobs import JOBS, Greet, Nothing

import queuert
from queuert import Client, EntryJob, JobIdExists
from queuert.engine.operations import starting as create
from queuert.records.model import NewJob

CLIENTS = ["memory", "sqlite", "psycopg", "asyncpg", "memory-sync", "sqlite-sync", "psycopg-sync"]
TAKEN = "0190163d-8694-739b-aea5-966c26f8ad91"


class Large(EntryJob[str], name="large"):
    text: str


@asynccontextmanager
async def connected(name: str, path: Path) -> AsyncGenerator[Client[Any]]:
    kind, _, sync = name.partition("-")
    if kind in ("memory", "sqlite"):
        url = "memory://" if kind == "memory" else f"sqlite:///{path / 'jobs.db'}"
    else:
        empty()
        url = database().replace("postgresql:", f"postgresql+{kind}:")
    jobs = [*JOBS, Large]
    async with awaited(queuert.connect_sync(url, jobs=jobs)) if sync else queuert.connect(url, jobs=jobs) as client:
        yield client


@pytest.fixture(params=CLIENTS)
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Client[Any]]:
    async with connected(request.param, tmp_path) as client:
        yield client


@pytest.fixture
def stored(client: Client[Any], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of jobs in each call of the storage."""
    sizes: list[int] = []
    state: Any = client._engine.state
    create_jobs = state.create_jobs

    def counting(jobs: Sequence[NewJob]) -> Any:
        sizes.append(len(jobs))
        return create_jobs(jobs)

    monkeypatch.setattr(state, "create_jobs", counting)
    return sizes


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create, "PART_JOBS", 10)
    monkeypatch.setattr(create, "JOBS_AT_ONCE", 3)


async def test_jobs_are_stored_in_parts(client: Client[Any], stored: list[int]) -> None:
    async with client.transaction() as tx:
        chains = await client.start_many(tx, [Greet(who=str(number)) for number in range(4_500)])
    assert stored == [2_000, 2_000, 500]
    assert len({chain.id for chain in chains}) == 4_500
    listed = (await client.list_chains(Greet, limit=1000)).items
    assert [chain.id for chain in listed] == [chain.id for chain in chains[:1000]]
    last = await client.get_job(chains[-1].id, Greet)
    assert last is not None
    assert last.job.who == "4499"


async def test_each_job_of_a_call_has_its_own_options(client: Client[Any]) -> None:
    """Also if most of them have none."""
    jobs = [Greet(who="a"), Greet(who="b").set(priority=3), Nothing(), Greet(who="c").set(id=TAKEN), Greet(who="d")]
    async with client.transaction() as tx:
        chains = await client.start_many(tx, jobs)
    found = [await client.get_job(chain.id) for chain in chains]
    assert [job.priority for job in found if job is not None] == [100, 3, 100, 100, 100]
    assert [chain.chain_type for chain in chains] == ["greet", "greet", "nothing", "greet", "greet"]
    assert [chain.input for chain in chains if chain.chain_type == "greet"] == [{"who": who} for who in "abcd"]
    made = [chain.id for chain in chains]
    assert made[3] == TAKEN
    assert (others := [each for each in made if each != TAKEN]) == sorted(set(others))


async def test_ids_of_the_caller_are_asked_for_one_by_one(tmp_path: Path) -> None:
    given = [f"{number:08x}-0000-7000-8000-000000000000" for number in range(4)]
    left = iter(given)
    async with (
        queuert.connect(f"sqlite:///{tmp_path / 'jobs.db'}", jobs=JOBS, generate_id=lambda: next(left)) as client,
        client.transaction() as tx,
    ):
        chains = await client.start_many(tx, [Greet(who="a"), Greet(who="b").set(id=TAKEN), Greet(who="c")])
    assert [chain.id for chain in chains] == [given[0], TAKEN, given[1]]


async def test_a_few_jobs_are_stored_at_once(client: Client[Any], stored: list[int]) -> None:
    async with client.transaction() as tx:
        await client.start_many(tx, [Greet() for _ in range(2_000)])
    assert stored == [2_000]


async def test_large_inputs_are_stored_in_smaller_parts(
    client: Client[Any], stored: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create, "PART_BYTES", 100_000)
    async with client.transaction() as tx:
        await client.start_many(tx, [Large(text="x" * 40_000) for _ in range(7)])
    assert stored == [3, 3, 1]


@pytest.mark.usefixtures("small_parts")
async def test_all_parts_are_stored_or_none(client: Client[Any], stored: list[int]) -> None:
    """Also if the caller goes on after the error."""
    called = list[str]()
    async with client.transaction() as tx:
        kept = await client.start(tx, Nothing().set(id=TAKEN))
        jobs = [Greet() for _ in range(30)]
        with pytest.raises(JobIdExists):
            await client.start_many(tx, [*jobs, Greet().set(id=TAKEN)])
        tx.after_commit(lambda: called.append("committed"))
        assert stored == [1, 10, 10, 10, 1]
    assert [chain.id for chain in (await client.list_chains()).items] == [kept.id]
    assert called == ["committed"]


@pytest.mark.usefixtures("small_parts")
async def test_a_job_finds_those_of_earlier_parts(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        chains = await client.start_many(tx, [Greet().set(dedup=str(number % 7)) for number in range(25)])
    assert len({chain.id for chain in chains}) == 7
    assert [chain.deduplicated for chain in chains] == [False] * 7 + [True] * 18


@pytest.mark.usefixtures("small_parts")
async def test_jobs_may_come_from_a_generator(client: Client[Any], stored: list[int]) -> None:
    generated: Any = (Greet() for _ in range(25))
    assert len(await client.submit_many(generated)) == 25
    assert stored == [10, 10, 5]


async def test_the_event_loop_goes_on(tmp_path: Path) -> None:
    """The memory adapter never waits: all turns are those that encoding gives."""
    async with connected("memory", tmp_path) as client:
        turns, done = 0, False

        async def count() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await asyncio.sleep(0)
        async with client.transaction() as tx:
            turns = 0
            await client.start_many(tx, [Greet() for _ in range(10_000)])
            found = turns
        done = True
        await counting
        assert found >= 10_000 / create.JOBS_AT_ONCE - 10_000 / create.PART_JOBS


async def test_large_inputs_and_outputs_are_warned_about_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with connected("memory", tmp_path) as client:
        with caplog.at_level(logging.WARNING, logger="queuert.jobs"):
            for _ in range(2):
                async with client.transaction() as tx:
                    chain = await client.start(tx, Large(text="x" * 1_000_001))
                    async with client.take_over(tx, chain, Large) as current:
                        await current.settle("y" * 1_000_001)
    hint = "keep large data elsewhere, and pass a reference to it"
    assert [record.getMessage() for record in caplog.records] == [
        f"job type 'large': storing an input of 1000012 bytes; {hint}",
        f"job type 'large': storing an output of 1000003 bytes; {hint}",
    ]
