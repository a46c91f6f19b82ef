"""take_archive and its kin: chains that are archived in the transaction that deletes them."""

from __future__ import annotations

from queuert.base.times import EPOCH
from queuert.records.archive import ArchiveRow, ChainToArchive, archived_chain
from queuert.records.dedup import Dedup
from queuert_conformance.checks import check, equal, present
from queuert_conformance.state.build import HOUR, TASK, completed, continued, new_job, next_job, put_back, waiting_for
from queuert_conformance.state.prune import archived, ended, keep, short, stored
from queuert_conformance.state.store import Store, case, driver_case


def row_of(chain: ChainToArchive, *, whole: bool = True) -> ArchiveRow:
    found = archived_chain(chain)
    return ArchiveRow(
        found.id,
        found.chain_type,
        found.status,
        found.created_at,
        found.ended_at,
        EPOCH,
        "here",
        found.to_json() if whole else None,
    )


async def waiting(store: Store, type_name: str = TASK) -> int:
    """How many chains of the type wait to be archived."""
    return next(each.waiting for each in (await store.retention()).types if each.policy.chain_type == type_name)


def ids_of(chains: list[ChainToArchive]) -> list[str]:
    return sorted(chain.jobs[0].id for chain in chains)


@driver_case
async def whole_chains(store: Store) -> None:
    """A chain is handed out with all its jobs, their blockers and attempts, and is gone then."""
    await store.keep(archived(completed=0.0), keep("needed"), keep("next"))
    needed = await ended(store, type_name="needed")
    await store.start(blockers=waiting_for(needed, chain_type="needed"), input=b'{"n":12345678901234567890.25}')
    claim = await store.claim_one()
    await store.settle(put_back(claim))
    claim = await store.claim_one()
    following = next_job(claim.job, "next")
    await store.settle(continued(claim, following))
    await store.settle(completed(await store.claim_one("next"), output=b"[1]"))
    pruned = await store.prune(lap_every=0.0)
    equal((pruned.deleted, await stored(store, claim.job.id)), (0, [True]), "pruning does not delete it")
    equal(await store.waiting_to_archive("other", TASK), [TASK], "waits")
    async with store.transaction() as tx:
        (chain,) = await store.take_archive(tx=tx)
        equal(await store.take_archive(tx=tx), [], "taken again")
    equal([job.id for job in chain.jobs], [claim.job.id, following.id], "its jobs")
    equal([job.status for job in chain.jobs], ["completed", "completed"], "their status")
    check(b"12345678901234567890.25" in chain.jobs[0].input, "the input, with all digits")
    equal(chain.jobs[1].output, b"[1]", "the output")
    equal(chain.blockers.get(claim.job.id), [needed], "the blockers")
    equal([each.number for each in chain.attempts[claim.job.id]], [1], "the attempts")
    equal(await store.statuses(claim.job.id, following.id), [None, None], "stored")
    equal((await store.waiting_to_archive(TASK), await waiting(store)), ([], 0), "waits still")


@driver_case
async def all_or_nothing(store: Store) -> None:
    """If the transaction is rolled back, nothing is deleted, and all of it is handed out again."""
    await store.keep(archived(completed=0.0))
    chains = sorted([await ended(store) for _ in range(3)])
    await store.prune()
    async with store.rolled_back() as tx:
        taken = await store.take_archive(tx=tx)
        await store.store_archive(*map(row_of, taken), tx=tx)
        equal(ids_of(taken), chains, "taken")
        equal([row is not None for row in await store.get_archived(*chains, tx=tx)], [True] * 3, "archived, inside")
    equal(await stored(store, *chains), [True] * 3, "stored")
    equal(await store.get_archived(*chains), [None] * 3, "archived")
    equal(await waiting(store), 3, "they wait")
    async with store.transaction() as tx:
        equal(ids_of(await store.take_archive(limit=2, tx=tx)), chains[:2], "the first two")
    equal((await stored(store, *chains), await waiting(store)), ([False, False, True], 1), "stored, and waiting")


@driver_case
async def what_is_archived_is_known(store: Store) -> None:
    """A row can be read as it was stored, with the time when that was."""
    await store.keep(archived(completed=0.0, failed=0.0))
    one, other = await ended(store), await ended(store, "failed")
    await store.prune()
    async with store.transaction() as tx:
        chains = {chain.jobs[0].id: chain for chain in await store.take_archive(tx=tx)}
        rows = row_of(chains[one]), row_of(chains[other], whole=False)
        await store.store_archive(*rows, tx=tx)
        await store.store_archive(tx=tx)
    found = await store.get_archived(other, "nothing", one)
    equal([None if row is None else row.chain_id for row in found], [other, None, one], "in the order of the ids")
    first, second = present(found[2], "the first row"), present(found[0], "the other row")
    equal(
        (first.chain_type, first.status, first.created_at, first.ended_at, first.place),
        (TASK, "completed", rows[0].created_at, rows[0].ended_at, "here"),
        "as it was stored",
    )
    check(first.archived_at >= first.ended_at, "archived after its end")
    equal((second.status, second.chain), ("failed", None), "one that is elsewhere")
    check(first.chain is not None and one.encode() in first.chain, "the chain itself")
    equal(await store.get_archived(), [], "none asked for")


