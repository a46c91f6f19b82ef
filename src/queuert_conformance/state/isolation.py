"""Other connections see nothing of a transaction that has not ended."""

from __future__ import annotations

from queuert.base.statuses import STATUSES
from queuert_conformance.checks import equal
from queuert_conformance.state.build import continued, failed, new_job, next_job, waiting_for
from queuert_conformance.state.store import Store, driver_case, settled_soon
from queuert_conformance.state.unblock import behind


@driver_case
async def others_see_nothing_before_the_commit(store: Store) -> None:
    """Another connection sees nothing before the commit, and everything after it."""
    other = await store.second()
    before = await store.start()
    job = new_job()
    async with store.transaction() as tx:
        await store.create(job, tx=tx)
        await store.finish(before, tx=tx)
        reading = store.spawn(other.statuses(before, job.id))
        if await settled_soon(reading):
            equal(reading.result(), ["pending", None], "what others see before the commit")
    await reading
    equal(await other.statuses(before, job.id), ["completed", "pending"], "what others see afterwards")


async def everything(store: Store, *chains: str) -> dict[str, object]:
    """The results of all reading operations for these chains, except for ages."""
    counts = [(each.job_type, each.blocked, each.pending, each.running, each.failed) for each in await store.stats()]
    return {
        "get_jobs": await store.jobs(*chains),
        "get_chains": await store.chains(*chains),
        "list_jobs": await store.list_jobs(),
        "list_chains": await store.list_chains(),
        "list_chains by status": [await store.list_chains(statuses=(status,)) for status in STATUSES],
        "list_chains of roots": await store.list_chains(root_only=True),
        "list_chain_jobs": [await store.chain_jobs(chain) for chain in chains],
        "list_blocked_jobs": [await store.blocked_jobs(chain) for chain in chains],
        "job_blockers": await store.blockers(*chains),
        "next_available_in": await store.next_available_in("due"),
        "stats": counts,
    }


@driver_case
async def no_reading_sees_what_is_not_committed(store: Store) -> None:
    """While a transaction changes everything, other connections read what was committed before."""
    other = await store.second()
    source, due = await store.start("source"), await store.start("due")
    waiting, running = await store.start(**behind(source)), await store.running("run")
    gone = await store.start("gone")
    chains = (source, due, waiting, running.job.id, gone)
    before = await everything(other, *chains)
    async with store.rolled_back() as tx:
        await store.finish(source, tx=tx)
        await store.delete(gone, tx=tx)
        await store.settle(continued(running, next_job(running.job, "due", id=gone)), tx=tx)
        await store.start("new", blockers=waiting_for(due, chain_type="due"), tx=tx)
        await store.settle(failed(due), tx=tx)
        reading = store.spawn(everything(other, *chains))
        await settled_soon(reading, 1)
    meanwhile, afterwards = await reading, await everything(other, *chains)
    for operation, answer in before.items():
        equal(meanwhile[operation], answer, f"{operation}, read meanwhile")
        equal(afterwards[operation], answer, f"{operation}, read afterwards")


@driver_case
async def others_never_see_what_is_rolled_back(store: Store) -> None:
    """Another connection never sees what is rolled back."""
    other = await store.second()
    job = new_job()
    async with store.rolled_back() as tx:
        await store.create(job, tx=tx)
        reading = store.spawn(other.statuses(job.id))
        await settled_soon(reading)
    equal(await reading, [None], "what others saw")
