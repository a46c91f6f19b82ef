"""pause, resume and list_pauses: what claims leave out."""

from __future__ import annotations

from queuert.records.model import When
from queuert.records.pauses import Pause, PauseTarget
from queuert_conformance.checks import check, equal, present
from queuert_conformance.state.build import FUTURE, HOUR, PAST, later, new_job, queue, request
from queuert_conformance.state.claim import ids
from queuert_conformance.state.claim_caps import ready
from queuert_conformance.state.claim_order import taken
from queuert_conformance.state.concurrency import expect_waiting, quick_unless_single_writer
from queuert_conformance.state.limits import declare, job, keys, lane, take
from queuert_conformance.state.store import Store, case, driver_case

TASKS = PauseTarget("type", "task")
QUEUE = PauseTarget("queue", "queue")
EVERYTHING = PauseTarget("everything")


def targets(pauses: list[Pause] | tuple[Pause, ...]) -> list[PauseTarget]:
    return [each.target for each in pauses]


@driver_case
async def a_pause_as_it_is_stored(store: Store) -> None:
    """A pause has all that it was made with, and the time by the database's clock."""
    made = await store.pause(TASKS, until=When(at=FUTURE), reason='it is "down" €', by="me", cancel_running=True)
    equal((made.target, made.until, made.reason, made.by, made.cancel_running),
          (TASKS, FUTURE, "it is \"down\" €", "me", True), "the pause")  # fmt: skip
    equal(await store.pauses(), [made], "listed")
    plain = await store.pause(EVERYTHING)
    equal((plain.until, plain.reason, plain.by, plain.cancel_running), (None, None, None, False), "a plain one")
    check(made.since <= plain.since, "the first one is older")


@case
async def a_paused_type_is_not_claimed(store: Store) -> None:
    """No claim takes jobs of a paused type until it is resumed. Others are claimed."""
    paused, others = await ready(store, "task", 2), await ready(store, "other", 2)
    made = await store.pause(TASKS)
    for claim in (queue("task", "other"), queue("task", "other", max_concurrency=9), queue("task", "other", limit=7)):
        async with store.rolled_back() as tx:
            result = await store.claim(request(claim), tx=tx)
            equal((ids(result), result.more, result.paused), (others, False, (made,)), "claimed jobs")
    equal(await taken(store, request(queue("task"))), ([], False), "of the type alone")
    equal(await store.resume(TASKS), made, "what was resumed")
    result = await store.claim(request(queue("task")))
    equal((ids(result), result.paused), (paused, ()), "claimed after it was resumed")


@driver_case
async def a_paused_key_is_not_claimed(store: Store) -> None:
    """No job of a paused key begins until it is resumed. Other keys go on."""
    await declare(store, 1)
    await store.create(job("a"), job("b"))
    target = PauseTarget("key", lane("a"))
    made = await store.pause(target)
    equal(keys(await take(store)), ["b"], "claimed keys")
    equal(await store.resume(target), made, "what was resumed")
    equal(keys(await take(store)), ["a"], "claimed after it was resumed")


@case
async def a_paused_queue_is_not_claimed(store: Store) -> None:
    """A pause of a queue is about what would be claimed through it, whatever its types are."""
    (job,) = await ready(store, "task", 1)
    made = await store.pause(QUEUE)
    result = await store.claim(request(queue("task")))
    equal((ids(result), result.paused), ([], (made,)), "through the queue")
    result = await store.claim(request(queue("task", name="other")))
    equal((ids(result), result.paused), ([job], ()), "through another one")


@case
async def a_queue_is_not_a_type(store: Store) -> None:
    """A type and a queue of the same name are different targets."""
    (job,) = await ready(store, "task", 1)
    await store.pause(PauseTarget("queue", "task"))
    await store.pause(PauseTarget("type", "queue"))
    equal(await store.resume(TASKS), None, "resumed")
    equal(await taken(store, request(queue("task"))), ([job], False), "claimed jobs")


