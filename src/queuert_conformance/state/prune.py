"""store_policies, prune and retention: what is deleted in time; settlements that delete."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from queuert.base.statuses import Status
from queuert.records.dedup import Dedup
from queuert.records.model import When
from queuert.records.retention import LOOK_AGAIN, KeepPolicy, PruneRequest
from queuert_conformance.checks import check, equal, present, sooner_than
from queuert_conformance.state.build import (
    HOUR,
    TASK,
    cancelled,
    completed,
    continued,
    end_as,
    failed,
    later,
    new_ids,
    next_job,
    put_back,
    waiting_for,
)
from queuert_conformance.state.concurrency import quick_unless_single_writer
from queuert_conformance.state.store import Store, case, driver_case

ENDS: tuple[Status, ...] = ("completed", "failed", "cancelled", "expired")


def keep(type_name: str = TASK, **kept: float | None) -> KeepPolicy:
    """A policy that keeps for ever what is not named."""
    times = [kept.get(status) for status in ENDS]
    return KeepPolicy(type_name, times[0], times[1], times[2], times[3])


def archived(type_name: str = TASK, *, months: int | None = None, **kept: float | None) -> KeepPolicy:
    """The same, for chains that are archived."""
    return replace(keep(type_name, **kept), archived=True, months=months)


def short(type_name: str = TASK) -> KeepPolicy:
    """A policy that keeps nothing."""
    return keep(type_name, completed=0.0, failed=0.0, cancelled=0.0, expired=0.0)


async def ended(store: Store, status: Status = "completed", type_name: str = TASK, **fields: object) -> str:
    """A chain that has ended."""
    chain_id = await store.start(type_name, **fields)
    await store.settle(end_as(status, chain_id))
    return chain_id


async def stored(store: Store, *chain_ids: str) -> list[bool]:
    return [row is not None for row in await store.chains(*chain_ids)]


@driver_case
async def a_policy_as_it_is_stored(store: Store) -> None:
    """A policy is written once. Another one for the same type replaces it."""
    first, second = keep("b", completed=0.5, failed=HOUR, expired=2 * HOUR), archived("a", months=3, cancelled=7.25)
    equal(await store.keep(first, second), ["b", "a"], "the new ones")
    equal(await store.keep(first, second), [], "again")
    before = await store.retention()
    equal([each.policy for each in before.types], [second, first], "stored")
    changed = keep("b", completed=None, failed=HOUR)
    equal(await store.keep(second, changed), ["b"], "the changed one")
    after = await store.retention()
    equal([each.policy for each in after.types], [second, changed], "stored now")
    equal(after.types[0].stored_at, before.types[0].stored_at, "when the other one was stored")
    equal(await store.keep(), [], "none")


@case
async def nothing_without_a_policy(store: Store) -> None:
    """Chains of a type without a stored policy are not deleted, nor those kept for ever."""
    task, other = await ended(store), await ended(store, type_name="other")
    equal((await store.prune(lap_every=0.0)).deleted, 0, "deleted without a policy")
    await store.keep(keep(), keep("third", completed=0.0))
    equal((await store.prune(lap_every=0.0)).deleted, 0, "deleted of a type that is kept for ever")
    equal(await stored(store, task, other), [True, True], "stored")


@driver_case
async def what_is_due_is_deleted(store: Store) -> None:
    """Each end has its own time. Chains that have not ended stay. The answer counts by type."""
    await store.keep(keep(completed=0.0, cancelled=0.0), keep("other", completed=HOUR, failed=0.0, expired=0.0))
    gone = [await ended(store, "completed"), await ended(store, "cancelled"), await ended(store, "failed", "other")]
    gone.append(await ended(store, "expired", "other"))
    kept = [await ended(store, "failed"), await ended(store, "expired"), await ended(store, "completed", "other")]
    kept += [await ended(store, "cancelled", "other"), await store.start(), await store.start(schedule=later())]
    pruned = await store.prune()
    equal(dict(pruned.chains), {"other": 2, TASK: 2}, "chains by type")
    equal((pruned.jobs, pruned.more, pruned.busy), (4, False, False), "jobs, more and busy")
    equal(await stored(store, *gone), [False] * 4, "what was due")
    equal(await stored(store, *kept), [True] * 6, "what was not")
    equal((await store.prune()).deleted, 0, "deleted again")


@case
async def by_its_end(store: Store) -> None:
    """The time counts from the end of the chain, and is that of its first job's type."""
    await store.keep(keep(completed=HOUR / 2), keep("next", completed=0.0))
    claim = await store.running()
    following = next_job(claim.job, "next")
    await store.settle(continued(claim, following))
    await store.elapse(0.05)
    await store.prune(lap_every=0.0, restart=True)
    check(all(await stored(store, claim.job.id)), "the chain goes on")
    await store.settle(completed(await store.claim_one("next")))
    await store.prune(lap_every=0.0, restart=True)
    equal(await stored(store, claim.job.id), [True], "before its time")
    await store.keep(keep(completed=0.0))
    pruned = await store.prune(lap_every=0.0, restart=True)
    equal((pruned.deleted, pruned.jobs), (1, 2), "chains and jobs")
    equal(await store.statuses(claim.job.id, following.id), [None, None], "its jobs")


