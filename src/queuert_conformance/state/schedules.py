"""Schedules: rows that are written by their versions, and found when they are due."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from queuert.records.schedules import MAX_INCARNATION, ScheduleRow
from queuert_conformance.checks import check, equal, present
from queuert_conformance.state.build import FUTURE, PAST
from queuert_conformance.state.concurrency import expect_waiting, quick_unless_single_writer
from queuert_conformance.state.store import Store, case, driver_case

DEFINITION = '{"times":{"kind":"cron"},"input":"€ \\"1\\" \\\\u0000"}'.encode()


def schedule(name: str, number: int = 1, **values: Any) -> ScheduleRow:
    return ScheduleRow(name=name, incarnation=number, definition=values.pop("definition", b"{}"), state=b"{}", **values)


async def saved(store: Store, *rows: ScheduleRow) -> list[ScheduleRow]:
    """Store new schedules, and return them as they are stored."""
    numbered = [replace(row, incarnation=place) for place, row in enumerate(rows, 1)]
    equal(await store.save_schedules(*numbered), [True] * len(rows), "stored")
    return [replace(row, version=1) for row in numbered]


def names(rows: list[ScheduleRow] | list[ScheduleRow | None]) -> list[str | None]:
    return [None if row is None else row.name for row in rows]


@driver_case
async def a_schedule_as_it_is_stored(store: Store) -> None:
    """A schedule has all that it was stored with, and the version 1."""
    row = schedule(
        'n "a" €', MAX_INCARNATION - 1, next_at=FUTURE, due_at=FUTURE + timedelta(microseconds=7), by_function=True,
        declared=True, definition=DEFINITION,
    )  # fmt: skip
    equal(await store.save_schedules(row, schedule("plain")), [True, True], "stored")
    expected = replace(row, version=1)
    equal(await store.get_schedules(row.name, "none", "plain"),
          [expected, None, replace(schedule("plain"), version=1)], "read")  # fmt: skip
    equal(await store.find_schedule(MAX_INCARNATION - 1), expected, "found by its incarnation")
    equal(await store.find_schedule(12345), None, "another incarnation")


@case
async def empty_arguments(store: Store) -> None:
    """Without arguments, nothing is read, stored or deleted."""
    equal(await store.get_schedules(), [], "read")
    equal(await store.save_schedules(), [], "stored")
    equal(await store.delete_schedules(), [], "deleted")
    equal(await store.see_releases(alive_for=1), [], "releases")


@driver_case
async def the_version_decides(store: Store) -> None:
    """A row is stored only if its version is the stored one; a new one only if there is none."""
    (first,) = await saved(store, schedule("a"))
    changed = replace(first, next_at=FUTURE, due_at=FUTURE, by_function=True, definition=DEFINITION, state=b'{"n":1}')
    equal(await store.save_schedules(changed), [True], "with the version that was read")
    stored = replace(changed, version=2)
    equal(await store.get_schedules("a"), [stored], "read")
    equal(await store.save_schedules(first, schedule("a"), replace(first, version=3)), [False] * 3, "with others")
    equal(await store.save_schedules(schedule("b", 9, version=1)), [False], "one that does not exist")
    equal(await store.get_schedules("a", "b"), [stored, None], "read again")


@case
async def some_of_several_are_stored(store: Store) -> None:
    """Each row is stored or not by itself, and told in the order of the rows."""
    first, second = await saved(store, schedule("b"), schedule("a"))
    equal(
        await store.save_schedules(replace(first, version=7), second, schedule("c", 3)), [False, True, True], "stored"
    )


@case
async def what_never_changes(store: Store) -> None:
    """The incarnation, and whether workers declare it, stay as they were."""
    (row,) = await saved(store, schedule("a", declared=True))
    await store.save_schedules(replace(row, incarnation=99, declared=False, due_at=PAST))
    equal(await store.get_schedules("a"), [replace(row, version=2, due_at=PAST)], "read")


@driver_case
async def listing_by_name(store: Store) -> None:
    """Schedules are listed by name, after a name, and not more than asked for."""
    await saved(store, *(schedule(name) for name in ("b", "a", "Z", "ä", "c")))
    equal(names((await store.list_schedules(3)).rows), ["Z", "a", "b"], "the first page")
    equal(names((await store.list_schedules(3, "b")).rows), ["c", "ä"], "the next page")


@driver_case
async def what_is_due(store: Store) -> None:
    """Due schedules are returned by time and name, with the time until the next one."""
    past, earlier = PAST, PAST - timedelta(hours=1)
    await saved(
        store, schedule("b", due_at=past), schedule("a", due_at=past), schedule("c", due_at=earlier),
        schedule("later", due_at=FUTURE), schedule("never"),
    )  # fmt: skip
    due = await store.due_schedules()
    equal(names(due.rows), ["c", "a", "b"], "due")
    left = (FUTURE - due.now).total_seconds()
    check(abs(present(due.next_in, "seconds") - left) < 1, f"the next is due in {left} s, got {due.next_in}")
    equal(names((await store.due_schedules(2)).rows), ["c", "a"], "two of them")


@case
async def nothing_is_due(store: Store) -> None:
    """Without schedules, nothing is due, now or later."""
    due = await store.due_schedules()
    equal((due.rows, due.next_in), ([], None), "due")


@driver_case
async def functions_that_a_worker_has(store: Store) -> None:
    """Schedules with a function are due only for those who have it."""
    await saved(
        store, schedule("a", due_at=PAST, by_function=True), schedule("b", due_at=PAST),
        schedule("c", due_at=FUTURE, by_function=True),
    )  # fmt: skip
    due = await store.due_schedules()
    equal((names(due.rows), due.next_in), (["b"], None), "without functions")
    due = await store.due_schedules(functions=["a", "c"])
    equal(names(due.rows), ["a", "b"], "with functions")
    check(due.next_in is not None, "the next one is known")


@driver_case
async def locked_schedules_are_skipped(store: Store) -> None:
    """Due schedules that are locked are skipped by others who lock, and never waited for."""
    other = await store.second()
    await saved(store, schedule("a", due_at=PAST), schedule("b", due_at=PAST))
    async with store.transaction() as tx:
        equal(names((await store.due_schedules(1, lock=True, tx=tx)).rows), ["a"], "locked")

        async def lock() -> list[str | None]:
            async with other.transaction() as second:
                due = await other.due_schedules(lock=True, tx=second)
                named = await other.get_schedules("b", "a", lock=True, tx=second)
                return names(due.rows) + names(named)

        locking = store.spawn(lock())
        await quick_unless_single_writer(store, locking, "looking for what is due")
        if not store.single_writer:
            equal(await locking, ["b", "b", None], "by another")
            equal(names((await other.due_schedules()).rows), ["a", "b"], "without a lock")
    await locking


@driver_case
async def a_write_waits_for_another(store: Store) -> None:
    """A row that another transaction has written is waited for, and then not stored."""
    other = await store.second()
    (row,) = await saved(store, schedule("a"))
    async with store.transaction() as tx:
        equal(await store.save_schedules(replace(row, due_at=PAST), tx=tx), [True], "the first")
        writing = store.spawn(other.save_schedules(replace(row, due_at=FUTURE)))
        await expect_waiting(writing, "the second")
    equal(await writing, [False], "the second")
    equal([each and each.due_at for each in await store.get_schedules("a")], [PAST], "read")


@case
async def two_who_make_the_same(store: Store) -> None:
    """Of two transactions that store a new schedule of one name, one does."""
    other = await store.second()
    async with store.transaction() as tx:
        equal(await store.save_schedules(schedule("a", 1), tx=tx), [True], "the first")
        writing = store.spawn(other.save_schedules(schedule("a", 2)))
        await expect_waiting(writing, "the second")
    equal(await writing, [False], "the second")


@driver_case
async def part_of_a_transaction(store: Store) -> None:
    """What is written in a transaction is gone after its rollback."""
    (row,) = await saved(store, schedule("a"))
    async with store.rolled_back() as tx:
        await store.save_schedules(replace(row, due_at=PAST), schedule("b", 5), tx=tx)
        await store.see_releases(("a", "one"), alive_for=1, tx=tx)
        equal(names(await store.get_schedules("a", "b", tx=tx)), ["a", "b"], "inside")
        equal(names(await store.delete_schedules("a", tx=tx)), ["a"], "deleted")
    equal(await store.get_schedules("a", "b"), [row, None], "afterwards")


@driver_case
async def deleting(store: Store) -> None:
    """Deleted schedules are returned as they were, by name, and forgotten with their releases."""
    first, second, third = await saved(store, schedule("b"), schedule("a"), schedule("c", declared=True))
    await store.see_releases(("c", "one"), alive_for=60)
    equal(await store.delete_schedules("b", "none", "a", "c"), [second, first, third], "deleted")
    equal(await store.get_schedules("a", "b", "c"), [None] * 3, "read")
    seen = await store.see_releases(("c", "two"), alive_for=60)
    equal([each.release for each in seen], ["two"], "releases")


@driver_case
async def releases_and_when_they_were_seen(store: Store) -> None:
    """A release keeps the time when it was first seen. All releases of a schedule are returned."""
    (one,) = await store.see_releases(("a", "one €"), alive_for=60)
    equal((one.schedule, one.release, one.first_seen_at), ("a", "one €", one.seen_at), "the first")
    await store.elapse(0.02)
    both = await store.see_releases(("b", "x"), ("a", "two"), alive_for=60)
    equal([(each.schedule, each.release) for each in both], [("a", "one €"), ("a", "two"), ("b", "x")], "all")
    equal(both[0], one, "the first again")
    check(both[1].first_seen_at > one.first_seen_at, "the second was seen later")
    again = await store.see_releases(("a", "one €"), alive_for=60)
    equal(again[0].first_seen_at, one.first_seen_at, "first seen")
    check(again[0].seen_at > one.seen_at, "seen again")


@case
async def a_release_that_was_gone(store: Store) -> None:
    """A release that was not alive any more is seen anew."""
    (one,) = await store.see_releases(("a", "one"), alive_for=0.05)
    await store.elapse(0.1)
    (again,) = await store.see_releases(("a", "one"), alive_for=0.05)
    check(again.first_seen_at > one.seen_at, "it is first seen anew")


@case
async def old_releases_are_forgotten(store: Store) -> None:
    """Releases that were not seen for a long time are deleted, of the declared schedules only."""
    await store.see_releases(("a", "old"), ("b", "old"), alive_for=60)
    await store.elapse(0.1)
    seen = await store.see_releases(("a", "new"), alive_for=60, forget_after=0.05)
    equal([(each.schedule, each.release) for each in seen], [("a", "new")], "of the declared schedule")
    (other,) = await store.see_releases(("b", "old"), alive_for=60, forget_after=0.05)
    check(other.first_seen_at < other.seen_at, "one that is seen again is kept")


@driver_case
async def schedules_that_nobody_declares(store: Store) -> None:
    """Declared schedules whose releases were not seen for a time, by name."""
    await saved(store, schedule("c", declared=True), schedule("a", declared=True), schedule("put"))
    equal(names((await store.undeclared(alive_for=60)).rows), ["a", "c"], "before the first release")
    equal(names((await store.undeclared(alive_for=60, after="a")).rows), ["c"], "the next page")
    await store.see_releases(("a", "one"), alive_for=60)
    equal(names((await store.undeclared(alive_for=60)).rows), ["c"], "with a release")
    equal(names((await store.undeclared(1, alive_for=0)).rows), ["a"], "after its time, one of them")
