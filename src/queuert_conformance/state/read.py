"""get_jobs, get_chains and job_blockers: reading by id."""

from __future__ import annotations

from queuert.errors import BlockerNotFound
from queuert.records.listings import ChainFilter, JobFilter, Listed, PageRequest
from queuert.records.model import BlockerRef, ChainRow
from queuert_conformance.checks import equal, raises, same_json
from queuert_conformance.state.build import completed, continued, new_id, new_ids, new_job, next_job, waiting_for
from queuert_conformance.state.store import Store, case, driver_case


@case
async def jobs_come_in_the_order_asked(store: Store) -> None:
    """Jobs are returned in the order of the ids, None if unknown, twice if given twice."""
    first, second, third = new_ids(3)
    await store.create(new_job(id=first), new_job(id=second), new_job(id=third))
    asked = [third, new_id(), first, third, second]
    rows = await store.jobs(*asked)
    equal([row and row.id for row in rows], [third, None, first, third, second], "answered ids")


@case
async def chains_have_a_first_and_a_current_job(store: Store) -> None:
    """A chain is returned as its first job and its current job."""
    claimed = await store.running()
    chain = await store.chain(claimed.job.chain_id)
    equal((chain.first.id, chain.current.id), (claimed.job.id, claimed.job.id), "jobs of a chain of one")
    second = next_job(claimed.job, "second")
    await store.settle(continued(claimed, second))
    await store.settle(continued(await store.claim_one("second"), third := next_job(await store.job(second.id))))
    chain = await store.chain(claimed.job.chain_id)
    equal((chain.first.id, chain.current.id), (claimed.job.id, third.id), "jobs of a chain of three")
    equal(chain.first, await store.job(claimed.job.id), "the first job")
    equal(chain.current, await store.job(third.id), "the current job")


@case
async def chains_come_in_the_order_asked(store: Store) -> None:
    """Chains are returned in the order of the ids, None for an unknown id."""
    claimed = await store.running()
    following = next_job(claimed.job)
    await store.settle(continued(claimed, following))
    other = await store.start()
    rows = await store.chains(other, new_id(), claimed.job.id, following.id, other)
    wanted = [other, None, claimed.job.id, None, other]
    equal([row and row.first.id for row in rows], wanted, "chains; the id of a later job is not a chain id")


@driver_case
async def locked_reads_answer_the_same(store: Store) -> None:
    """Reading with a lock returns the same rows in the same order."""
    ids = new_ids(3)
    await store.create(*(new_job(id=job_id) for job_id in ids))
    asked = [ids[2], new_id(), ids[0], ids[2]]
    plain_chains = await store.chains(*asked)
    async with store.transaction() as tx:
        equal(await store.chains(*asked, lock=True, tx=tx), plain_chains, "locked chains")


@case
async def blockers_come_in_the_order_named(store: Store) -> None:
    """A job's blockers are returned in the order given, with status, output and trace context."""
    ids = new_ids(3)
    await store.create(*(new_job("source", id=job_id) for job_id in ids))
    await store.finish(ids[0], b'{"n":1}')
    refs = (BlockerRef(ids[2], "source", "00-c"), BlockerRef(ids[0], "source"), BlockerRef(ids[1], "source"))
    job = await store.start(blockers=refs)
    (found,) = await store.blockers(job)
    equal([row.chain_id for row in found], [ids[2], ids[0], ids[1]], "chains")
    equal([row.status for row in found], ["pending", "completed", "pending"], "statuses")
    equal([row.chain_type for row in found], ["source"] * 3, "types")
    equal([row.trace_context for row in found], ["00-c", None, None], "trace contexts")
    equal(found[0].output, None, "output of an unfinished chain")
    same_json(found[1].output, b'{"n":1}', "output of a completed chain")


@driver_case
async def blockers_show_the_state_of_the_whole_chain(store: Store) -> None:
    """A blocker has the status and output of its chain's current job, and the type of the chain."""
    claimed = await store.running("source")
    job = await store.start(blockers=waiting_for(claimed.job.id, chain_type="source"))
    await store.settle(continued(claimed, next_job(claimed.job, "middle")))
    (found,) = await store.blockers(job)
    equal([(b.chain_type, b.status, b.output) for b in found], [("source", "pending", None)], "half-way")
    await store.settle(completed(await store.claim_one("middle"), b"5"))
    (found,) = await store.blockers(job)
    equal([(b.chain_type, b.status, b.output) for b in found], [("source", "completed", b"5")], "at the end")


@case
async def blockers_of_several_jobs(store: Store) -> None:
    """Blockers are returned in the order of the jobs, empty for a job that has none."""
    first, second = await store.start("source"), await store.start("source")
    one = await store.start(blockers=waiting_for(first, chain_type="source"))
    none = await store.start()
    both = await store.start(blockers=waiting_for(second, first, chain_type="source"))
    found = await store.blockers(both, new_id(), none, one)
    equal([[row.chain_id for row in rows] for rows in found], [[second, first], [], [], [first]], "blockers")


@case
async def empty_calls(store: Store) -> None:
    """Without ids, the result is empty."""
    equal(await store.jobs(), [], "jobs")
    equal(await store.chains(), [], "chains")
    equal(await store.blockers(), [], "blockers")
    async with store.transaction() as tx:
        equal(await store.chains(lock=True, tx=tx), [], "locked chains")


@case
async def rows_read_twice_are_equal(store: Store) -> None:
    """Reading changes nothing, and every operation that returns rows returns the same row."""
    job = await store.start()
    row = await store.job(job)
    equal(await store.job(job), row, "the row read again")
    equal(await store.chain(job), ChainRow(row, row), "the chain")
    equal(await store.list_jobs(), [row], "the listing of jobs")
    equal(await store.list_chains(), [ChainRow(row, row)], "the listing of chains")
    equal(await store.chain_jobs(job), [row], "the listing of the chain's jobs")


@driver_case
async def ids_that_no_job_can_have(store: Store) -> None:
    """An id that cannot be stored belongs to no job; reading or changing it breaks nothing."""
    kept = await store.start()
    for wrong in ("", "no-such-id", kept.upper() + "x", "{" + kept + "}", "\u20ac"):
        async with store.transaction() as tx:
            equal(await store.jobs(wrong, kept, tx=tx), [None, await store.job(kept)], "jobs")
            operations, run = store.operations, store.driver.run
            for lock in (False, True):
                equal(await run(operations.get_chains([wrong], lock=lock), tx), [None], "chains")
            equal(await run(operations.job_blockers([wrong]), tx), [[]], "blockers")
            equal(await run(operations.trigger([wrong]), tx), [None], "triggered")
            equal(await run(operations.retry([wrong]), tx), [None], "retried")
            equal((await run(operations.delete_chains([wrong], cascade=True), tx)).chains, [], "deleted")
            page = PageRequest(10)
            equal(await run(operations.list_jobs(JobFilter(job_ids=(wrong,)), page), tx), Listed([]), "listed jobs")
            equal(
                await run(operations.list_chains(ChainFilter(chain_ids=(wrong,)), page), tx),
                Listed([]),
                "listed chains",
            )
            equal(await run(operations.list_chain_jobs(wrong, page), tx), [], "jobs of the chain")
            equal(await run(operations.list_blocked_jobs(wrong, page), tx), [], "blocked jobs")
            with raises(BlockerNotFound, "a blocker with that id"):
                await store.create(new_job(blockers=(BlockerRef(wrong, "task"),)), tx=tx)
            await store.start(tx=tx)