@case
async def everything_but_our_own_types(store: Store) -> None:
    """A pause of everything leaves out types whose names begin with "queuert."."""
    await ready(store, "task", 1)
    (own,) = await ready(store, "queuert.own", 1)
    await ready(store, "queuertly", 1)
    made = await store.pause(EVERYTHING)
    result = await store.claim(request(queue("queuert.own", "task", "queuertly")))
    equal((ids(result), result.paused), ([own], (made,)), "claimed jobs")
    result = await store.claim(request(queue("queuert.own")))
    equal(result.paused, (), "not in the way of our own")


@case
async def pauses_are_independent(store: Store) -> None:
    """A job is paused as long as one pause covers it. They are sorted by scope and name."""
    (job,) = await ready(store, "task", 1)
    for target in (TASKS, QUEUE, EVERYTHING, PauseTarget("type", "Zebra")):
        await store.pause(target)
    equal(targets(await store.pauses()), [EVERYTHING, QUEUE, PauseTarget("type", "Zebra"), TASKS], "listed")
    result = await store.claim(request(queue("task")))
    equal(targets(result.paused), [EVERYTHING, QUEUE, TASKS], "those in the way")
    for target in (TASKS, EVERYTHING):
        check(await store.resume(target) is not None, "it was paused")
        equal(await taken(store, request(queue("task"))), ([], False), "while another pause covers it")
    await store.resume(QUEUE)
    equal(await taken(store, request(queue("task"))), ([job], False), "claimed jobs")


@case
async def pausing_again(store: Store) -> None:
    """A target that is paused already gets the new values and keeps its beginning."""
    first = await store.pause(TASKS, until=later(), reason="one", by="me", cancel_running=True)
    second = await store.pause(TASKS, reason="two")
    equal(second, Pause(TASKS, first.since, None, "two"), "the second pause")
    equal(await store.pauses(), [second], "listed")


@driver_case
async def resuming_what_is_not_paused(store: Store) -> None:
    """Resuming returns the pause once, and None if there is none or if it has ended."""
    made = await store.pause(TASKS)
    equal(await store.resume(QUEUE), None, "another target")
    equal(await store.resume(TASKS), made, "the target")
    equal(await store.resume(TASKS), None, "again")
    await store.pause(TASKS, until=When(at=PAST))
    equal(await store.resume(TASKS), None, "one that has ended")
    equal(await store.pauses(), [], "listed")


@case
async def a_pause_ends_by_itself(store: Store) -> None:
    """From its end on, a pause has no effect. A later one of the target begins anew."""
    (job,) = await ready(store, "task", 1)
    old = await store.pause(TASKS, until=later())
    equal((await store.claim()).jobs, [], "while it lasts")
    await store.pause(TASKS, until=When(after=0.05))
    await store.elapse(0.1)
    equal(await store.pauses(), [], "listed after its end")
    new = await store.pause(TASKS)
    check(new.since > old.since, "the second pause begins anew")
    await store.pause(TASKS, until=When(after=0))
    result = await store.claim()
    equal((ids(result), result.paused), ([job], ()), "claimed after its end")


@case
async def when_to_look_again(store: Store) -> None:
    """`next_in` leaves out jobs that are paused, and includes the end of the pause."""
    await store.create(new_job("task", schedule=later(100)), new_job("other", schedule=later(10_000)))
    both = request(queue("task", "other"))
    for until, least, most in ((None, 9_000, 10_000), (later(1_000), 900, 1_000), (later(20_000), 9_000, 10_000)):
        await store.pause(TASKS, until=until)
        found = present((await store.claim(both)).next_in, "seconds")
        check(least < found <= most, f"a claim must say about {most} s, got {found}")
        available = await store.available(["task", "other"], ["queue", "queue"])
        found = present(available.next_in, "seconds")
        check(least < found <= most, f"next_available_in must say about {most} s, got {found}")
        equal(targets(available.paused), [TASKS], "pauses in the way")
    await store.pause(EVERYTHING)
    await store.pause(TASKS)
    equal((await store.claim(both)).next_in, None, "seconds, with everything paused")
    equal((await store.available(["task"])).next_in, None, "the same of next_available_in")