@case
async def how_late_it_is(store: Store) -> None:
    """A step that has more to come tells how late it is, and for how long such chains are kept."""
    await store.keep(keep(completed=0.25, failed=HOUR))
    for _ in range(3):
        await ended(store)
    await store.elapse(0.5)
    first = await store.prune(1)
    check(first.more and 0.0 < first.behind < HOUR and first.took >= 0.0, f"more, late, took: {first}")
    equal(first.kept, 0.25, "kept for")
    last = await store.prune(10)
    equal((last.more, last.behind, last.kept), (False, 0.0, 0.0), "more, late and kept for, at the end")
    await store.start()
    await store.elapse(0.5)
    await store.prune(10)
    await store.elapse(1.5)
    noted = await store.prune(1)
    check(noted.more and 0.0 < noted.behind < HOUR, f"more and late, by a note: {noted}")


@case
async def in_small_steps(store: Store) -> None:
    """A step looks at a few chains, tells that there are more, and the next one goes on."""
    await store.keep(short())
    ids = [await ended(store) for _ in range(5)]
    steps = [await store.prune(2) for _ in range(3)]
    equal([(step.deleted, step.examined, step.more) for step in steps], [(2, 2, True), (2, 2, True), (1, 1, False)],
          "deleted, examined and more")  # fmt: skip
    equal(await stored(store, *ids), [False] * 5, "all are gone")


@case
async def what_was_passed_is_noted(store: Store) -> None:
    """A chain that the walk has passed is looked at again when its time comes, without a lap."""
    await store.keep(keep(completed=0.0, failed=0.2))
    with sooner_than(0.2):
        waits = await ended(store, "failed")
        equal((await store.prune()).deleted, 0, "deleted before its time")
    equal((await store.retention()).noted, 1, "noted")
    await store.elapse(0.3)
    equal((await store.prune()).deleted, 1, "deleted after its time")
    equal((await stored(store, waits), (await store.retention()).noted), ([False], 0), "stored, and noted")