@case
async def no_longer_due(store: Store) -> None:
    """A chain that was retried, or that a job needs, is not archived. It is looked at again."""
    await store.keep(archived(completed=0.0, failed=0.0), keep("stuck"))
    retried, needed, due = await ended(store, "failed"), await ended(store), await ended(store)
    await store.prune()
    await store.retry(retried)
    await store.start("stuck", blockers=waiting_for(needed))
    async with store.transaction() as tx:
        equal(ids_of(await store.take_archive(tx=tx)), [due], "taken")
    equal(await stored(store, retried, needed), [True, True], "stored")
    found = await store.retention()
    equal((await waiting(store), found.noted), (0, 2), "waiting, and noted")


@case
async def deleted_meanwhile(store: Store) -> None:
    """A chain that was deleted while it waited is not archived, and is forgotten."""
    await store.keep(archived(completed=0.0))
    gone, due = await ended(store), await ended(store)
    await store.prune()
    await store.delete(gone)
    async with store.transaction() as tx:
        equal(ids_of(await store.take_archive(tx=tx)), [due], "taken")
    equal((await store.retention()).noted, 0, "noted")


@case
async def another_policy(store: Store) -> None:
    """Without an archive, chains that waited for it are deleted. With one again, they are not."""
    await store.keep(archived(completed=0.0))
    first = await ended(store)
    await store.prune()
    await store.keep(short())
    equal((await store.prune()).deleted, 1, "deleted")
    found = await store.retention()
    equal((await stored(store, first), found.noted), ([False], 0), "stored, and noted")
    await store.keep(archived(completed=HOUR))
    second = await ended(store)
    equal((await store.prune(lap_every=0.0)).deleted, 0, "deleted before its time")
    equal((await stored(store, second), await waiting(store)), ([True], 0), "stored, and waiting")


@case
async def found_by_a_lap(store: Store) -> None:
    """A chain that appeared behind the walk is archived, and one that waits is not noted twice."""
    await store.keep(archived(completed=0.0))
    late = "00000000-0000-4000-8000-000000000001"
    await ended(store)
    await store.prune()
    await ended(store, id=late)
    for _ in range(2):
        equal((await store.prune(lap_every=0.0, restart=True)).deleted, 0, "deleted")
        equal(await waiting(store), 2, "waiting")


@case
async def a_key_outlives_it(store: Store) -> None:
    """A window goes on after its chain was archived, and the key is forgotten at its end."""
    await store.keep(archived(completed=0.0))
    dedup = Dedup("k", scope="any", window=HOUR)
    chain_id = await ended(store, dedup=dedup)
    await store.prune()
    async with store.transaction() as tx:
        equal(ids_of(await store.take_archive(tx=tx)), [chain_id], "taken")
    equal((await store.retention()).noted, 1, "the key is noted")
    (made,) = await store.create(new_job(dedup=dedup))
    equal((made.chain_id, made.pruned), (chain_id, True), "the key matches")


@driver_case
async def a_failure_is_told(store: Store) -> None:
    """The error is stored with the type until archiving works, or another policy is stored."""
    await store.keep(archived(completed=0.0))
    await store.archive_failed(TASK, "the disk is full")
    await store.archive_failed("unknown", "whatever")
    (found,) = (await store.retention()).types
    equal(found.archive_error, "the disk is full", "the error")
    check(present(found.archive_failed_at, "when it failed") >= found.stored_at, "when it was")
    await store.archive_failed(TASK, None)
    (found,) = (await store.retention()).types
    equal((found.archive_error, found.archive_failed_at), (None, None), "after it worked")
    await store.archive_failed(TASK, "again")
    await store.keep(archived(completed=1.0))
    (found,) = (await store.retention()).types
    equal(found.archive_error, None, "after another policy")


@driver_case
async def months_are_deleted_whole(store: Store) -> None:
    """Only those that are older than every archived type keeps. Tending needs no policy."""
    check(not await store.tend_archive(), "without a policy")
    await store.keep(archived(months=1, completed=0.0))
    check(not await store.tend_archive(), "with one")
    check(not await store.tend_archive(), "again")
    chain_id = await ended(store)
    await store.prune()
    async with store.transaction() as tx:
        await store.store_archive(*map(row_of, await store.take_archive(tx=tx)), tx=tx)
    await store.tend_archive()
    (row,) = await store.get_archived(chain_id)
    present(row, "a row of this month")


@case
async def others_are_not_in_the_way(store: Store) -> None:
    """A step that is under way does not stop pruning, where two transactions can write at once."""
    if store.single_writer:
        return
    await store.keep(archived(completed=0.0), short("other"))
    first = await ended(store)
    await store.prune()
    async with store.transaction() as tx:
        equal(ids_of(await store.take_archive(tx=tx)), [first], "taken")
        gone, second = await ended(store, type_name="other"), await ended(store)
        equal((await store.prune()).deleted, 1, "deleted meanwhile")
        equal(await stored(store, gone, second), [False, True], "stored")
        async with store.transaction() as other:
            equal(await store.take_archive(tx=other), [], "one at a time archives a type")
    async with store.transaction() as tx:
        equal(ids_of(await store.take_archive(tx=tx)), [second], "taken then")
