"""Deduplication within calls and transactions, and the key of a chain that is deleted or rolled
back.
"""

from __future__ import annotations

from queuert_conformance.checks import check, equal, present
from queuert_conformance.state.build import key, new_job, waiting_for
from queuert_conformance.state.dedup import found, started
from queuert_conformance.state.store import Store, case


@case
async def the_second_of_one_call_finds_the_first(store: Store) -> None:
    """Two jobs of one call with the same key: the first is stored, the second finds it."""
    jobs = [new_job(dedup=key("k")), new_job("other", dedup=key("k")), *(new_job(dedup=key("k")) for _ in "ab")]
    created = await store.create(*jobs)
    wanted = [None, None, jobs[0].id, jobs[0].id]
    equal([made.existing and made.existing.first.id for made in created], wanted, "found chains")
    equal([made.chain_id for made in created], [jobs[0].id, jobs[1].id, jobs[0].id, jobs[0].id], "chains")
    equal(len(await store.list_jobs()), 2, "stored jobs")


@case
async def mixed_calls(store: Store) -> None:
    """In one call, some keys may be taken and others free. Each is returned in its place."""
    first = await started(store, key("a"))
    jobs = [new_job(dedup=key("b")), new_job(dedup=key("a")), new_job(), new_job(dedup=key("b"))]
    created = await store.create(*jobs)
    wanted = [jobs[0].id, first, jobs[2].id, jobs[0].id]
    equal([made.chain_id for made in created], wanted, "chains")
    equal([made.existing is not None for made in created], [False, True, False, True], "found")


@case
async def a_found_chain_may_be_a_blocker_of_the_call(store: Store) -> None:
    """A job may wait for a chain under a key, and later for the chain that was found under it."""
    first = await started(store, key("k"))
    duplicate = new_job(dedup=key("k"), blockers=waiting_for(first))
    (made,) = await store.create(duplicate)
    check(made.existing is not None, "the chain must be found")
    equal(await store.blocked_jobs(first), [], "jobs that wait for the chain: nothing was written")
    equal((await store.job(first)).blockers_left, 0, "blockers of the chain")


@case
async def deletion_frees_the_key(store: Store) -> None:
    """A chain that was deleted has no key, even with scope "any"."""
    first = await started(store, key("k"))
    await store.delete(first)
    await started(store, key("k", scope="any"))


@case
async def deleting_an_older_chain_keeps_the_key(store: Store) -> None:
    """Deleting a chain that no longer has the key does not change the key of the latest chain."""
    first = await started(store, key("k"))
    await store.finish(first)
    second = await started(store, key("k"))
    await store.delete(first)
    await found(store, key("k"), second)


@case
async def rollback_frees_the_key(store: Store) -> None:
    """A key taken in a rolled-back transaction or savepoint is as it was before."""
    before = await started(store, key("old"))
    await store.finish(before)
    async with store.rolled_back() as tx:
        await store.create(new_job(dedup=key("new")), new_job(dedup=key("old")), tx=tx)
    async with store.transaction() as tx, store.undone(tx):
        await store.create(new_job(dedup=key("new")), new_job(dedup=key("old")), tx=tx)
    await found(store, key("old", scope="any"), before)
    await started(store, key("new", scope="any"))


@case
async def a_transaction_finds_its_own_chain(store: Store) -> None:
    """A chain started earlier in the same transaction is found."""
    async with store.transaction() as tx:
        (first,) = await store.create(new_job(dedup=key("k")), tx=tx)
        (second,) = await store.create(new_job(dedup=key("k")), tx=tx)
    equal(present(second.existing, "existing").first.id, first.job_id, "the chain that was found")