@case
async def what_appears_behind_the_walk(store: Store) -> None:
    """A lap finds chains with ids that were passed, and ids that do not tell their time."""
    early, middle, late = new_ids(3)
    await store.keep(short())
    await ended(store, id=middle)
    equal((await store.prune()).deleted, 1, "deleted by the walk")
    strange = str(UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479"))
    for chain_id in (early, strange):
        await ended(store, id=chain_id)
    equal((await store.prune()).deleted, 0, "deleted by the walk, behind it")
    await ended(store, id=late)
    pruned = await store.prune(lap_every=0.0)
    equal((pruned.deleted, pruned.lap), (3, False), "deleted with a lap, and whether that goes on")
    equal(await stored(store, early, strange, late), [False] * 3, "stored")


@case
async def a_lap_in_steps(store: Store) -> None:
    """A lap goes on where it was, through all types, and the next one begins some time later."""
    await store.keep(keep(completed=HOUR), keep("a", completed=HOUR), keep("z", completed=0.0))
    for type_name in (TASK, "a", TASK):
        await ended(store, type_name=type_name)
    steps = [await store.prune(2, lap_every=HOUR) for _ in range(3)]
    equal([(step.examined, step.lap) for step in steps], [(2, True), (1, False), (0, False)], "examined, and under way")
    progress = await store.retention()
    check(present(progress.lap_began_at, "when the lap began") <= present(progress.lap_ended_at, "its end"), "times")
    equal((await store.prune(2, lap_every=HOUR, restart=True)).examined, 2, "examined by a new lap")
    equal((await store.retention()).lap_ended_at, None, "its end")


@case
async def another_policy_begins_anew(store: Store) -> None:
    """A policy that keeps less than before applies to chains that the walk has passed."""
    await store.keep(keep(completed=0.0))
    passed = await ended(store, "failed")
    equal((await store.prune()).deleted, 0, "deleted by the first policy")
    await store.keep(keep(completed=0.0, failed=0.0))
    equal((await store.prune()).deleted, 1, "deleted by the second one")
    equal(await stored(store, passed), [False], "stored")


@case
async def another_policy_and_what_is_noted(store: Store) -> None:
    """The walk begins anew and finds a chain whose note is due in the same step."""
    await store.keep(keep(completed=0.0))
    waits = await store.start()
    equal((await store.prune()).examined, 1, "examined")
    await store.elapse(LOOK_AGAIN + 0.2)
    await store.keep(keep(completed=0.0, failed=0.0))
    gone = await ended(store, "failed")
    equal((await store.prune()).deleted, 1, "deleted")
    equal(((await store.retention()).noted, await stored(store, waits, gone)), (1, [True, False]), "noted, and stored")


@case
async def a_chain_that_goes_on(store: Store) -> None:
    """A chain that was retried after its end stays, although it was noted or passed."""
    await store.keep(keep(failed=0.0, completed=0.0))
    claim = await store.running()
    await store.settle(failed(claim))
    await store.retry(claim.job.id)
    equal((await store.prune(lap_every=0.0)).deleted, 0, "deleted while it is pending")
    claim = await store.claim_one()
    equal((await store.prune(lap_every=0.0)).deleted, 0, "deleted while it runs")
    await store.settle(put_back(claim, schedule=When(after=HOUR)))
    equal((await store.prune(lap_every=0.0)).deleted, 0, "deleted while it waits for its next attempt")


@case
async def one_at_a_time(store: Store) -> None:
    """A step that another one is in the way of returns at once, and says that it did nothing."""
    await store.keep(short())
    await store.prune()
    chain_id = await ended(store)
    other = await store.second()
    async with store.transaction() as tx:
        await store.driver.run(store.operations.prune(prune_request()), tx)
        second = store.spawn(other.prune())
        await quick_unless_single_writer(store, second, "a second step")
        refused = second.done()
    equal((await second).busy, refused, "the second step is busy")
    equal(await stored(store, chain_id), [False], "stored")


@case
async def a_step_that_is_rolled_back(store: Store) -> None:
    """Deletions and progress are one: after a rollback the next step does the same again."""
    await store.keep(short())
    chain_id = await ended(store)
    async with store.rolled_back() as tx:
        await store.driver.run(store.operations.prune(prune_request()), tx)
    equal(await stored(store, chain_id), [True], "stored after the rollback")
    equal((await store.prune()).deleted, 1, "deleted by the next step")


def prune_request() -> PruneRequest:
    return PruneRequest(100, exact=True)


@driver_case
async def a_settlement_that_deletes(store: Store) -> None:
    """With `discard`, a completed chain is deleted with all its jobs. Other ends are stored."""
    first, second = await store.running(), await store.running("other")
    following = next_job(first.job, "next", blockers=waiting_for(await ended(store)))
    await store.settle(continued(first, following), completed(second, discard=True))
    equal(await store.statuses(first.job.id, second.job.id), ["completed", None], "jobs")
    third, fourth = await store.claim_one("next"), await store.running("other")
    settled = await store.settle(completed(third, discard=True), failed(fourth))
    equal(settled.applied, [True, True], "applied")
    equal(await store.statuses(first.job.id, following.id, fourth.job.id), [None, None, "failed"], "jobs at the end")
    by_hand = await store.start()
    await store.settle(completed(by_hand, discard=True))
    equal(await store.statuses(by_hand), [None], "by hand")
    equal((await store.settle(completed(second, discard=True))).applied, [False], "a second time")


@case
async def a_settlement_that_must_not_delete(store: Store) -> None:
    """A chain that jobs have as a blocker, or that has a key, is completed like any other."""
    needed, keyed, plain = (
        await store.running("a"),
        await store.running("b", dedup=Dedup("key")),
        await store.running("c"),
    )
    waits = await store.start(blockers=waiting_for(needed.job.id, chain_type="a"))
    settled = await store.settle(*(completed(claim, discard=True) for claim in (needed, keyed, plain)))
    equal(settled.applied, [True] * 3, "applied")
    equal(await store.statuses(needed.job.id, keyed.job.id, plain.job.id), ["completed", "completed", None], "jobs")
    equal(await store.statuses(waits), ["pending"], "what waited")


@case
async def a_settlement_that_deletes_and_is_late(store: Store) -> None:
    """A settlement whose claim is lost deletes nothing, whatever else is settled with it."""
    lost, held = await store.running("a"), await store.running("b")
    await store.settle(put_back(lost))
    again = await store.claim_one("a")
    settled = await store.settle(completed(lost, discard=True), completed(held, discard=True))
    equal(settled.applied, [False, True], "applied")
    equal(await store.statuses(again.job.id, held.job.id), ["running", None], "jobs")
    settled = await store.settle(cancelled(again.job.id))
    equal(settled.applied, [True], "it can still be ended")
