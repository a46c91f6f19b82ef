"""record_audit and list_audit: who did what."""

from __future__ import annotations

from queuert.records.audit import FORGOTTEN, NewAudit
from queuert_conformance.checks import check, equal
from queuert_conformance.state.store import Store, case, driver_case


def entry(target: str = "task", chain_id: str | None = None) -> NewAudit:
    return NewAudit(action="cancel", target=target, chain_id=chain_id)


async def targets(store: Store, limit: int = 100, after: int | None = None, chain_id: str | None = None) -> list[str]:
    return [each.target for each in await store.audit(limit, after, chain_id)]


@driver_case
async def a_record_as_it_is_stored(store: Store) -> None:
    """A record has all that it was made with, and the time by the database's clock."""
    job = await store.start()
    await store.record(
        NewAudit(
            action="cancel",
            target='a "type" €',
            chain_id="any id",
            by="me",
            reason="it is 'late' \\",
            details=b'{"cascade":true,"more":[1,null,"x"]}',
        ),
        NewAudit(action="pause", target=""),
    )
    plain, full = await store.audit(10)
    equal((full.action, full.target, full.chain_id, full.by, full.reason),
          ("cancel", 'a "type" €', "any id", "me", "it is 'late' \\"), "the record")  # fmt: skip
    equal(full.details, {"cascade": True, "more": [1, None, "x"]}, "details")
    equal((plain.action, plain.target, plain.chain_id, plain.by, plain.reason, plain.details),
          ("pause", "", None, None, None, None), "a plain one")  # fmt: skip
    equal(plain.at, full.at, "recorded together")
    check(full.at >= (await store.job(job)).created_at, "the time is the database's")


@case
async def the_latest_first(store: Store) -> None:
    """Records are listed from the latest on, in the order in which they were given."""
    await store.record(entry("a"), entry("b"))
    await store.record(entry("c"))
    equal(await targets(store), ["c", "b", "a"], "records")
    first, second, third = [each.id for each in await store.audit(10)]
    check(first > second > third, "later ones have higher numbers")


@case
async def pages_of_records(store: Store) -> None:
    """A page ends after this many records, and the next one begins before the last of them."""
    await store.record(*(entry(str(number)) for number in range(5)))
    page = await store.audit(2)
    equal([each.target for each in page], ["4", "3"], "the first page")
    equal(await targets(store, 2, page[-1].id), ["2", "1"], "the second page")
    equal(await targets(store, 9, page[-1].id), ["2", "1", "0"], "all that are left")


@driver_case
async def records_of_a_chain(store: Store) -> None:
    """With a chain, only the records about it are listed, page by page."""
    for number in range(3):
        await store.record(entry(str(number), chain_id="mine"), entry("other", chain_id="other"), entry("none"))
    page = await store.audit(2, None, "mine")
    equal([each.target for each in page], ["2", "1"], "the first page")
    equal(await targets(store, 2, page[-1].id, "mine"), ["0"], "the second page")
    equal(await targets(store, chain_id="unknown"), [], "of an unknown chain")


@case
async def records_of_a_rollback(store: Store) -> None:
    """What is rolled back was not done, so it is not recorded. Numbers still increase."""
    await store.record(entry("before"))
    async with store.rolled_back() as tx:
        await store.record(entry("undone"), tx=tx)
        equal(await targets_in(store, tx), ["undone", "before"], "seen inside")
    await store.record(entry("after"))
    equal(await targets(store), ["after", "before"], "records")


async def targets_in(store: Store, tx: object) -> list[str]:
    return [each.target for each in await store.audit(10, tx=tx)]


@case
async def nothing_to_record(store: Store) -> None:
    """Without entries, nothing is stored."""
    await store.record()
    equal(await store.audit(10), [], "records")


@driver_case
async def old_records_go_away(store: Store) -> None:
    """A new record removes those that were kept long enough, some at a time."""
    await store.record(*(entry(str(number)) for number in range(FORGOTTEN + 5)))
    await store.record(entry("not yet"))
    equal(len(await store.audit(1000)), FORGOTTEN + 6, "young records")
    numbers = [each.id for each in await store.audit(1000)]
    await store.record(entry("new"), kept=-60)
    equal(await targets(store), ["new", "not yet", "104", "103", "102", "101"], "after some were removed")
    await store.record(entry("newer"), kept=-60)
    found = await store.audit(1000)
    check("104" not in {each.target for each in found}, "all old ones are removed")
    check(found[0].id > max(numbers), "a number is never given again")
