"""claim, with limits by key: how many run, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from queuert.records.limits import DeclaredLimit, LimitRule, lane_of
from queuert.records.model import Claimed, ClaimResult, NewJob, TypeLimit
from queuert_conformance.checks import check, equal, only, sooner_than
from queuert_conformance.state.build import (
    LEASE,
    completed,
    continued,
    failed,
    given_back,
    later,
    new_job,
    next_job,
    queue,
    request,
    waiting_for,
)
from queuert_conformance.state.store import Store, case, driver_case

NAME = "per tenant"


def lane(key: str = "a", name: str = NAME) -> str:
    return lane_of(name, key)


def job(key: str = "a", type_name: str = "task", name: str = NAME, **fields: Any) -> NewJob:
    """A new job with a limit."""
    return new_job(type_name, lane=lane(key, name), **fields)


async def declare(
    store: Store, concurrency: int | None = None, *, name: str = NAME, types: Sequence[str] = ("task",), **rule: Any
) -> None:
    limit = DeclaredLimit(name, LimitRule(concurrency, **rule), tuple(types))
    await store.declare_limits(types, limit)


async def take(
    store: Store,
    number: int = 100,
    *,
    types: Sequence[str] = ("task",),
    names: Sequence[str] = (NAME,),
    lease: float = LEASE,
    **options: Any,
) -> ClaimResult:
    limits = [TypeLimit(each, 1_000_000, lease, tuple(names)) for each in types]
    return await store.claim(request(queue(*limits), limit=number, **options))


def keys(result: ClaimResult) -> list[str]:
    return [(each.job.lane or "").partition("\x1f")[2] for each in result.jobs]


@driver_case
async def a_lane_runs_as_many_jobs_as_its_limit_allows(store: Store) -> None:
    """So many jobs of each key run at once, over all claims."""
    await declare(store, 2)
    await store.create(*[job(key) for key in "aaaab"])
    equal(sorted(keys(await take(store))), ["a", "a", "b"], "the first claim")
    result = await take(store)
    equal((result.jobs, result.more), ([], False), "the second claim")


@case
async def claims_in_turn_count_together(store: Store) -> None:
    """A claim that takes less than there is leaves the rest to the next one."""
    await declare(store, 3)
    await store.create(*[job() for _ in range(5)])
    numbers = [len((await take(store, 2)).jobs) for _ in range(3)]
    equal(numbers, [2, 1, 0], "how many jobs the claims got")


End = Callable[[Store, Claimed], Awaitable[object]]


async def _reaped(store: Store, claimed: Claimed) -> None:
    await store.elapse(0.05)
    await store.reap("task")
    # The job itself is back in line, and comes first: it must not take the place that it gives
    # back.
    await store.cancel(claimed.job.chain_id)


async def _put_back(store: Store, claimed: Claimed) -> None:
    await store.settle(given_back(claimed))
    await store.cancel(claimed.job.chain_id)


async def _released(store: Store, claimed: Claimed) -> None:
    await store.release(claimed.job.leased_by or "", [])
    await store.cancel(claimed.job.chain_id)


ENDS: dict[str, End] = {
    "completed": lambda store, claimed: store.settle(completed(claimed)),
    "failed": lambda store, claimed: store.settle(failed(claimed)),
    "continued": lambda store, claimed: store.settle(continued(claimed, next_job(claimed.job, "other"))),
    "taken over": lambda store, claimed: store.settle(completed(claimed.job.id)),
    "cancelled": lambda store, claimed: store.cancel(claimed.job.chain_id),
    "deleted": lambda store, claimed: store.delete(claimed.job.chain_id),
    "discarded": lambda store, claimed: store.settle(completed(claimed, discard=True)),
    "reaped": _reaped,
    "given back": _put_back,
    "released": _released,
}


@case
async def every_end_of_a_claim_gives_its_place_back(store: Store) -> None:
    """Once, however the claim ends, and in the transaction that ends it."""
    await declare(store, 1)
    for how, end in ENDS.items():
        first, second, third = job(), job(), job()
        await store.create(first, second, third)
        claimed = only((await take(store, lease=0.001)).jobs, f"{how}: the first claim")
        equal(len((await take(store)).jobs), 0, f"{how}: jobs beside the first one")
        await end(store, claimed)
        again = only((await take(store)).jobs, f"{how}: jobs after the end")
        equal(len((await take(store)).jobs), 0, f"{how}: jobs beside the second one")
        # A late end of the first claim has no effect.
        await store.settle(completed(claimed))
        equal(len((await take(store)).jobs), 0, f"{how}: jobs after a late settlement")
        await store.settle(completed(again))
        await store.settle(completed(only((await take(store)).jobs, f"{how}: the last job")))
        left = [(each.running, each.waiting) for each in await store.limits() if each.key == "a"]
        check(left in ([], [(0, 0)]), f"{how}: the lane must be empty, got {left}")


@case
async def a_place_comes_back_with_the_commit(store: Store) -> None:
    """Not before, and not at all if the transaction is rolled back."""
    await declare(store, 1)
    await store.create(job(), job())
    claimed = only((await take(store)).jobs, "claimed jobs")
    async with store.rolled_back() as tx:
        await store.settle(completed(claimed), tx=tx)
    equal(len((await take(store)).jobs), 0, "jobs after a rollback")
    await store.settle(completed(claimed))
    equal(len((await take(store)).jobs), 1, "jobs after the commit")


@case
async def blocked_jobs_and_jobs_for_later_hold_nothing(store: Store) -> None:
    """They join the line when they are ready."""
    await declare(store, 1)
    chain = await store.start("other")
    blocked, scheduled, ready = job(blockers=waiting_for(chain, chain_type="other")), job(schedule=later()), job()
    await store.create(blocked, scheduled, ready)
    first = only((await take(store)).jobs, "claimed jobs")
    equal(first.job.id, ready.id, "the job that is ready")
    await store.settle(completed(first))
    await store.finish(chain)
    second = only((await take(store)).jobs, "jobs after the blocker was completed")
    equal(second.job.id, blocked.id, "the job that was blocked")
    await store.settle(completed(second))
    await store.trigger(scheduled.id)
    third = only((await take(store)).jobs, "jobs after the trigger")
    equal(third.job.id, scheduled.id, "the job that was scheduled")


@case
async def jobs_that_become_due_join_the_line(store: Store) -> None:
    """A claim takes them when their time has come."""
    await declare(store, 1)
    with sooner_than(2):
        await store.create(job(schedule=later(2)))
        result = await take(store)
        check(not result.jobs and result.next_in is not None, "the claim must tell when the job is due")
    await store.elapse(2.1)
    equal(len((await take(store)).jobs), 1, "jobs that are due")


@case
async def waiting_jobs_are_listed_and_counted(store: Store) -> None:
    """Like all other pending jobs."""
    await declare(store, 1)
    await store.create(job(), job(), job(schedule=later()), new_job())
    listed = await store.list_jobs(statuses=("pending",))
    equal(len(listed), 4, "pending jobs")
    equal(len(await store.list_jobs(statuses=("pending",), types=("task",))), 4, "pending jobs of the type")
    equal([each.pending for each in await store.stats()], [4], "the number of pending jobs")
    equal(await store.next_available_in("task"), 0, "when a job is due")


@case
async def the_order_within_a_lane(store: Store) -> None:
    """Priority, then time, then id; also after the priority was changed."""
    await declare(store, 10)
    first, second, third = job(priority=5), job(priority=3), job(priority=4)
    await store.create(first, second, third)
    await store.set_priority(first.id, priority=1)
    equal([each.job.id for each in (await take(store)).jobs], [first.id, second.id, third.id], "the order")


@case
async def types_share_a_limit(store: Store) -> None:
    """A limit counts jobs of all its types; a worker gets those that it asks for."""
    await declare(store, 2, types=["one", "two"])
    await store.create(*[job(type_name=name) for name in ("one", "one", "two")])
    result = await take(store, types=["two"])
    equal([each.job.type_name for each in result.jobs], ["two"], "the type that was asked for")
    equal(len((await take(store, types=["one"])).jobs), 1, "what is left of the limit")
    equal(len((await take(store, types=["one", "two"])).jobs), 0, "jobs beyond the limit")


@case
async def what_names_no_limit_is_left_alone(store: Store) -> None:
    """A claim that does not name the limit takes only jobs without one."""
    await declare(store, 5)
    plain = await store.start()
    await store.create(job())
    result = await take(store, names=[])
    equal([each.job.id for each in result.jobs], [plain], "jobs without a limit")
    equal(len((await take(store)).jobs), 1, "the job with the limit")


@case
async def no_more_than_can_begin(store: Store) -> None:
    """Jobs with a limit are not claimed ahead; the others fill the claim up."""
    await declare(store, 50)
    await store.create(*[job() for _ in range(5)])
    await store.create(*[new_job() for _ in range(5)])
    result = await take(store, 6, slots=2, at_once=2, first_ordinal=10)
    limited = [each.job.lane is not None for each in result.jobs]
    equal((limited, [each.ordinal for each in result.jobs]), ([True] * 2 + [False] * 4, [None] * 2 + [12, 13, 14, 15]),
          "the claim")  # fmt: skip


@case
async def heads_compete(store: Store) -> None:
    """A job without a limit that is more urgent comes before the next turn."""
    await declare(store, 50)
    await store.create(*[job(priority=5) for _ in range(3)])
    urgent = await store.start(priority=1)
    equal([each.job.id for each in (await take(store, 1)).jobs], [urgent], "the first one")
    equal(keys(await take(store, 1)), ["a"], "the second one")


@case
async def caps_hold_for_limited_jobs(store: Store) -> None:
    """The cap of a queue, of the cluster, and of a type in one worker."""
    await declare(store, 50)
    await store.create(*[job() for _ in range(9)])
    types = TypeLimit("task", 1_000_000, LEASE, (NAME,))
    equal(len((await store.claim(request(queue(types, max_concurrency=2)))).jobs), 2, "the cap of a queue")
    equal(len((await store.claim(request(queue(types, name="other"), cluster_cap=5))).jobs), 3, "the cluster's cap")
    one = TypeLimit("task", 1, LEASE, (NAME,))
    equal(len((await store.claim(request(queue(one, name="other")))).jobs), 1, "the limit of a type")


@case
async def the_newest_declaration_holds(store: Store) -> None:
    """An older one that is repeated does not undo it, unless it was gone for a while."""
    await declare(store, 1)
    await store.elapse(0.002)
    await declare(store, 3)
    await store.elapse(0.002)
    await declare(store, 1)
    await store.create(*[job() for _ in range(5)])
    equal(len((await take(store)).jobs), 3, "jobs by the newer declaration")
    await store.declare_limits(["task"], DeclaredLimit(NAME, LimitRule(5), ("task",)))
    equal(len((await take(store)).jobs), 2, "jobs by the newest declaration")


@case
async def going_back_to_an_older_declaration(store: Store) -> None:
    """One that was not seen for long enough is the newest, if it comes again."""
    await declare(store, 1)
    await store.elapse(0.01)
    await declare(store, 4)
    await store.elapse(0.05)
    await store.declare_limits(["task"], DeclaredLimit(NAME, LimitRule(1), ("task",)), alive_for=0.01)
    await store.create(*[job() for _ in range(5)])
    equal(len((await take(store)).jobs), 1, "jobs by the declaration that came again")


@case
async def known_limits_of_types(store: Store) -> None:
    """What is stored for a type is known to all that ask, even if they do not declare it."""
    await declare(store, 1, types=["one", "two"])
    known = await store.declare_limits(["two", "three"])
    equal([(each.name, each.types) for each in known], [(NAME, ("one", "two"))], "the known limits")
    equal(await store.declare_limits(["three"]), [], "limits of another type")


@driver_case
async def a_limit_is_changed_at_run_time(store: Store) -> None:
    """For one key or for all; running jobs go on; clearing undoes it."""
    await declare(store, 1)
    await store.create(*[job(key) for key in "aaaaabbbbb"])
    await take(store)
    await store.set_limit(NAME, None, {"concurrency": 2})
    equal(sorted(keys(await take(store))), ["a", "b"], "after the limit of all keys was raised")
    await store.set_limit(NAME, "a", {"concurrency": 4})
    equal(keys(await take(store)), ["a", "a"], "after the limit of one key was raised")
    await store.set_limit(NAME, "a", {"concurrency": 1})
    equal(keys(await take(store)), [], "after it was lowered")
    check(await store.clear_limit(NAME, "a"), "something was set")
    check(not await store.clear_limit(NAME, "a"), "nothing is set any more")
    rows = {each.key: each for each in await store.limits()}
    equal({key: (row.running, row.waiting, row.rule.concurrency, row.is_set) for key, row in rows.items()},
          {None: (6, 0, 2, True), "a": (4, 1, 2, False), "b": (2, 3, 2, False)}, "the list")  # fmt: skip


@case
async def a_limit_is_lowered_below_what_is_running(store: Store) -> None:
    """While its key could still begin more."""
    await declare(store, 5)
    await store.create(*[job() for _ in range(9)])
    first = (await take(store, 3)).jobs
    await store.set_limit(NAME, "a", {"concurrency": 1})
    equal((await take(store)).jobs, [], "jobs beyond the new limit")
    await store.settle(*[completed(each) for each in first])
    equal(len((await take(store)).jobs), 1, "jobs by the new limit")


@case
async def the_list_has_pages(store: Store) -> None:
    """Sorted by name and key; a limit comes before its keys."""
    await declare(store, 1)
    await store.create(*[job(key) for key in ("b", "", "a")])
    await store.set_limit(NAME, "c", {"concurrency": 7})
    rows = [(each.name, each.key) for each in await store.limits()]
    equal(rows, [(NAME, None), (NAME, ""), (NAME, "a"), (NAME, "b"), (NAME, "c")], "all rows")
    pages, after = list[tuple[str, str | None]](), None
    while page := await store.limits(2, after):
        after = (page[-1].name, page[-1].key)
        pages += [(each.name, each.key) for each in page]
    equal(pages, rows, "the same in pages of two")


@case
async def an_open_change_stops_no_claim(store: Store) -> None:
    """Neither a change of the limit nor a start that is not committed makes a claim wait."""
    if store.single_writer:
        return
    await declare(store, 1)
    await store.create(*[job() for _ in range(3)])
    other = await store.second()
    async with store.transaction() as tx:
        await store.set_limit(NAME, None, {"concurrency": 2}, tx=tx)
        await store.create(job(), tx=tx)
        result = await asyncio.wait_for(take(other), 10)
        equal(len(result.jobs), 1, "jobs that were claimed meanwhile")
    equal(len((await take(store)).jobs), 1, "jobs after the commit")


@case
async def claims_at_once_keep_the_limit(store: Store) -> None:
    """Many claims and ends at once, on the same few keys."""
    await declare(store, 2)
    await store.create(*[job(f"k{number % 3}") for number in range(60)])
    others = [store, await store.second()]
    highest, done = Counter[str](), 0
    while done < 60:
        results = await asyncio.gather(*[take(each, 5) for each in others])
        claimed = [each for result in results for each in result.jobs]
        running = await store.list_jobs(statuses=("running",))
        highest |= Counter(each.lane for each in running if each.lane is not None)
        await asyncio.gather(*[store.settle(completed(each)) for each in claimed])
        done += len(claimed)
    check(max(highest.values()) <= 2, f"at most 2 may run at once, saw {highest}")


@case
async def how_a_key_is(store: Store) -> None:
    """What holds for it, how many run, which ones, and how many wait."""
    await declare(store, 2)
    await store.create(*[job() for _ in range(5)])
    held = tuple(each.job.id for each in (await take(store)).jobs)
    row = await store.get_limit(NAME, "a")
    equal((row.name, row.key, row.rule.concurrency, row.running, row.waiting), (NAME, "a", 2, 2, 3), "the key")
    equal(sorted(row.held_by), sorted(held), "the jobs that hold it")
    row = await store.get_limit("unknown", "x")
    equal((row.rule, row.running, row.waiting), (LimitRule(), 0, 0), "a key that nothing is known of")
