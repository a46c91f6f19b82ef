"""list_jobs, list_chain_jobs and list_blocked_jobs: filters, order and pages."""

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
    new_ids,
    new_job,
    next_job,
)
from queuert_conformance.state.settle import ENDINGS
from queuert_conformance.state.store import Store, case, driver_case
from queuert_conformance.state.unblock import behind, sources


async def listed(store: Store, page: PageRequest | None = None, **where: Any) -> list[str]:
    rows = await store.list_jobs(page or PageRequest(1000), **where)
    return [row.id for row in rows]


async def filled(store: Store, number: int, type_name: str = "task") -> list[str]:
    """Jobs in the order of their ids. They are stored in another order."""
    ids = new_ids(number)
    await store.create(*(new_job(type_name, id=each) for each in reversed(ids)))
    return ids


@case
async def jobs_come_in_id_order(store: Store) -> None:
    """Jobs are listed by id, ascending or descending, whatever the order of their creation is."""
    ids = await filled(store, 7)
    equal(await listed(store), ids, "ascending")
    equal(await listed(store, PageRequest(100, order="desc")), ids[::-1], "descending")


@driver_case
async def pages_follow_each_other(store: Store) -> None:
    """A page has at most `limit` rows after the given key. Together, pages list all rows once."""
    ids = await filled(store, 10)
    orders: tuple[tuple[Order, list[str]], ...] = (("asc", ids), ("desc", ids[::-1]))
    for order, wanted in orders:
        after: str | None = None
        found: list[str] = []
        for size in (3, 3, 3, 1, 0):
            page = await listed(store, PageRequest(3, after, order))
            equal(len(page), size, "rows of a page")
            found += page
            after = page[-1] if page else after
        equal(found, wanted, f"all pages, {order}")


@case
async def pages_are_stable(store: Store) -> None:
    """Rows that are added or deleted between two pages cause no repeated or missing rows."""
    ids = new_ids(20)
    await store.create(*(new_job(id=each) for each in ids[0::2]))
    first = await listed(store, PageRequest(4))
    equal(first, ids[0:8:2], "the first page")
    await store.create(*(new_job(id=each) for each in ids[1::2]))
    await store.delete(first[-1], first[0])
    equal(await listed(store, PageRequest(100, first[-1])), ids[7:], "the rest")


@case
async def by_type(store: Store) -> None:
    """A type filter lists the jobs of that type, continuations included."""
    one = await filled(store, 3, "one")
    two = await filled(store, 2, "two")
    claimed = await store.claim_one("one")
    following = next_job(claimed.job, "two")
    await store.settle(continued(claimed, following))
    equal(await listed(store, types=("one",)), one, "type one")
    equal(await listed(store, types=("two",)), [*two, following.id], "type two")
    equal(await listed(store, types=("three",)), [], "a type without jobs")


@driver_case
async def by_status(store: Store) -> None:
    """A status filter lists the jobs of that status, for every status."""
    (source,) = await sources(store, 1)
    blocked = await store.start(**behind(source))
    running = (await store.running("run")).job.id
    ended: dict[Status, str] = {status: await store.start("end") for status in ENDINGS}
    await store.settle(*(end_as(status, job) for status, job in ended.items()))
    equal(await listed(store, statuses=("pending",)), [source], "pending")
    equal(await listed(store, statuses=("blocked",)), [blocked], "blocked")
    equal(await listed(store, statuses=("running",)), [running], "running")
    for status, job in ended.items():
        equal(await listed(store, statuses=(status,)), [job], status)


@driver_case
async def by_ids(store: Store) -> None:
    """An id filter lists the jobs that exist, in id order. An empty one lists nothing."""
    ids = await filled(store, 5)
    equal(await listed(store, job_ids=(ids[3], new_id(), ids[1], ids[3])), [ids[1], ids[3]], "some ids")
    equal(await listed(store, job_ids=(new_id(),)), [], "an unknown id")
    equal(await listed(store, job_ids=()), [], "no ids")


