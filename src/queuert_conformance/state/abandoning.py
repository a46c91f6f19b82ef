"""Abandoning a transaction: an optional part of a provider."""

from __future__ import annotations

from queuert_conformance.checks import check, equal, only, skip
from queuert_conformance.state.build import new_job, put_back
from queuert_conformance.state.store import Store, driver_case


@driver_case
async def an_abandoned_transaction_is_undone(store: Store) -> None:
    """An abandoned transaction holds no lock and commits nothing. Its connection is of no use."""
    claimed = await store.running()
    other = await store.second()
    first, late = new_job(), new_job()
    committed = refused = False
    try:
        async with store.holding(claimed) as (tx, held):
            check(held, "the claim must be held")
            await store.create(first, tx=tx)
            if not store.driver.abandon(tx):
                skip("the provider cannot abandon a transaction")
            equal((await other.settle(put_back(claimed))).applied, [True], "settled by another connection")
            try:
                await store.create(late, tx=tx)
            except Exception:
                refused = True
        committed = True
    except Exception:
        if not refused:
            raise
    check(refused, "what is tried on an abandoned connection must fail")
    check(not committed, "the end of an abandoned transaction must raise an error")
    equal(await other.jobs(first.id, late.id), [None, None], "what was written in it")
    equal(only((await store.claim()).jobs, "claimed jobs").job.id, claimed.job.id, "the next claim of this store")
