"""examine, repair, surroundings: what operations leave behind agrees, and is left alone."""

from __future__ import annotations

from queuert.records.examination import Damage, DamageKind
from queuert.records.model import When
from queuert_conformance.checks import check, equal
from queuert_conformance.state.build import (
    FUTURE,
    completed,
    continued,
    failed,
    key,
    new_ids,
    new_job,
    next_job,
    queue,
    request,
)
from queuert_conformance.state.store import Store, case, driver_case
from queuert_conformance.state.unblock import SOURCE, behind, sources

SECONDS = 10.0


async def everything(store: Store, limit: int = 1000) -> tuple[list[Damage], int]:
    """All damages, and how many rows were compared, in pages of this size."""
    damages: list[Damage] = []
    rows = 0
    for part in (*store.operations.parts, *store.operations.full_parts):
        after = None
        while True:
            look = await store.examine(part, after, limit, SECONDS)
            check(look.rows <= limit, f"a look at {part!r} read {look.rows} rows, not {limit} at most")
            damages += look.damages
            rows += look.rows
            after = look.after
            if after is None:
                break
            check(look.rows > 0, f"a look at {part!r} must read something, or be the last one")
    return damages, rows


async def scenery(store: Store) -> None:
    """Jobs of every kind: ready, later, running, blocked, continued, ended, with keys."""
    await store.create(*(new_job() for _ in range(3)), *(new_job(schedule=When(at=FUTURE)) for _ in range(3)))
    await store.start(dedup=key("a"))
    await store.start(dedup=key("b"))
    await store.running("held")
    claim = await store.running("chain")
    await store.settle(continued(claim, next_job(claim.job, "chain")))
    ended = await store.running("bad")
    await store.settle(failed(ended))
    chains = await sources(store, 3)
    await store.create(*(new_job(**behind(*chains[:2])) for _ in range(2)), new_job(**behind(chains[2])))
    await store.settle(completed(await store.claim_one(SOURCE)))
    await store.cancel(chains[2])


@driver_case
async def what_operations_leave_behind_agrees(store: Store) -> None:
    """Nothing is damaged by operations."""
    await scenery(store)
    damages, rows = await everything(store)
    equal(damages, [], "damages")
    check(rows > 10, f"only {rows} rows were compared")


@case
async def pages_compare_the_same_rows(store: Store) -> None:
    """A look goes on where the one before has ended, until all rows were compared."""
    await scenery(store)
    _, rows = await everything(store)
    for limit in (1, 2, 5):
        equal(await everything(store, limit), ([], rows), f"damages and rows, {limit} at a time")


@case
async def a_look_ends_when_its_time_is_over(store: Store) -> None:
    """Without time, a look reads something, and the next one goes on."""
    await store.create(*(new_job() for _ in range(5)))
    look = await store.examine(store.operations.full_parts[-1], None, 1000, 0.0)
    check(look.rows >= 1, "a look must read one row at least")
    seen = look.rows
    while look.after is not None:
        look = await store.examine(store.operations.full_parts[-1], look.after, 1000, 0.0)
        seen += look.rows
    equal(seen, 5, "rows of all looks")


@case
async def jobs_that_are_still_to_be_freed_are_not_damaged(store: Store) -> None:
    """While dependents are freed in several steps, those that still wait are not damaged."""
    chains = await sources(store, 2)
    ids = new_ids(6)
    await store.create(*(new_job(id=each, **behind(*chains)) for each in ids))
    store.operations.unblocked_at_once = 2
    await store.settle(completed(await store.claim_one(SOURCE)))
    equal((await everything(store))[0], [], "damages after the first completion")
    await store.settle(completed(await store.claim_one(SOURCE)))
    equal((await everything(store))[0], [], "damages after the second completion")
    await store.create(new_job(**behind(*chains)))
    while (await store.continue_unblocking(1)).more:
        equal((await everything(store))[0], [], "damages between two steps")
    equal((await everything(store))[0], [], "damages at the end")


@case
async def what_is_not_committed_is_not_seen(store: Store) -> None:
    """A look sees no part of a transaction that is open elsewhere."""
    await scenery(store)
    _, rows = await everything(store)
    other = await store.second()
    async with other.rolled_back() as tx:
        await other.create(new_job(), tx=tx)
        await other.claim(request(queue("task"), limit=1), tx=tx)
        equal(await everything(store), ([], rows), "damages and rows")


@driver_case
async def nothing_is_repaired_that_is_not_damaged(store: Store) -> None:
    """Repairing a job that is as it should be changes nothing."""
    chain_id = await store.start(dedup=key("key"))
    (source,) = await sources(store, 1)
    blocked = await store.start(**behind(source))
    before = [await store.job(each) for each in (chain_id, source, blocked)]
    kinds: dict[DamageKind, tuple[str, ...]] = {
        "not_queued": (), "unleased": (), "miscounted": (), "forgotten": (), "unread": (), "mislabelled": (),
        "blocker_missing": (), "broken_chain": (), "wrong_key": (), "stray_edge": ("1",), "stray_key": ("task", "key"),
    }  # fmt: skip
    for kind, place in kinds.items():
        for job_id in (chain_id, source, blocked, new_job().id):
            equal(await store.repair_damage(Damage(kind, job_id, "", place)), "gone", f"repair of {kind!r}")
    equal([await store.job(each) for each in (chain_id, source, blocked)], before, "jobs")
    equal((await everything(store))[0], [], "damages")


@driver_case
async def surroundings_are_known(store: Store) -> None:
    """The version of the schema is that of the library, and running jobs are counted."""
    claim = await store.running()
    for full in (False, True):
        found = await store.surroundings(full=full)
        check(found.up_to_date, "the schema must be up to date")
        equal((found.read_only, found.corrupt), (None, ()), "what is wrong with the database")
        equal([(each.worker, each.number) for each in found.running], [(claim.job.leased_by, 1)], "running jobs")
