"""claim, move_horizon, reap: a job whose handler never began loses no attempt."""

from __future__ import annotations

from queuert.records.model import Claimed, JobRow
from queuert_conformance.checks import check, equal, only, same_json
from queuert_conformance.state.build import ERROR, WORKER, completed, new_job, put_back, queue, request
from queuert_conformance.state.store import Store, case, driver_case

GONE = b'{"code":"GONE"}'


async def abandoned(store: Store, number: int, *, at_once: int = 0, worker: str = WORKER) -> list[Claimed]:
    """New jobs, claimed in one claim by a worker that is gone. The ordinals count from 1."""
    await store.create(*(new_job() for _ in range(number)))
    claim = request(queue("task", lease=0), limit=number, worker=worker, at_once=at_once)
    return (await store.claim(claim)).jobs


def ordinals(jobs: list[Claimed]) -> list[int | None]:
    return [each.ordinal for each in jobs]


async def counted(store: Store, jobs: list[Claimed]) -> list[bool]:
    """Reap all, and tell for each job whether its attempt counts."""
    rows = {row.id: row for row in await store.reap("task", limit=100, error=GONE)}
    equal(sorted(rows), sorted(each.job.id for each in jobs), "reaped jobs")
    check(all(row.status == "pending" and row.token is None for row in rows.values()), "all must be pending")
    return [_counts(rows[each.job.id]) for each in jobs]


def _counts(row: JobRow) -> bool:
    """All of it, or nothing."""
    signs = {row.attempt == 1, row.last_error is not None, row.last_attempt_at is not None}
    check(
        len(signs) == 1, f"attempt {row.attempt}, last_error {row.last_error!r}, last_attempt_at {row.last_attempt_at}"
    )
    return signs.pop()


@driver_case
async def ordinals_in_the_order_of_the_claim(store: Store) -> None:
    """Jobs that do not begin at once have ordinals: the first ordinal plus their position."""
    await store.create(*(new_job(priority=number) for number in (3, 1, 2, 4, 5)))
    jobs = (await store.claim(request(limit=5, at_once=2, first_ordinal=10))).jobs
    equal([each.job.priority for each in jobs], [1, 2, 3, 4, 5], "the order")
    equal(ordinals(jobs), [None, None, 12, 13, 14], "ordinals")


@case
async def ordinals_only_if_asked_for(store: Store) -> None:
    """Without `at_once`, or if all jobs begin at once, no job has an ordinal."""
    await store.create(*(new_job() for _ in range(6)))
    equal(ordinals((await store.claim(request(limit=2))).jobs), [None, None], "without at_once")
    equal(ordinals((await store.claim(request(limit=2, at_once=2))).jobs), [None, None], "all at once")
    equal(ordinals((await store.claim(request(limit=2, at_once=9))).jobs), [None, None], "more than there are")


@case
async def ordinals_of_several_queues(store: Store) -> None:
    """Ordinals follow the order of the claim, whatever limits it has."""
    await store.create(*(new_job(name) for name in ("b", "a", "b", "a", "c")))
    queues = (queue("a", name="low", priority=2), queue("b", "c", name="high", priority=1, limit=1, max_concurrency=9))
    jobs = (await store.claim(request(*queues, at_once=1))).jobs
    equal([each.job.type_name for each in jobs], ["b", "c", "a", "a"], "the order")
    equal(ordinals(jobs), [None, 2, 3, 4], "ordinals")


@driver_case
async def the_horizon_moves_forward(store: Store) -> None:
    """The horizon moves forward, and never back."""
    await store.register(WORKER)
    check(await store.move_horizon(WORKER, 5), "the worker is known")
    equal(only(await store.workers(), "workers").horizon, 5, "horizon")
    check(await store.move_horizon(WORKER, 3), "the worker is known")
    equal(only(await store.workers(), "workers").horizon, 5, "horizon after a move back")


@case
async def the_horizon_of_an_unknown_worker(store: Store) -> None:
    """The horizon of a worker that is not known cannot be moved."""
    await store.register("another")
    check(not await store.move_horizon(WORKER, 5), "the worker is not known")
    equal(only(await store.workers(), "workers").horizon, 0, "the horizon of another worker")


