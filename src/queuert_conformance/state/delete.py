"""delete_chains: what is deleted, and what is rejected."""

from __future__ import annotations

from queuert.base.statuses import Status
from queuert.records.model import ChainRow, Deleted
from queuert_conformance.checks import equal
from queuert_conformance.state.build import continued, end_as, failed, key, new_id, new_job, next_job, waiting_for
from queuert_conformance.state.store import Store, case, driver_case
from queuert_conformance.state.unblock import behind, sources

HARMLESS: tuple[Status, ...] = ("completed", "cancelled", "expired")


def gone(deleted: Deleted) -> list[str]:
    """The ids of the deleted chains, sorted. Fails if a chain is still needed."""
    equal(dict(deleted.waiting), {}, "chains that are still needed")
    return sorted(chain.first.id for chain in deleted.chains)


def needed(deleted: Deleted) -> dict[str, list[str]]:
    """Which jobs wait for which chains. Fails if something was deleted."""
    equal(deleted.chains, [], "deleted chains of a rejected call")
    return {chain_id: sorted(job_ids) for chain_id, job_ids in deleted.waiting.items()}


@case
async def a_chain_goes_with_all_its_jobs(store: Store) -> None:
    """A chain is deleted with all its jobs, and returned as it was."""
    claimed = await store.running()
    following = next_job(claimed.job)
    await store.settle(continued(claimed, following))
    kept = await store.start()
    before: ChainRow = await store.chain(claimed.job.id)
    deleted = await store.delete(claimed.job.id)
    equal((deleted.chains, dict(deleted.waiting)), ([before], {}), "answer")
    equal(await store.statuses(claimed.job.id, following.id, kept), [None, None, "pending"], "jobs")
    equal(await store.chains(claimed.job.id), [None], "the chain")
    equal([row.id for row in await store.list_jobs()], [kept], "listed jobs")


@case
async def chains_of_every_status(store: Store) -> None:
    """A chain may be deleted with any status."""
    (source,) = await sources(store, 1)
    blocked = await store.start(**behind(source))
    running, pending = (await store.running("run")).job.id, await store.start()
    ended = [await store.start() for _ in range(4)]
    statuses: tuple[Status, ...] = ("completed", "failed", "cancelled", "expired")
    await store.settle(*(end_as(status, job) for status, job in zip(statuses, ended, strict=True)))
    jobs = [blocked, running, pending, *ended]
    equal(gone(await store.delete(*jobs)), sorted(jobs), "deleted")
    equal([row.id for row in await store.list_jobs()], [source], "what is left")


@case
async def unknown_ids_are_passed_over(store: Store) -> None:
    """Ids that are not chain ids are skipped: unknown ones, later jobs, deleted chains."""
    claimed = await store.running()
    following = next_job(claimed.job)
    await store.settle(continued(claimed, following))
    other = await store.start()
    equal(gone(await store.delete(new_id(), following.id, other)), [other], "deleted")
    equal(gone(await store.delete(other)), [], "deleted a second time")
    equal(await store.statuses(claimed.job.id, following.id), ["completed", "pending"], "the other chain")


@case
async def an_id_twice_is_one_chain(store: Store) -> None:
    """The same id twice in a call deletes its chain once."""
    chain = await store.start()
    equal(gone(await store.delete(chain, chain)), [chain], "deleted")


@driver_case
async def a_chain_that_is_waited_for_stays(store: Store) -> None:
    """If a job outside the call waits for a chain, nothing is deleted. The result names it."""
    first, second = await sources(store, 2)
    one, two = await store.start(**behind(first)), await store.start(**behind(second, first))
    free = await store.start()
    deleted = await store.delete(free, first, second)
    equal(needed(deleted), {first: sorted([one, two]), second: [two]}, "waiting")
    wanted = ["pending", "pending", "pending", "blocked", "blocked"]
    equal(await store.statuses(first, second, free, one, two), wanted, "statuses")


