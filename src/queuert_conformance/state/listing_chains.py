"""list_chains: a chain is listed with its first job's type and its current job's status."""

from __future__ import annotations

from typing import Any

from queuert.base.statuses import Status
from queuert.records.listings import Order, PageRequest
from queuert_conformance.checks import equal
from queuert_conformance.state.build import (
    FUTURE,
    PAST,
    completed,
    continued,
    end_as,
    new_id,
    new_job,
    next_job,
    waiting_for,
)
from queuert_conformance.state.listing import filled
from queuert_conformance.state.settle import ENDINGS
from queuert_conformance.state.store import Store, case, driver_case
from queuert_conformance.state.unblock import behind, sources


async def listed(store: Store, page: PageRequest | None = None, **where: Any) -> list[str]:
    rows = await store.list_chains(page or PageRequest(1000), **where)
    return [row.first.id for row in rows]


async def moved_on(store: Store, chain_id: str, type_name: str) -> str:
    """Continue a chain of one job without a worker. Returns the id of its next job."""
    following = next_job(await store.job(chain_id), type_name)
    await store.settle(continued(chain_id, following))
    return following.id


@case
async def chains_come_in_id_order(store: Store) -> None:
    """Each chain is listed once, by its id, ascending or descending."""
    ids = await filled(store, 5)
    await moved_on(store, ids[1], "next")
    equal(await listed(store), ids, "ascending")
    equal(await listed(store, PageRequest(100, order="desc")), ids[::-1], "descending")


@case
async def a_chain_has_both_its_jobs(store: Store) -> None:
    """A listed chain has its first and its current job, as if it was read by id."""
    ids = await filled(store, 3)
    await moved_on(store, ids[1], "next")
    equal(await store.list_chains(), await store.chains(*ids), "chains")


@driver_case
async def pages_follow_each_other(store: Store) -> None:
    """The chain's id is the key for the next page."""
    ids = await filled(store, 6)
    await moved_on(store, ids[2], "next")
    equal(await listed(store, PageRequest(3)), ids[:3], "the first page")
    await store.create(new_job())
    await store.delete(ids[2])
    equal((await listed(store, PageRequest(3, ids[2]))), ids[3:], "the second page")
    equal(await listed(store, PageRequest(2, ids[1], "desc")), ids[:1], "the last page, descending")


@case
async def the_type_is_the_first_jobs(store: Store) -> None:
    """A type filter looks at the first job, not at the current one."""
    one, two = await filled(store, 2, "one"), await filled(store, 1, "two")
    await moved_on(store, one[0], "two")
    equal(await listed(store, chain_types=("one",)), one, "type one")
    equal(await listed(store, chain_types=("two",)), two, "type two")


@case
async def the_status_is_the_current_jobs(store: Store) -> None:
    """A status filter looks at the current job: a chain that has moved on is not completed."""
    first, second = await filled(store, 2)
    await moved_on(store, first, "next")
    equal(await listed(store, statuses=("completed",)), [], "completed")
    equal(sorted(await listed(store, statuses=("pending",))), sorted([first, second]), "pending")
    await store.settle(completed(await store.claim_one("next")))
    equal(await listed(store, statuses=("completed",)), [first], "completed at the end")
    equal(await listed(store, statuses=("pending",)), [second], "still pending")


@case
async def every_status_can_be_listed(store: Store) -> None:
    """A status filter works for every status."""
    (source,) = await sources(store, 1)
    blocked, running = await store.start(**behind(source)), (await store.running("run")).job.id
    ended: dict[Status, str] = {status: await store.start("end") for status in ENDINGS}
    await store.settle(*(end_as(status, job) for status, job in ended.items()))
    equal(await listed(store, statuses=("blocked",)), [blocked], "blocked")
    equal(await listed(store, statuses=("running",)), [running], "running")
    for status, job in ended.items():
        equal(await listed(store, statuses=(status,)), [job], status)