@driver_case
async def above_the_horizon_nothing_began(store: Store) -> None:
    """A job above the horizon is put back untouched. Any other one has lost an attempt."""
    await store.register(WORKER)
    jobs = await abandoned(store, 5, at_once=1)
    await store.move_horizon(WORKER, 3)
    equal(ordinals(jobs), [None, 2, 3, 4, 5], "ordinals")
    equal(await counted(store, jobs), [True, True, True, False, False], "the attempt counts")
    equal([each.job.attempt for each in (await store.claim()).jobs], [2, 2, 2, 1, 1], "the next attempts")


@case
async def untouched_means_as_before(store: Store) -> None:
    """A job put back untouched has its earlier schedule, attempts, error and last attempt."""
    await store.register(WORKER)
    claimed = await store.running()
    await store.settle(put_back(claimed))
    before = await store.job(claimed.job.id)
    equal((before.attempt, before.last_attempt_at), (1, claimed.job.last_attempt_at), "the first attempt")
    same_json(before.last_error, ERROR, "last_error")
    await store.elapse(0.002)
    await store.claim(request(queue("task", lease=0), at_once=0))
    equal(await store.reap("task", error=GONE), [before], "reaped")
    equal(await store.job(claimed.job.id), before, "the job")


@case
async def before_any_move(store: Store) -> None:
    """A worker that has just registered has begun nothing but what begins at once."""
    await store.register(WORKER)
    equal(await counted(store, await abandoned(store, 3, at_once=1)), [True, False, False], "the attempt counts")


@case
async def an_unknown_worker_may_have_begun_everything(store: Store) -> None:
    """If the worker is not known, all attempts count, whatever the horizon of another worker is."""
    await store.register("another")
    equal(await counted(store, await abandoned(store, 2)), [True, True], "the attempt counts")


@case
async def each_worker_has_its_horizon(store: Store) -> None:
    """The horizon of a worker is for its own jobs."""
    for name in ("one", "two"):
        await store.register(name)
    jobs = [*(await abandoned(store, 2, worker="one")), *(await abandoned(store, 2, worker="two"))]
    await store.move_horizon("one", 1)
    await store.move_horizon("two", 2)
    equal(await counted(store, jobs), [True, False, True, True], "the attempt counts")


@case
async def the_horizon_outlives_the_worker(store: Store) -> None:
    """The horizon is kept until the last running job of the worker is gone."""
    await store.register(WORKER)
    jobs = await abandoned(store, 2)
    await store.move_horizon(WORKER, 1)
    await store.forget(WORKER)
    await store.elapse(0.01)
    await store.clean_workers(0)
    equal(await counted(store, jobs), [True, False], "the attempt counts")
    equal(await store.clean_workers(0), [WORKER], "cleaned then")


@case
async def registering_again_keeps_the_horizon(store: Store) -> None:
    """A worker that registers again has the greater of both horizons."""
    await store.register(WORKER)
    jobs = await abandoned(store, 3)
    await store.move_horizon(WORKER, 1)
    equal((await store.register(WORKER)).horizon, 1, "horizon")
    equal((await store.register(WORKER, horizon=2)).horizon, 2, "a greater one")
    equal((await store.register(WORKER, horizon=1)).horizon, 2, "a lesser one")
    equal(await counted(store, jobs), [True, True, False], "the attempt counts")


@case
async def an_ordinal_belongs_to_one_claim(store: Store) -> None:
    """A later claim of the same job has its own ordinal, or none."""
    await store.register(WORKER)
    jobs = await abandoned(store, 1)
    equal(await counted(store, jobs), [False], "claimed ahead")
    await store.claim(request(queue("task", lease=0), at_once=1))
    equal(await counted(store, jobs), [True], "claimed for now")


@case
async def the_token_decides_all_the_same(store: Store) -> None:
    """The horizon matters only for reaping: a claim above it can be settled like any other."""
    await store.register(WORKER)
    claimed = only(await abandoned(store, 1), "claimed jobs")
    equal((await store.settle(completed(claimed))).applied, [True], "applied")
    equal(await store.reap("task"), [], "reaped")
