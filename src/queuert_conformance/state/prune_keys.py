"""prune: deduplication keys, which may have to match for longer than their chains are kept."""

from __future__ import annotations

from queuert_conformance.checks import equal, sooner_than
from queuert_conformance.state.build import HOUR, key, new_job
from queuert_conformance.state.prune import ended, short, stored
from queuert_conformance.state.store import Store, case, driver_case


@driver_case
async def a_window_outlives_its_chain(store: Store) -> None:
    """Within its window, a key with the scope "any" matches the chain that was pruned."""
    await store.keep(short())
    window = key("a", scope="any", window=HOUR)
    gone = await ended(store, "failed", dedup=window)
    equal((await store.prune()).deleted, 1, "deleted")
    (found,) = await store.create(new_job(dedup=window))
    equal((found.chain_id, found.status, found.existing, found.pruned, found.ready),
          (gone, "failed", None, True, False), "what the start finds")  # fmt: skip
    (other,) = await store.create(new_job("other", dedup=window))
    equal((other.pruned, other.status), (False, "pending"), "another type")


@case
async def who_matches_a_pruned_chain(store: Store) -> None:
    """The window is that of the start that asks. Without one, a pruned chain does not match."""
    await store.keep(short())
    window = key("a", scope="any", window=HOUR)
    gone = await ended(store, dedup=window)
    await store.prune()
    for asked in (key("a"), key("a", scope="any"), key("a", window=HOUR), key("a", scope="any", window=0.0),
                  key("a", scope="any", window=HOUR, exclude=[gone])):  # fmt: skip
        async with store.rolled_back() as tx:
            (made,) = await store.create(job := new_job(dedup=asked), tx=tx)
            equal((made.pruned, made.chain_id), (False, job.id), f"a start with {asked}")
    twice = [new_job(dedup=window), new_job(dedup=window)]
    equal([made.chain_id for made in await store.create(*twice)], [gone, gone], "two starts of one call")


@case
async def a_key_that_is_taken_over(store: Store) -> None:
    """A new chain has the key then, and its own window."""
    await store.keep(short())
    await ended(store, dedup=key("a", scope="any", window=HOUR))
    await store.prune()
    (made,) = await store.create(job := new_job(dedup=key("a")))
    equal(made.chain_id, job.id, "the new chain")
    (found,) = await store.create(new_job(dedup=key("a", scope="any", window=HOUR)))
    equal((found.chain_id, found.pruned), (job.id, False), "what the next start finds")
    await store.finish(job.id)
    await store.prune()
    (made,) = await store.create(last := new_job(dedup=key("a", scope="any", window=HOUR)))
    equal(made.chain_id, last.id, "after a chain without a window was pruned")


@case
async def a_key_without_a_window(store: Store) -> None:
    """Any other key is deleted with its chain."""
    await store.keep(short())
    for asked in (key("a"), key("a", scope="any"), key("a", window=HOUR)):
        await ended(store, dedup=asked)
        equal((await store.prune()).deleted, 1, "deleted")
        equal((await store.retention()).noted, 0, "noted")
        (made,) = await store.create(job := new_job(dedup=key("a", scope="any")))
        equal(made.chain_id, job.id, f"a start after {asked}")
        await store.finish(job.id)
        await store.prune()


@case
async def when_a_window_ends(store: Store) -> None:
    """Then the key is deleted, too, and the doctor finds nothing wrong before and after."""
    await store.keep(short())
    window = key("a", scope="any", window=0.3)
    with sooner_than(0.3):
        chain_id = await ended(store, dedup=window)
        await store.prune()
        equal(((await store.retention()).noted, await damages(store)), (1, []), "notes, and what the doctor finds")
    await store.elapse(0.4)
    equal((await store.prune()).deleted, 0, "deleted chains")
    equal(((await store.retention()).noted, await damages(store)), (0, []), "afterwards")
    equal(await stored(store, chain_id), [False], "stored")
    (made,) = await store.create(job := new_job(dedup=key("a", scope="any", window=HOUR)))
    equal(made.chain_id, job.id, "a new start")


@case
async def deleting_by_hand(store: Store) -> None:
    """A chain that is deleted on request takes its key with it, whatever its window."""
    window = key("a", scope="any", window=HOUR)
    chain_id = await ended(store, dedup=window)
    await store.delete(chain_id)
    (made,) = await store.create(job := new_job(dedup=window))
    equal(made.chain_id, job.id, "a new start")


async def damages(store: Store) -> list[str]:
    look = await store.examine("keys", None, 100, 10.0)
    return [damage.kind for damage in look.damages]