@driver_case
async def by_creation_time(store: Store) -> None:
    """Time filters list what was created after one moment and before another."""
    old = await filled(store, 2)
    await store.elapse(0.01)
    (middle,) = await filled(store, 1)
    await store.elapse(0.01)
    new = await filled(store, 2)
    moments = [(await store.job(each)).created_at for each in (old[0], middle, new[0])]
    before, at, after = moments[0], moments[1], moments[2]
    equal(await listed(store, created_from=at + (after - at) / 2), new, "after the middle")
    equal(await listed(store, created_before=before + (at - before) / 2), old, "before the middle")
    both = await listed(store, created_from=before + (at - before) / 2, created_before=at + (after - at) / 2)
    equal(both, [middle], "in between")
    equal(await listed(store, created_from=PAST, created_before=FUTURE), [*old, middle, *new], "wide limits")
    equal(await listed(store, created_from=FUTURE), [], "after everything")
    equal(await listed(store, created_before=PAST), [], "before everything")


@driver_case
async def filters_combine(store: Store) -> None:
    """All filters can be combined, with order and pages."""
    one = await filled(store, 6, "one")
    two = await filled(store, 2, "two")
    await store.settle(*(completed(job) for job in (one[0], one[2], one[3], two[0])))
    equal(await listed(store, types=("one",), statuses=("completed",)), [one[0], one[2], one[3]], "type and status")
    page = PageRequest(2, one[3], "desc")
    equal(await listed(store, page, types=("one",), statuses=("completed",)), [one[2], one[0]], "a page of it")
    both = await listed(store, statuses=("pending",), job_ids=(one[0], one[1], two[1]), created_from=PAST)
    equal(both, [one[1], two[1]], "status, ids and time")


@driver_case
async def chain_jobs_come_in_their_order(store: Store) -> None:
    """The jobs of a chain are listed by their index as a number, both ways and in pages."""
    claimed = await store.running()
    await store.start("other")
    for _ in range(11):
        await store.settle(continued(claimed, next_job(claimed.job)))
        claimed = await store.claim_one()
    chain = claimed.job.chain_id

    async def indexes(page: PageRequest) -> list[int]:
        return [row.chain_index for row in await store.chain_jobs(chain, page)]

    equal(await indexes(PageRequest(100)), list(range(12)), "ascending")
    equal(await indexes(PageRequest(100, order="desc")), list(range(12))[::-1], "descending")
    equal(await indexes(PageRequest(2, "8")), [9, 10], "a page")
    equal(await indexes(PageRequest(5, "9")), [10, 11], "the last page")
    equal(await indexes(PageRequest(5, "11")), [], "after the last")
    equal(await indexes(PageRequest(3, "10", "desc")), [9, 8, 7], "a page, descending")
    equal(await store.chain_jobs(new_id()), [], "an unknown chain")


@driver_case
async def blocked_jobs_stay_listed(store: Store) -> None:
    """The jobs that have a chain as a blocker are listed with any status, by id, in pages."""
    first, second = await sources(store, 2)
    ids = new_ids(5)
    await store.create(*(new_job(id=each, **behind(first)) for each in reversed(ids[:4])))
    await store.create(new_job(id=ids[4], **behind(second, first)))
    await store.finish(first)
    await store.settle(completed(ids[1]))

    async def waiting(chain: str, page: PageRequest) -> list[str]:
        return [row.id for row in await store.blocked_jobs(chain, page)]

    equal(await waiting(first, PageRequest(100)), ids, "ascending")
    equal(await waiting(first, PageRequest(100, order="desc")), ids[::-1], "descending")
    equal(await waiting(first, PageRequest(2, ids[1])), ids[2:4], "a page")
    equal(await waiting(first, PageRequest(2, ids[1], "desc")), [ids[0]], "a page, descending")
    equal(await waiting(second, PageRequest(100)), [ids[4]], "the other chain")
    equal(await waiting(new_id(), PageRequest(100)), [], "an unknown chain")
    statuses = [row.status for row in await store.blocked_jobs(first)]
    equal(statuses, ["pending", "completed", "pending", "pending", "blocked"], "statuses")


@case
async def empty_storage(store: Store) -> None:
    """On empty storage, all listings are empty."""
    equal(await listed(store), [], "jobs")
    equal(await store.list_chains(), [], "chains")
    equal(await listed(store, PageRequest(5, new_id(), "desc")), [], "jobs after some key")
