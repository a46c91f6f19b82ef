"""stats: open and failed jobs, by type."""

from __future__ import annotations

from queuert.records.model import TypeStats, When
from queuert_conformance.checks import check, equal, present
from queuert_conformance.state.build import PAST, completed, failed, later, new_job, waiting_for
from queuert_conformance.state.store import Store, case, driver_case


async def counts(store: Store, limit: int | None = None) -> dict[str, tuple[int, int, int, int]]:
    """Blocked, pending, running and failed jobs by type, without types that have none."""
    stats = await store.stats(limit)
    found = {each.job_type: (each.blocked, each.pending, each.running, each.failed) for each in stats}
    return {name: numbers for name, numbers in found.items() if any(numbers)}


async def of_task(store: Store) -> TypeStats:
    found = [each for each in await store.stats() if each.job_type == "task"]
    equal(len(found), 1, "entries of one type")
    return found[0]


@case
async def open_and_failed_jobs_are_counted(store: Store) -> None:
    """Blocked, pending, running and failed jobs are counted by type, scheduled ones as pending."""
    source = await store.start("source")
    await store.create(
        *(new_job("a", blockers=waiting_for(source, chain_type="source")) for _ in range(2)),
        *(new_job("a", schedule=later()) for _ in range(3)),
        new_job("b"),
    )
    await store.running("run")
    for _ in range(2):
        await store.settle(failed(await store.start("b", priority=1)))
    wanted = {"a": (2, 3, 0, 0), "b": (0, 1, 0, 2), "run": (0, 0, 1, 0), "source": (0, 1, 0, 0)}
    equal(await counts(store), wanted, "blocked, pending, running, failed")


@case
async def other_ends_are_not_counted(store: Store) -> None:
    """Completed, cancelled and expired jobs are not counted."""
    for _ in range(3):
        await store.settle(completed(await store.start()))
    equal(await counts(store), {}, "counts")


@case
async def types_are_sorted(store: Store) -> None:
    """Each type is returned once, sorted by name."""
    for name in ("delta", "alpha", "charlie", "bravo", "alpha"):
        await store.start(name)
    names = [each.job_type for each in await store.stats()]
    equal(names, ["alpha", "bravo", "charlie", "delta"], "types")


@case
async def the_oldest_ready_job(store: Store) -> None:
    """The age is that of the oldest ready job. Without a ready job it is None."""
    await store.start(schedule=later())
    equal((await of_task(store)).oldest_ready_age, None, "age with no ready job")
    await store.start()
    age = present((await of_task(store)).oldest_ready_age, "age")
    check(0 <= age < 20, f"a new job must have waited only for a moment, not {age:g} s")
    await store.elapse(0.05)
    await store.start()
    older = present((await of_task(store)).oldest_ready_age, "age")
    check(older >= age + 0.04, f"the first job must decide: it has waited for more than {age:g} s, not {older:g} s")
    await store.start(schedule=When(at=PAST))
    age = present((await of_task(store)).oldest_ready_age, "age")
    check(age < 20, f"a time in the past counts as now, not as {age:g} s of waiting")


@driver_case
async def it_follows_a_job(store: Store) -> None:
    """Counts follow a job through its life."""
    job = await store.start()
    equal(await counts(store), {"task": (0, 1, 0, 0)}, "pending")
    claimed = await store.claim_one()
    equal(await counts(store), {"task": (0, 0, 1, 0)}, "running")
    equal((await of_task(store)).oldest_ready_age, None, "age while running")
    await store.settle(failed(claimed))
    equal(await counts(store), {"task": (0, 0, 0, 1)}, "failed")
    await store.retry(job)
    equal(await counts(store), {"task": (0, 1, 0, 0)}, "retried")
    await store.delete(job)
    equal(await counts(store), {}, "deleted")


@driver_case
async def counts_up_to_a_limit(store: Store) -> None:
    """With a limit, at most this many jobs of each type and status are counted."""
    source = await store.start("source")
    await store.create(
        *(new_job("a", blockers=waiting_for(source, chain_type="source")) for _ in range(3)),
        *(new_job("a", schedule=later()) for _ in range(2)),
        *(new_job("a") for _ in range(2)),
        new_job("b", schedule=later()),
    )
    for _ in range(3):
        await store.settle(failed(await store.start("b", priority=1)))
        await store.running("run")
    wanted = {"a": (3, 4, 0, 0), "b": (0, 1, 0, 3), "run": (0, 0, 3, 0), "source": (0, 1, 0, 0)}
    for limit in (None, 10, 4):
        equal(await counts(store, limit), wanted, f"counts up to {limit}")
    for limit in (3, 2, 1):
        cut = {name: tuple(min(limit, number) for number in numbers) for name, numbers in wanted.items()}
        equal(await counts(store, limit), cut, f"counts up to {limit}")


@case
async def the_oldest_of_all_priorities(store: Store) -> None:
    """The oldest ready job is found behind many of another priority, also with a limit."""
    await store.start(priority=500)
    await store.elapse(0.05)
    for _ in range(4):
        await store.start(priority=1)
    await store.start("other")
    for limit in (None, 3):
        (other, task) = await store.stats(limit)
        older, newer = present(task.oldest_ready_age, "age"), present(other.oldest_ready_age, "age")
        check(older >= newer + 0.04, f"the first job must decide: {older:g} s is not 0.05 s more than {newer:g} s")


@case
async def empty_storage(store: Store) -> None:
    """On empty storage, the result is empty."""
    equal(await store.stats(), [], "stats")
