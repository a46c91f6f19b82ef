"""failed_attempts: what is stored of attempts that failed or were lost."""

from __future__ import annotations

from collections.abc import Callable

from queuert.records.failed_attempts import KEPT, LONGEST_MESSAGE
from queuert.records.model import Claimed, Settlement
from queuert_conformance.checks import check, equal, only, present
from queuert_conformance.state.build import (
    ERROR,
    TASK,
    WORKER,
    completed,
    continued,
    expired,
    failed,
    given_back,
    next_job,
    put_back,
    queue,
    request,
    rescheduled,
)
from queuert_conformance.state.prune import short
from queuert_conformance.state.store import Store, case, driver_case


@driver_case
async def a_failed_attempt_as_it_is_stored(store: Store) -> None:
    """It has its number, its worker, its times, and the code and beginning of the message."""
    first = await store.running()
    await store.settle(put_back(first, b'{"code":"ONE","message":"\xe2\x82\xac' + b"x" * 999 + b'"}'))
    second = await store.claim_one()
    await store.settle(failed(second, b"[]"), completed(await store.running("other")))
    one, two = await store.attempts(first.job.id)
    equal((one.number, one.outcome, one.worker_id, one.code, one.message),
          (1, "failed", WORKER, "ONE", "€" + "x" * (LONGEST_MESSAGE - 1)), "the first one")  # fmt: skip
    equal(one.begun_at, first.job.last_attempt_at, "when it began")
    equal((two.number, two.outcome, two.code, two.message), (2, "failed", None, None), "the second one")
    check(present(one.begun_at, "begun") <= one.ended_at <= two.ended_at, "they are in their order")
    equal(await store.attempts(second.job.chain_id[:-1] + "x"), [], "of a job that does not exist")


@driver_case
async def a_lost_attempt(store: Store) -> None:
    """An attempt that is taken back because its lease has ended is lost."""
    claim = await store.running(lease=0.05)
    await store.elapse(0.1)
    await store.reap(TASK)
    lost = only(await store.attempts(claim.job.id), "attempts")
    equal((lost.number, lost.outcome, lost.worker_id, lost.code), (1, "lost", WORKER, "LEASE_EXPIRED"), "the attempt")
    equal(lost.begun_at, claim.job.last_attempt_at, "when it began")


@case
async def what_is_no_failed_attempt(store: Store) -> None:
    """Success, continuation, expiry, a run that does not count, and a lost claim store nothing."""
    ids: list[str] = []
    endings: list[Callable[[Claimed], Settlement]] = [completed, expired, given_back, rescheduled]
    for number, settlement in enumerate(endings):
        claim = await store.running(f"type-{number}")
        ids.append(claim.job.id)
        await store.settle(settlement(claim))
    claim = await store.running("first")
    following = next_job(claim.job)
    await store.settle(continued(claim, following))
    claim = await store.running("second")
    await store.settle(given_back(claim))
    await store.settle(put_back(claim))
    equal([await store.attempts(each) for each in (*ids, following.id, claim.job.id)], [[]] * 6, "attempts")


@case
async def one_that_had_not_begun(store: Store) -> None:
    """A job that is taken back before its handler can have begun has no attempt."""
    await store.register("w")
    await store.start()
    wanted = request(queue(TASK, lease=0.05), worker="w", at_once=0, first_ordinal=1)
    claim = only((await store.claim(wanted)).jobs, "claimed jobs")
    await store.elapse(0.1)
    equal(len(await store.reap(TASK)), 1, "taken back")
    equal(await store.attempts(claim.job.id), [], "attempts")


@case
async def the_last_ones_are_kept(store: Store) -> None:
    """Of many attempts, also after a retry by hand, the last ones are kept, the oldest first."""
    await store.start()
    for _ in range(KEPT):
        await store.settle(put_back(await store.claim_one()))
    claim = await store.claim_one()
    await store.settle(failed(claim))
    await store.retry(claim.job.id)
    await store.settle(put_back(await store.claim_one(), ERROR))
    equal([each.number for each in await store.attempts(claim.job.id)], [*range(3, KEPT + 2), 1], "their numbers")


@case
async def they_are_deleted_with_the_job(store: Store) -> None:
    """Deleting, pruning and settlements that delete take them away."""
    await store.keep(short())
    ids: list[str] = []
    for discard in (False, False, True):
        claim = await store.running()
        ids.append(claim.job.id)
        await store.settle(put_back(claim))
        await store.settle(completed(await store.claim_one(), discard=discard))
    equal([len(await store.attempts(each)) for each in ids], [1, 1, 0], "before")
    await store.delete(ids[0])
    await store.prune()
    equal([await store.attempts(each) for each in ids], [[], [], []], "after")
