"""Unblocking along chains: only the end of a chain unblocks. Continuations can be blocked."""

from __future__ import annotations

from collections.abc import Sequence

from queuert_conformance.checks import check, equal
from queuert_conformance.state.build import completed, continued, new_id, next_job, waiting_for
from queuert_conformance.state.store import Store, case
from queuert_conformance.state.unblock import SOURCE, behind, freed, sources


@case
async def freedom_is_not_passed_on(store: Store) -> None:
    """An unblocked job has not completed: the jobs that wait for its chain stay blocked."""
    (source,) = await sources(store, 1)
    middle = await store.start("middle", **behind(source))
    last = await store.start(blockers=waiting_for(middle, chain_type="middle"))
    equal(freed(await store.finish(source)), [middle], "unblocked by the first")
    equal(await store.statuses(middle, last), ["pending", "blocked"], "statuses")
    equal(freed(await store.finish(middle)), [last], "unblocked by the second")


@case
async def a_whole_line_in_one_call(store: Store) -> None:
    """A chain and one that waits for it may complete in one call, and unblock a third."""
    (source,) = await sources(store, 1)
    middle = await store.start(SOURCE, **behind(source))
    last = await store.start(**behind(source, middle))
    settled = await store.settle(completed(source), completed(middle))
    equal(settled.applied, [True, True], "applied")
    equal(await store.statuses(source, middle, last), ["completed", "completed", "pending"], "statuses")
    check(last in freed(settled), "the last job must be reported as unblocked")


@case
async def a_continuation_does_not_free(store: Store) -> None:
    """Only the end of a chain unblocks: a job that is continued does not."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    claimed = await store.claim_one(SOURCE)
    settled = await store.settle(continued(claimed, next_job(claimed.job, "second")))
    equal((freed(settled), await store.statuses(job)), ([], ["blocked"]), "after the continuation")
    settled = await store.settle(completed(await store.claim_one("second")))
    equal((freed(settled), await store.statuses(job)), ([job], ["pending"]), "after the end")


@case
async def a_continuation_may_be_blocked(store: Store) -> None:
    """A continuation with an open blocker is blocked, and unblocked like any other job."""
    (source,) = await sources(store, 1)
    claimed = await store.running()
    following = next_job(claimed.job, **behind(source))
    (made,) = (await store.settle(continued(claimed, following))).created
    equal(made and (made.status, made.ready), ("blocked", False), "answer")
    chain = await store.chain(claimed.job.id)
    equal((chain.current.status, chain.current.blockers_left), ("blocked", 1), "the chain")
    equal(freed(await store.finish(source)), [following.id], "unblocked")
    equal([b.chain_id for b in (await store.claim_one()).blockers], [source], "blockers of the claimed job")


@case
async def blocked_by_a_chain_of_the_same_call(store: Store) -> None:
    """A continuation whose blocker completes in the same call is reported as ready."""
    for blocker_first in (True, False):
        (source,) = await sources(store, 1)
        claimed = await store.running()
        following = next_job(claimed.job, "next", **behind(source))
        items = [completed(source), continued(claimed, following)]
        settled = await store.settle(*(items if blocker_first else items[::-1]))
        equal(settled.applied, [True, True], "applied")
        row = await store.job(following.id)
        equal((row.status, row.blockers_left), ("pending", 0), "the continuation")
        made = [each for each in settled.created if each is not None]
        reported = [each.ready for each in made] + [each.ready for each in settled.unblocked]
        equal(sum(reported), 1, "reports that the continuation is ready")


@case
async def a_chain_created_behind_a_continuation(store: Store) -> None:
    """Dependents that are added at any step of a chain are unblocked by its end."""
    claimed = await store.running(SOURCE)
    dependents: list[str] = [await store.start("dependent", **behind(claimed.job.id))]
    for _ in range(3):
        await store.settle(continued(claimed, next_job(claimed.job)))
        claimed = await store.claim_one(claimed.job.type_name)
        dependents.append(await store.start("dependent", **behind(claimed.job.chain_id)))
    equal(freed(await store.settle(completed(claimed))), sorted(dependents), "unblocked")


@case
async def chains_without_dependents_free_nobody(store: Store) -> None:
    """Completing unrelated chains reports nothing, and neither does an unknown one."""
    ids: Sequence[str] = await sources(store, 2)
    settled = await store.settle(*(completed(each) for each in (*ids, new_id())))
    equal((settled.applied, settled.unblocked), ([True, True, False], []), "answer")


@case
async def blocked_by_a_chain_that_goes_on_in_the_same_call(store: Store) -> None:
    """A continuation is blocked if its blocking chain is continued in the same call."""
    for blocker_first in (True, False):
        (source,) = await sources(store, 1)
        handing_over = await store.claim_one(SOURCE)
        claimed = await store.running()
        following = next_job(claimed.job, "next", **behind(source))
        items = [continued(handing_over, next_job(handing_over.job, "second")), continued(claimed, following)]
        settled = await store.settle(*(items if blocker_first else items[::-1]))
        equal(settled.applied, [True, True], "applied")
        equal(await store.statuses(following.id), ["blocked"], "while the blocking chain continues")
        equal(
            freed(await store.settle(completed(await store.claim_one("second")))),
            [following.id],
            "unblocked at its end",
        )