@driver_case
async def by_status_the_current_job_is_the_key(store: Store) -> None:
    """With a status filter, the order and the page key are the current jobs' ids."""
    ids = await filled(store, 5)
    moved = [await moved_on(store, ids[position], "next") for position in (3, 0)]
    wanted = [ids[1], ids[2], ids[4], ids[3], ids[0]]
    equal(await listed(store, statuses=("pending",)), wanted, "ascending")
    equal(await listed(store, PageRequest(100, order="desc"), statuses=("pending",)), wanted[::-1], "descending")
    orders: tuple[tuple[Order, list[str]], ...] = (("asc", wanted), ("desc", wanted[::-1]))
    for order, expected in orders:
        found: list[str] = []
        after: str | None = None
        for _ in range(3):
            page = await store.list_chains(PageRequest(2, after, order), statuses=("pending",))
            found += [row.first.id for row in page]
            after = page[-1].current.id if page else after
        equal(found, expected, f"page by page, {order}")
    equal(await listed(store, PageRequest(9, moved[0]), statuses=("pending",)), [ids[0]], "after the fourth")


@driver_case
async def by_type_and_status(store: Store) -> None:
    """Type and status filters can be combined, also for chains that have moved on."""
    one, two = await filled(store, 3, "one"), await filled(store, 2, "two")
    await moved_on(store, one[1], "two")
    await store.finish(one[2])
    await store.finish(two[0])
    equal(await listed(store, chain_types=("one",), statuses=("pending",)), [one[0], one[1]], "pending")
    equal(await listed(store, chain_types=("one",), statuses=("completed",)), [one[2]], "completed")
    equal(await listed(store, chain_types=("two",), statuses=("pending",)), [two[1]], "pending, the other type")


@case
async def by_ids(store: Store) -> None:
    """An id filter takes chain ids. The id of a later job lists nothing."""
    ids = await filled(store, 4)
    later_id = await moved_on(store, ids[0], "next")
    equal(await listed(store, chain_ids=(ids[2], ids[0], new_id())), [ids[0], ids[2]], "chains")
    equal(await listed(store, chain_ids=(later_id,)), [], "the id of a later job")
    equal(await listed(store, chain_ids=()), [], "no ids")


@driver_case
async def by_creation_time(store: Store) -> None:
    """Time filters look at the first job: a chain keeps its age when it moves on."""
    (old,) = await filled(store, 1)
    await store.elapse(0.02)
    (new,) = await filled(store, 1)
    await moved_on(store, old, "next")
    before, after = [(await store.job(each)).created_at for each in (old, new)]
    between = before + (after - before) / 2
    equal(await listed(store, created_before=between), [old], "before")
    equal(await listed(store, created_from=between), [new], "after")
    equal(await listed(store, created_from=PAST, created_before=FUTURE), [old, new], "wide limits")


@driver_case
async def only_roots(store: Store) -> None:
    """`root_only` lists the chains that no job has as a blocker, with or without own blockers."""
    (source,) = await sources(store, 1)
    middle = await store.start("middle", **behind(source))
    last = await store.start(blockers=waiting_for(middle, chain_type="middle"))
    alone = await store.start()
    equal(await listed(store, root_only=True), [last, alone], "roots")
    equal(await listed(store, root_only=False), [source, middle, last, alone], "all")
    equal(await listed(store, PageRequest(1, order="desc"), root_only=True), [alone], "a page of roots")
    await store.settle(completed(source), completed(middle), completed(last))
    equal(await listed(store, root_only=True), [last, alone], "roots, when the blockers are completed")
    equal(await listed(store, root_only=True, statuses=("completed",)), [last], "completed roots")
    await store.delete(last)
    equal(await listed(store, root_only=True), [middle, alone], "roots after a deletion")


@case
async def a_blocker_of_a_later_job_is_no_root(store: Store) -> None:
    """A chain that a continuation waits for is not a root."""
    (source,) = await sources(store, 1)
    claimed = await store.running()
    await store.settle(continued(claimed, next_job(claimed.job, **behind(source))))
    equal(await listed(store, root_only=True), [claimed.job.id], "roots")
