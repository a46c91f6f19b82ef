"""Deduplication: when a key finds a chain, and when a new one is stored."""

from __future__ import annotations

from queuert.base.statuses import Status
from queuert.records.dedup import Dedup
from queuert.records.model import Created
from queuert_conformance.checks import check, equal, present
from queuert_conformance.state.build import completed, continued, end_as, key, new_id, new_job, next_job, waiting_for
from queuert_conformance.state.store import Store, case, driver_case

ENDINGS: tuple[Status, ...] = ("completed", "failed", "cancelled", "expired")


async def attempt(store: Store, dedup: Dedup, type_name: str = "task") -> Created:
    """Try to start a chain under a key."""
    (made,) = await store.create(new_job(type_name, dedup=dedup))
    return made


async def started(store: Store, dedup: Dedup, type_name: str = "task") -> str:
    """Start a chain under a key that must be free. Returns its id."""
    made = await attempt(store, dedup, type_name)
    equal(made.existing, None, f"chain found under the key {dedup.key!r}")
    return made.chain_id


async def found(store: Store, dedup: Dedup, chain_id: str) -> Created:
    """Try to start a chain under a key that must point at this one."""
    made = await attempt(store, dedup)
    equal(present(made.existing, f"chain under {dedup.key!r}").first.id, chain_id, "the chain that was found")
    return made


@case
async def an_open_chain_is_found(store: Store) -> None:
    """A second start under the key of an open chain stores nothing and returns that chain."""
    first = await started(store, key("k"))
    job = new_job(dedup=key("k"), priority=1)
    (made,) = await store.create(job)
    equal(made.existing, await store.chain(first), "existing")
    equal((made.chain_id, made.status), (first, "pending"), "chain and status of the result")
    equal(await store.statuses(job.id), [None], "the second job")
    equal(len(await store.list_jobs()), 1, "stored jobs")


@case
async def a_found_chain_is_as_it_is_now(store: Store) -> None:
    """The chain that is found is returned with its current job."""
    first = await started(store, key("k"))
    claimed = await store.claim_one()
    following = next_job(claimed.job, "second")
    await store.settle(continued(claimed, following))
    made = await found(store, key("k"), first)
    equal(present(made.existing, "existing").current.id, following.id, "current job of the chain")


@driver_case
async def every_open_status_matches(store: Store) -> None:
    """A chain that is blocked, pending or running keeps its key."""
    source = await store.start("source")
    (blocked,) = await store.create(new_job(dedup=key("k"), blockers=waiting_for(source, chain_type="source")))
    equal((await found(store, key("k"), blocked.chain_id)).status, "blocked", "status while blocked")
    await store.finish(source)
    equal((await found(store, key("k"), blocked.chain_id)).status, "pending", "status while pending")
    await store.claim_one()
    equal((await found(store, key("k"), blocked.chain_id)).status, "running", "status while running")


@case
async def an_ended_chain_frees_its_key(store: Store) -> None:
    """With scope "incomplete", a chain that has ended in any way does not match."""
    for status in ENDINGS:
        first = await started(store, key(status))
        await store.settle(end_as(status, first))
        second = await started(store, key(status))
        check(second != first, f"a new chain must follow the {status} one")
        await found(store, key(status), second)


@driver_case
async def scope_any_finds_ended_chains(store: Store) -> None:
    """With scope "any", a chain matches whatever its status is."""
    for status in ENDINGS:
        first = await started(store, key(status))
        await store.settle(end_as(status, first))
        made = await found(store, key(status, scope="any"), first)
        equal(made.status, status, "status of the result")


@case
async def the_window_ends(store: Store) -> None:
    """With a window, a chain matches as long as it is younger than that, open or not."""
    first = await started(store, key("k"))
    await found(store, key("k", scope="any", window=3600), first)
    await store.elapse(0.3)
    await found(store, key("k", scope="any"), first)
    second = await started(store, key("k", scope="any", window=0.2))
    await found(store, key("k", scope="any", window=3600), second)


@case
async def the_window_of_open_chains(store: Store) -> None:
    """With scope "incomplete" and a window, a chain matches if it is open and young enough."""
    first = await started(store, key("k"))
    await found(store, key("k", window=3600), first)
    await store.elapse(0.3)
    second = await started(store, key("k", window=0.2))
    await found(store, key("k", window=3600), second)
    await store.settle(end_as("completed", second))
    await started(store, key("k", window=3600))


@driver_case
async def the_window_counts_from_the_first_job(store: Store) -> None:
    """The age of a chain is that of its first job, whatever happened since."""
    first = await started(store, key("k"))
    claimed = await store.claim_one()
    await store.elapse(0.3)
    await store.settle(continued(claimed, next_job(claimed.job)))
    check(await started(store, key("k", scope="any", window=0.2)) != first, "a new chain must be stored")


@case
async def keys_belong_to_the_chain_type(store: Store) -> None:
    """The same key under another type is another key."""
    await started(store, key("k"), "one")
    await started(store, key("k"), "two")
    one, two = await store.create(new_job("one", dedup=key("k")), new_job("two", dedup=key("k")))
    equal([made.existing is not None for made in (one, two)], [True, True], "found")
    check(one.chain_id != two.chain_id, "each type must find its own chain")


@case
async def jobs_without_a_key_are_never_found(store: Store) -> None:
    """A chain without a key is never a duplicate."""
    await store.start()
    await store.start()
    await started(store, key("k"))
    equal(len(await store.list_jobs()), 3, "stored jobs")


@case
async def excluded_chains_do_not_match(store: Store) -> None:
    """A chain in `exclude` does not match. The new chain takes the key over."""
    first = await started(store, key("k"))
    await found(store, key("k", exclude=[new_id()]), first)
    second = await started(store, key("k", exclude=[new_id(), first]))
    await found(store, key("k"), second)
    third = await started(store, key("k", scope="any", exclude=[second]))
    await found(store, key("k", scope="any"), third)


@case
async def the_latest_chain_holds_the_key(store: Store) -> None:
    """A key points only at the latest chain. An older one that is still open is no longer found."""
    first = await started(store, key("k"))
    second = await started(store, key("k", exclude=[first]))
    await store.finish(second)
    third = await started(store, key("k"))
    equal(await store.statuses(first), ["pending"], "the oldest chain")
    await found(store, key("k"), third)


@case
async def a_retried_chain_holds_its_key_again(store: Store) -> None:
    """A failed chain that is retried is open again and matches."""
    first = await started(store, key("k"))
    await store.settle(end_as("failed", first))
    await store.retry(first)
    await found(store, key("k"), first)


@case
async def a_completed_continuation_ends_the_chain(store: Store) -> None:
    """A chain of several jobs keeps its key until the last of them has ended."""
    first = await started(store, key("k"))
    claimed = await store.claim_one()
    await store.settle(continued(claimed, next_job(claimed.job)))
    await found(store, key("k"), first)
    await store.settle(completed(await store.claim_one()))
    await started(store, key("k"))
