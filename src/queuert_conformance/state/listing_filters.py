"""list_jobs and list_chains: filters with several values, by error, end, chain, job and key, and
pages that end before they are full.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

from queuert.base.statuses import STATUSES, Status
from queuert.records.listings import ChainFilter, JobFilter, Order, PageRequest
from queuert_conformance.checks import check, equal
from queuert_conformance.state.build import (
    completed,
    continued,
    end_as,
    failed,
    key,
    new_id,
    new_job,
    next_job,
    put_back,
)
from queuert_conformance.state.listing import filled
from queuert_conformance.state.listing_chains import moved_on
from queuert_conformance.state.settle import ENDINGS
from queuert_conformance.state.store import Store, case, driver_case
from queuert_conformance.state.unblock import behind, sources

TIMEOUT = b'{"code":"TIMEOUT","type":"TimeoutError","message":"too slow"}'
PLAIN = b'{"code":"UNHANDLED_ERROR","type":"ValueError","message":"wrong"}'
ORDERS: tuple[Order, ...] = ("asc", "desc")


async def jobs(store: Store, page: PageRequest | None = None, **where: Any) -> list[str]:
    return [row.id for row in await store.list_jobs(page or PageRequest(1000), **where)]


async def chains(store: Store, page: PageRequest | None = None, **where: Any) -> list[str]:
    return [row.first.id for row in await store.list_chains(page or PageRequest(1000), **where)]


async def all_pages(store: Store, where: JobFilter, limit: int, examine: int, order: Order = "asc") -> list[str]:
    """The ids of all pages. Each may end before it is full."""
    found: list[str] = []
    after: str | None = None
    for _ in range(1000):
        page = PageRequest(limit, after, order, examine)
        if isinstance(where, ChainFilter):
            chains = await store.driver.run(store.operations.list_chains(where, page))
            stopped_at, ids = chains.stopped_at, [row.first.id for row in chains.rows]
            keys = [row.current.id if where.by_current else row.first.id for row in chains.rows]
        else:
            jobs = await store.driver.run(store.operations.list_jobs(where, page))
            stopped_at, ids = jobs.stopped_at, [row.id for row in jobs.rows]
            keys = [f"{row.chain_id}/{row.chain_index}" if where.by_chain else row.id for row in jobs.rows]
        check(len(keys) <= limit, f"a page of {limit} has {len(keys)} rows")
        found += ids
        if len(keys) < limit and stopped_at is None:
            return found
        after = keys[-1] if len(keys) == limit else stopped_at
    raise AssertionError("the pages do not end")


async def one_of_each(store: Store, type_name: str = "end") -> dict[Status, str]:
    """A chain in every status."""
    (source,) = await sources(store, 1)
    found: dict[Status, str] = {"blocked": await store.start(type_name, **behind(source))}
    found |= {status: await store.start(type_name) for status in ENDINGS}
    await store.settle(*(end_as(status, found[status]) for status in ENDINGS))
    found["running"] = (await store.running(type_name)).job.id
    found["pending"] = await store.start(type_name)
    return found


@case
async def several_statuses(store: Store) -> None:
    """A filter with several statuses lists the rows of each of them, in one order."""
    found = await one_of_each(store)
    sets: tuple[tuple[Status, ...], ...] = (
        ("failed", "expired"), ("pending", "running"), ("failed", "running", "blocked", "pending"),
        ("completed", "failed"), ("cancelled", "completed", "running"), STATUSES,
    )  # fmt: skip
    for statuses, order in product(sets, ORDERS):
        wanted = sorted((found[each] for each in statuses), reverse=order == "desc")
        page = PageRequest(1000, order=order)
        equal(await jobs(store, page, statuses=statuses, types=("end",)), wanted, f"jobs that are {statuses}")
        equal(await chains(store, page, statuses=statuses, types=("end",)), wanted, f"chains that are {statuses}")
        equal(await chains(store, page, statuses=statuses, chain_types=("end",)), wanted, f"of the type, {statuses}")
        after = PageRequest(1000, wanted[0], order)
        equal(await jobs(store, after, statuses=statuses, types=("end",)), wanted[1:], "the page after the first row")


@driver_case
async def several_types(store: Store) -> None:
    """A filter with several types lists the rows of each of them, in one order."""
    one, two = await filled(store, 2, "one"), await filled(store, 2, "two")
    await filled(store, 2, "three")
    three = await filled(store, 1, "one")
    await store.settle(failed(one[0]), failed(two[1]))
    wanted = [*one, *two, *three]
    equal(await jobs(store, types=("two", "one", "none")), wanted, "jobs")
    equal(await chains(store, chain_types=("two", "one", "none")), wanted, "chains")
    equal(await chains(store, types=("two", "one", "none")), wanted, "chains by their current jobs")
    equal(await jobs(store, types=("one", "two"), statuses=("failed",)), [one[0], two[1]], "failed jobs")
    equal(await chains(store, chain_types=("one", "two"), statuses=("failed",)), [one[0], two[1]], "failed chains")
    equal(await jobs(store, PageRequest(2, two[1], "desc"), types=("one", "two")), [two[0], one[1]], "a page")
    equal(await jobs(store, types=()), [], "jobs of no type")
    equal(await chains(store, statuses=()), [], "chains of no status")


@case
async def very_many_types(store: Store) -> None:
    """A filter takes hundreds of types, with any number of statuses."""
    names = tuple(f"type-{number}" for number in range(400))
    one, two = await store.start("type-7"), await store.start("type-399")
    await store.start("other")
    equal(await jobs(store, types=names), [one, two], "jobs")
    equal(await chains(store, chain_types=names), [one, two], "chains")
    equal(await chains(store, types=names), [one, two], "chains by their current jobs")
    await store.settle(failed(one))
    equal(await jobs(store, types=names, statuses=("failed", "pending")), [one, two], "jobs by status")
    equal(await chains(store, chain_types=names, statuses=("failed", "expired")), [one], "chains by status")
    following = await moved_on(store, two, "next")
    equal(await chains(store, chain_types=names), [one, two], "chains that have gone on")
    equal(await chains(store, chain_types=names, chain_ids=(two,)), [two], "chains by id")
    equal(await chains(store, chain_types=names, job_ids=(following,)), [two], "chains by job")


@case
async def jobs_by_chain_type(store: Store) -> None:
    """Jobs are listed by the type of their chain, with every status."""
    one, two = await filled(store, 2, "one"), await filled(store, 1, "two")
    following = await moved_on(store, one[0], "two")
    equal(await jobs(store, chain_types=("one",)), [*one, following], "jobs of the chains")
    equal(await jobs(store, chain_types=("one",), types=("two",)), [following], "of one type")
    equal(await jobs(store, chain_types=("two",)), two, "jobs of the other chain")
    await store.settle(failed(following))
    equal(await jobs(store, chain_types=("one",), statuses=("failed",)), [following], "failed")
    equal(await jobs(store, chain_types=("one",), statuses=("pending",)), [one[1]], "pending")


@case
async def chains_by_the_type_of_their_current_job(store: Store) -> None:
    """The type filter of chains looks at the current job, whatever the chain started with."""
    one, two = await filled(store, 2, "one"), await filled(store, 1, "two")
    await moved_on(store, one[0], "two")
    equal(await chains(store, types=("two",)), [two[0], one[0]], "chains that have come to the type")
    equal(await chains(store, types=("one",)), [one[1]], "chains that are still there")
    equal(await chains(store, types=("two",), chain_types=("one",)), [one[0]], "both types")
    await store.settle(failed(await store.claim_one("two")))
    equal(await chains(store, types=("two",), statuses=("failed",)), [two[0]], "with a status")


@case
async def chains_by_job(store: Store) -> None:
    """Chains are listed by the ids of any of their jobs, each chain once."""
    first, second, _ = await filled(store, 3)
    following = await moved_on(store, first, "next")
    equal(await chains(store, job_ids=(following,)), [first], "by a later job")
    equal(await chains(store, job_ids=(first, following, second, new_id())), [first, second], "by several jobs")
    equal(await chains(store, job_ids=(following,), chain_ids=(second,)), [], "with another chain")
    equal(await chains(store, job_ids=(following, second), chain_ids=(first,)), [first], "with the same chain")
    equal(await chains(store, job_ids=(first,), statuses=("pending",)), [first], "with a status")
    equal(await chains(store, job_ids=()), [], "without jobs")


@case
async def jobs_by_chain(store: Store) -> None:
    """Jobs of chains are listed chain by chain, first to last."""
    one, two, _ = await filled(store, 3)
    second = await moved_on(store, two, "next")
    third = await moved_on(store, one, "next")
    wanted = [one, third, two, second]
    equal(await jobs(store, chain_ids=(two, one, new_id())), wanted, "ascending")
    equal(await jobs(store, PageRequest(9, order="desc"), chain_ids=(two, one)), wanted[::-1], "descending")
    equal(await jobs(store, PageRequest(9, f"{one}/0"), chain_ids=(two, one)), wanted[1:], "after a job")
    equal(await jobs(store, PageRequest(9, f"{two}/1", "desc"), chain_ids=(two, one)), [two, third, one], "before one")
    equal(await jobs(store, chain_ids=(two, one), statuses=("completed",)), [one, two], "with a status")
    equal(await jobs(store, chain_ids=(one,), job_ids=(third, two)), [third], "with ids")
    equal(await jobs(store, chain_ids=()), [], "of no chain")
    for order in ORDERS:
        pages = await all_pages(store, JobFilter(chain_ids=(one, two), types=("next",)), 1, 1, order)
        equal(pages, [third, second] if order == "asc" else [second, third], f"page by page, {order}")


@driver_case
async def by_key(store: Store) -> None:
    """A key lists the latest chain that was started with it, for each chain type, and its jobs."""
    old, new, other = await store.start("one", dedup=key("k")), new_id(), new_id()
    await store.finish(old)
    await store.create(new_job("one", id=new, dedup=key("k")), new_job("two", id=other, dedup=key("k")))
    third = await store.start("two", dedup=key("l"))
    await store.start("two")
    equal(await chains(store, keys=("k",)), [new, other], "chains")
    equal(await chains(store, keys=("k", "l", "none"), chain_types=("two",)), [other, third], "chains of a type")
    following = await moved_on(store, new, "next")
    equal(await jobs(store, keys=("k",)), [new, following, other], "jobs")
    equal(await jobs(store, keys=("k",), statuses=("pending",), types=("next",)), [following], "jobs, with others")
    equal(await chains(store, keys=("k",), chain_ids=(other, third)), [other], "with chains")
    equal(await chains(store, keys=("none",)), [], "an unknown key")
    equal(await chains(store, keys=()), [], "without keys")


@driver_case
async def by_error(store: Store) -> None:
    """An error is found by its code or its type. A completed job has none."""
    slow, wrong, again, done, without = await filled(store, 5)
    await store.settle(failed(slow, TIMEOUT), failed(wrong, PLAIN), failed(without, b"null"))
    await store.settle(put_back(await store.claim_one(), TIMEOUT))
    for names, wanted in (
        (("TIMEOUT",), [slow, again]),
        (("TimeoutError",), [slow, again]),
        (("ValueError", "TIMEOUT"), [slow, wrong, again]),
        (("UNHANDLED_ERROR",), [wrong]),
        (("none",), []),
    ):
        equal(await jobs(store, errors=names), wanted, f"jobs with {names}")
        equal(await chains(store, errors=names), wanted, f"chains with {names}")
    equal(await jobs(store, errors=("TIMEOUT",), statuses=("failed",)), [slow], "failed")
    equal(await jobs(store, errors=("TIMEOUT",), statuses=("failed", "completed"), types=("task",)), [slow], "ended")
    await store.settle(completed(again), completed(done))
    equal(await jobs(store, errors=("TIMEOUT",)), [slow], "after a success")
    equal(await jobs(store, errors=("TIMEOUT",), statuses=("completed",)), [], "completed")


@case
async def by_end(store: Store) -> None:
    """A range of ends lists what has ended in it, from its start up to, but without, its end."""
    ids = await filled(store, 4)
    for job in ids[:3]:
        await store.settle(completed(job) if job == ids[1] else failed(job))
        await store.elapse(0.01)
    ends = [row.completed_at for row in await store.jobs(*ids[:3]) if row is not None]
    equal(await jobs(store, ended_from=ends[1]), ids[1:3], "jobs from the second on")
    equal(await chains(store, ended_before=ends[1]), ids[:1], "chains before the second")
    equal(await jobs(store, ended_from=ends[0], ended_before=ends[2]), ids[:2], "jobs in between")
    equal(await jobs(store, ended_from=ends[0], statuses=("failed",)), [ids[0], ids[2]], "with a status")
    equal(await jobs(store, ended_from=ends[0], statuses=("pending",)), [], "with a status that is no end")
    equal(await chains(store, ended_from=ends[0], created_before=ends[0]), ids[:3], "with the creation")


@driver_case
async def creation_is_a_half_open_range(store: Store) -> None:
    """A range of creation times includes its start, and not its end."""
    (old,) = await filled(store, 1)
    await store.elapse(0.01)
    (new,) = await filled(store, 1)
    moments = [row.created_at for row in await store.jobs(old, new) if row is not None]
    equal(await jobs(store, created_from=moments[0], created_before=moments[1]), [old], "jobs")
    equal(await chains(store, created_from=moments[1]), [new], "chains")


def _filters(chain: str, moment: Any) -> Iterable[dict[str, Any]]:
    """Filters that no index serves, in many combinations."""
    statuses: tuple[tuple[Status, ...] | None, ...] = (None, ("completed", "failed"), ("pending", "failed"))
    for status, types, chain_types in product(statuses, (None, ("one", "two")), (None, ("one",))):
        for more in ({}, {"created_before": moment}, {"errors": ("BOOM",)}, {"chain_ids": (chain,)}):
            yield {"statuses": status, "types": types, "chain_types": chain_types, **more}


@case
async def pages_that_end_early_lose_nothing(store: Store) -> None:
    """A page that has read enough rows says where it stopped. The pages have each row once."""
    ids = [*await filled(store, 4, "one"), *await filled(store, 4, "two"), *await filled(store, 4, "three")]
    await moved_on(store, ids[0], "two")
    following = await moved_on(store, ids[1], "three")
    await store.settle(failed(following), failed(ids[2]), completed(ids[3]), completed(ids[5]), failed(ids[6]))
    moment = (await store.job(ids[-1])).created_at
    for where in _filters(ids[0], moment):
        listed_jobs, listed_chains = await jobs(store, **where), await chains(store, **where)
        for order, limit in product(ORDERS, (1, 2, 5)):
            turn = -1 if order == "desc" else 1
            found = await all_pages(store, JobFilter(**where), limit, 3, order)
            equal(found, listed_jobs[::turn], f"jobs with {where}, {limit} at a time, {order}")
            found = await all_pages(store, ChainFilter(**where), limit, 3, order)
            equal(found, listed_chains[::turn], f"chains with {where}, {limit} at a time, {order}")


@case
async def chains_are_followed_in_bounded_pages(store: Store) -> None:
    """A long chain is read in pages that end early if few of its jobs match."""
    claimed = await store.running()
    chain = claimed.job.id
    for _ in range(6):
        await store.settle(continued(claimed, next_job(claimed.job)))
        claimed = await store.claim_one()
    wanted = [row.id for row in await store.chain_jobs(chain)]
    for order in ORDERS:
        turn = -1 if order == "desc" else 1
        equal(await all_pages(store, JobFilter(chain_ids=(chain,)), 2, 1, order), wanted[::turn], f"all, {order}")
        done = JobFilter(chain_ids=(chain,), statuses=("completed",))
        equal(await all_pages(store, done, 2, 1, order), wanted[:-1][::turn], f"completed, {order}")
        equal(await all_pages(store, ChainFilter(statuses=("completed",)), 2, 2, order), [], f"no chain, {order}")
