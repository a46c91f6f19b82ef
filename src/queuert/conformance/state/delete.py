"""delete_chains: what goes, and what refuses to."""

from __future__ import annotations

from queuert.conformance.checks import equal
from queuert.conformance.state.build import (
    continued,
    end_as,
    failed,
    key,
    new_id,
    new_job,
    next_job,
    waiting_for,
)
from queuert.conformance.state.store import Store, case, driver_case
from queuert.conformance.state.unblock import behind, sources
from queuert.model import ChainRow, Deleted, Status

HARMLESS: tuple[Status, ...] = ("completed", "cancelled", "expired")


def gone(deleted: Deleted) -> list[str]:
    """The ids of the deleted chains, sorted, none of them waited for."""
    equal(dict(deleted.waiting), {}, "chains that are still needed")
    return sorted(chain.first.id for chain in deleted.chains)


def needed(deleted: Deleted) -> dict[str, list[str]]:
    """Who waits for what, where nothing was deleted."""
    equal(deleted.chains, [], "deleted chains of a refused call")
    return {chain_id: sorted(job_ids) for chain_id, job_ids in deleted.waiting.items()}


@case
async def a_chain_goes_with_all_its_jobs(store: Store) -> None:
    """A chain is deleted with every job of it, and answered as it was."""
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
    """A chain may be deleted whatever its status is."""
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
    """Ids that are no chain's are passed over: unknown ones, those of later jobs, those deleted already."""
    claimed = await store.running()
    following = next_job(claimed.job)
    await store.settle(continued(claimed, following))
    other = await store.start()
    equal(gone(await store.delete(new_id(), following.id, other)), [other], "deleted")
    equal(gone(await store.delete(other)), [], "deleted a second time")
    equal(await store.statuses(claimed.job.id, following.id), ["completed", "pending"], "the other chain")


@case
async def an_id_twice_is_one_chain(store: Store) -> None:
    """An id that is twice in a call deletes its chain once."""
    chain = await store.start()
    equal(gone(await store.delete(chain, chain)), [chain], "deleted")


@driver_case
async def a_chain_that_is_waited_for_stays(store: Store) -> None:
    """If a job outside the call waits for a chain, nothing of the call is deleted, and the answer says who waits."""
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
    """A dependent that is completed, cancelled or expired does not keep its blocker."""
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
    """A continuation that waits keeps its blocker as well."""
    (source,) = await sources(store, 1)
    claimed = await store.running()
    following = next_job(claimed.job, **behind(source))
    await store.settle(continued(claimed, following))
    equal(needed(await store.delete(source)), {source: [following.id]}, "waiting")
    equal(gone(await store.delete(source, claimed.job.id)), sorted([source, claimed.job.id]), "both")


@case
async def an_earlier_job_that_handed_over_does_not_count(store: Store) -> None:
    """A dependent that handed over to the next job of its chain is completed: it needs its blocker no more."""
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
    """Deleting a dependent leaves its blocker, which then can be completed and deleted."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    equal(gone(await store.delete(job)), [job], "deleted")
    equal((await store.finish(source)).unblocked, [], "freed by the blocker")
    equal(await store.blocked_jobs(source), [], "jobs behind it")
    equal(gone(await store.delete(source)), [source], "deleted afterwards")


@case
async def ids_are_free_again(store: Store) -> None:
    """After a deletion nothing of the chain is left: its id, its key and its edges are free."""
    (source,) = await sources(store, 1)
    job = new_job(dedup=key("k"), **behind(source))
    await store.create(job)
    await store.delete(job.id)
    (made,) = await store.create(new_job(id=job.id, dedup=key("k", scope="any")))
    equal((made.existing, made.status), (None, "pending"), "the chain that was started again")
    equal(await store.blockers(job.id), [[]], "its blockers")


@case
async def a_rolled_back_deletion_never_was(store: Store) -> None:
    """Rolling back brings jobs, edges and keys back."""
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
    """A call deletes hundreds of chains."""
    jobs = [new_job(dedup=key(f"k{n}")) for n in range(500)]
    await store.create(*jobs)
    equal(gone(await store.delete(*(job.id for job in jobs))), sorted(job.id for job in jobs), "deleted")
    equal(await store.list_jobs(), [], "stored jobs")


@case
async def empty_call(store: Store) -> None:
    """No chains, nothing deleted."""
    await store.start()
    for cascade in (False, True):
        deleted = await store.delete(cascade=cascade)
        equal((deleted.chains, dict(deleted.waiting)), ([], {}), "answer")