@case
async def jobs_that_may_still_read_it_count(store: Store) -> None:
    """A dependent that is blocked, pending, running or failed needs its blocker."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    equal(needed(await store.delete(source)), {source: [job]}, "while blocked")
    await store.finish(source)
    equal(needed(await store.delete(source)), {source: [job]}, "while pending")
    claimed = await store.claim_one()
    equal(needed(await store.delete(source)), {source: [job]}, "while running")
    await store.settle(failed(claimed))
    equal(needed(await store.delete(source)), {source: [job]}, "while failed")


@case
async def jobs_that_are_over_do_not_count(store: Store) -> None:
    """A dependent that is completed, cancelled or expired does not need its blocker."""
    for status in HARMLESS:
        (source,) = await sources(store, 1)
        job = await store.start(**behind(source))
        await store.finish(source)
        await store.settle(end_as(status, job))
        equal(gone(await store.delete(source)), [source], f"deleted, with a {status} dependent")
        equal(await store.statuses(source, job), [None, status], "jobs")
        equal(await store.blockers(job), [[]], "blockers of the dependent: the edge is gone")


@case
async def a_later_job_of_a_chain_counts(store: Store) -> None:
    """A continuation that waits needs its blocker too."""
    (source,) = await sources(store, 1)
    claimed = await store.running()
    following = next_job(claimed.job, **behind(source))
    await store.settle(continued(claimed, following))
    equal(needed(await store.delete(source)), {source: [following.id]}, "waiting")
    equal(gone(await store.delete(source, claimed.job.id)), sorted([source, claimed.job.id]), "both")


@case
async def an_earlier_job_that_handed_over_does_not_count(store: Store) -> None:
    """A dependent that was continued is completed: it no longer needs its blocker."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    await store.finish(source)
    claimed = await store.claim_one()
    await store.settle(continued(claimed, next_job(claimed.job)))
    equal(gone(await store.delete(source)), [source], "deleted")
    equal(await store.statuses(job), ["completed"], "the dependent")


@case
async def together_with_those_that_wait(store: Store) -> None:
    """A chain can be deleted in one call with everything that waits for it, in any order."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    other = await store.start("other", blockers=waiting_for(job))
    equal(needed(await store.delete(source, job)), {job: [other]}, "waiting")
    equal(gone(await store.delete(other, source, job)), sorted([source, job, other]), "deleted")
    equal(await store.list_jobs(), [], "stored jobs")


@case
async def the_dependent_alone(store: Store) -> None:
    """Deleting a dependent keeps its blocker, which can then be completed and deleted."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    equal(gone(await store.delete(job)), [job], "deleted")
    equal((await store.finish(source)).unblocked, [], "unblocked by the blocker")
    equal(await store.blocked_jobs(source), [], "jobs behind it")
    equal(gone(await store.delete(source)), [source], "deleted afterwards")


@case
async def ids_are_free_again(store: Store) -> None:
    """After a deletion the chain's id, key and edges are free."""
    (source,) = await sources(store, 1)
    job = new_job(dedup=key("k"), **behind(source))
    await store.create(job)
    await store.delete(job.id)
    (made,) = await store.create(new_job(id=job.id, dedup=key("k", scope="any")))
    equal((made.existing, made.status), (None, "pending"), "the chain that was started again")
    equal(await store.blockers(job.id), [[]], "its blockers")


@case
async def a_rolled_back_deletion_never_was(store: Store) -> None:
    """A rollback restores jobs, edges and keys."""
    (source,) = await sources(store, 1)
    job = new_job(dedup=key("k"), **behind(source))
    await store.create(job)
    before = await store.jobs(source, job.id)
    async with store.rolled_back() as tx:
        equal(gone(await store.delete(source, job.id, tx=tx)), sorted([source, job.id]), "deleted inside")
    equal(await store.jobs(source, job.id), before, "jobs")
    (again,) = await store.create(new_job(dedup=key("k")))
    equal(again.chain_id, job.id, "chain under the key")
    equal([each.job_id for each in (await store.finish(source)).unblocked], [job.id], "freed")


@driver_case
async def several_hundred_in_one_call(store: Store) -> None:
    """A call can delete hundreds of chains."""
    jobs = [new_job(dedup=key(f"k{n}")) for n in range(500)]
    await store.create(*jobs)
    equal(gone(await store.delete(*(job.id for job in jobs))), sorted(job.id for job in jobs), "deleted")
    equal(await store.list_jobs(), [], "stored jobs")


@case
async def empty_call(store: Store) -> None:
    """Without chains, nothing is deleted."""
    await store.start()
    for cascade in (False, True):
        deleted = await store.delete(cascade=cascade)
        equal((deleted.chains, dict(deleted.waiting)), ([], {}), "answer")