@case
async def what_is_available(store: Store) -> None:
    """next_available_in leaves out ready jobs that are paused, by their types and queues."""
    await ready(store, "task", 1)
    made = await store.pause(QUEUE)
    equal((await store.available(["task"])).next_in, 0, "without queues")
    found = await store.available(["task"], ["queue"])
    equal((found.next_in, found.paused), (None, (made,)), "with the queue")
    equal((await store.available(["task"], ["other"])).next_in, 0, "with another queue")
    await ready(store, "other", 1)
    found = await store.available(["task", "other"], ["queue", "other"])
    equal((found.next_in, found.paused), (0, (made,)), "with a type that is not paused")


@case
async def more_leaves_out_what_is_paused(store: Store) -> None:
    """Jobs that are paused are not `more`."""
    await ready(store, "task", 3)
    await ready(store, "other", 2)
    await store.pause(TASKS)
    result = await store.claim(request(queue("task", "other"), limit=1))
    equal((len(result.jobs), result.more), (1, True), "one of two")
    result = await store.claim(request(queue("task", "other"), limit=1))
    equal((len(result.jobs), result.more), (1, False), "two of two")


@case
async def running_and_new_jobs_are_not_touched(store: Store) -> None:
    """While a type is paused, its jobs are stored, renewed, settled and reaped as ever."""
    claimed = await store.running(lease=0)
    await store.pause(EVERYTHING)
    await store.start()
    equal(await store.job(claimed.job.id), claimed.job, "the running job")
    equal(len(await store.reap("task")), 1, "reaped jobs")
    equal((await store.claim()).jobs, [], "claimed jobs")
    await store.resume(EVERYTHING)
    equal(len((await store.claim()).jobs), 2, "claimed afterwards")


@driver_case
async def a_pause_is_part_of_its_transaction(store: Store) -> None:
    """A pause that is not committed holds back no other claim, and is gone after a rollback."""
    other = await store.second()
    (job,) = await ready(store, "task", 1)
    async with store.rolled_back() as tx:
        made = await store.pause(TASKS, tx=tx)
        equal(await store.pauses(tx=tx), [made], "inside")
        claiming = store.spawn(other.claim())
        await quick_unless_single_writer(store, claiming, "a claim")
    equal(ids(await claiming), [job], "claimed by another")
    equal(await store.pauses(), [], "after the rollback")


@case
async def a_claim_that_waits_for_its_cap_heeds_it(store: Store) -> None:
    """A pause that is committed while a claim waits for its turn under a cap holds for it."""
    other, third = await store.second(), await store.second()
    await ready(store, "task", 6)
    capped = request(queue("task", max_concurrency=5))
    async with store.transaction() as tx:
        await store.claim(request(queue("task", max_concurrency=5), limit=1), tx=tx)
        claiming = store.spawn(other.claim(capped))
        await expect_waiting(claiming, "a claim under the same cap")
        pausing = store.spawn(third.pause(TASKS))
        await quick_unless_single_writer(store, pausing, "the pause")
    made = await pausing
    result = await claiming
    if result.jobs:  # with a single writer, the claim may come first
        equal(result.paused, (), "a claim before the pause")
    else:
        equal(result.paused, (made,), "a claim after the pause")


@case
async def what_is_paused_keeps_its_place(store: Store) -> None:
    """Jobs that became due during a pause are claimed in their order afterwards."""
    await store.pause(TASKS, until=later(HOUR))
    jobs = [new_job(priority=priority, schedule=When(after=0.01)) for priority in (3, 1, 2)]
    await store.create(*jobs)
    await store.elapse(0.05)
    equal((await store.claim()).jobs, [], "while it lasts")
    await store.resume(TASKS)
    equal(await taken(store, request()), ([jobs[1].id, jobs[2].id, jobs[0].id], False), "claimed jobs")
