"""reap: reclaiming jobs from workers that are gone."""

from __future__ import annotations

from queuert.records.model import Lease, When
from queuert_conformance.checks import check, equal, only, same_json
from queuert_conformance.state.build import completed, new_id, new_job, queue, request
from queuert_conformance.state.store import Store, case, driver_case


async def abandoned(store: Store, number: int, type_name: str = "task") -> list[str]:
    """Running jobs with an expired lease, oldest lease first."""
    ids: list[str] = []
    for _ in range(number):
        ids.append((await store.running(type_name, lease=0)).job.id)
        await store.elapse(0.002)
    return ids


@case
async def an_ended_lease_is_reaped(store: Store) -> None:
    """A reaped job is pending with the error, the same schedule and attempt, and no claim."""
    claimed = await store.running(lease=0)
    await store.elapse(0.002)
    row = only(await store.reap("task", error=b'{"code":"GONE"}'), "reaped jobs")
    equal((row.id, row.status, row.attempt), (claimed.job.id, "pending", 1), "the job")
    equal((row.scheduled_at, row.last_attempt_at), (claimed.job.scheduled_at, claimed.job.last_attempt_at), "times")
    equal((row.leased_by, row.leased_until, row.token), (None, None, None), "fields of the claim")
    same_json(row.last_error, b'{"code":"GONE"}', "last_error")
    equal(await store.job(claimed.job.id), row, "the stored row")
    again = await store.claim_one()
    equal((again.job.id, again.job.attempt), (claimed.job.id, 2), "the next claim")


@case
async def a_lease_ends_in_time(store: Store) -> None:
    """A lease is reaped when it has expired, by the database's clock, and only once."""
    claimed = await store.running(lease=0.2)
    await store.elapse(0.3)
    equal([row.id for row in await store.reap("task")], [claimed.job.id], "reaped later")
    equal(await store.reap("task"), [], "reaped a second time")


@case
async def valid_leases_are_kept(store: Store) -> None:
    """Jobs whose lease has not expired, and jobs that are not running, are not changed."""
    running = await store.running()
    pending, done = await store.start(), await store.start()
    await store.settle(completed(done))
    equal(await store.reap("task"), [], "reaped")
    equal(await store.statuses(running.job.id, pending, done), ["running", "pending", "completed"], "statuses")


@case
async def only_these_types(store: Store) -> None:
    """Only the given types are reaped."""
    (one,), (two,), (three,) = [await abandoned(store, 1, name) for name in ("a", "b", "c")]
    reaped = await store.reap("a", "c", "missing")
    equal([row.id for row in reaped], [one, three], "reaped")
    equal(await store.statuses(two), ["running"], "the job of another type")


@driver_case
async def ignored_jobs_are_kept(store: Store) -> None:
    """Ignored ids are never reaped, and do not count for the limit."""
    jobs = await abandoned(store, 4)
    reaped = await store.reap("task", ignored=[jobs[0], jobs[1], new_id()], limit=1)
    equal([row.id for row in reaped], [jobs[2]], "reaped")
    wanted = ["running", "running", "pending", "running"]
    equal(await store.statuses(*jobs), wanted, "statuses")


@case
async def oldest_leases_first(store: Store) -> None:
    """Leases that expired first are reaped first, up to the limit."""
    jobs = await abandoned(store, 5)
    equal([row.id for row in await store.reap("task", limit=2)], jobs[:2], "first turn")
    equal([row.id for row in await store.reap("task", limit=2)], jobs[2:4], "second turn")
    equal([row.id for row in await store.reap("task", limit=2)], jobs[4:], "third turn")


@case
async def the_end_of_the_lease_decides(store: Store) -> None:
    """The order is by the end of the lease, not by claim, priority or id."""
    await store.create(new_job(priority=1), new_job(priority=2), new_job(priority=3))
    one, two, three = (await store.claim()).jobs
    durations = ((one, 0.15), (two, 0.05), (three, 0.1))
    await store.renew(*(Lease(each.job.id, each.job.token or 0, seconds) for each, seconds in durations))
    await store.elapse(0.3)
    wanted = [two.job.id, three.job.id, one.job.id]
    equal([row.id for row in await store.reap("task")], wanted, "reaped")


@case
async def a_rolled_back_reaping_never_was(store: Store) -> None:
    """After a rollback the claim is unchanged, and its token is valid."""
    claimed = await store.running(lease=0)
    async with store.rolled_back() as tx:
        equal(len(await store.reap("task", tx=tx)), 1, "reaped inside the transaction")
    equal(await store.job(claimed.job.id), claimed.job, "the job")
    equal((await store.settle(completed(claimed))).applied, [True], "applied")


@case
async def a_reaped_job_past_its_deadline(store: Store) -> None:
    """A reaped job whose deadline has passed meanwhile is marked expired at its next claim."""
    await store.running(lease=0, deadline=When(after=0.2))
    await store.elapse(0.3)
    equal(len(await store.reap("task")), 1, "reaped")
    check((await store.claim_one()).expired, "the job must be marked as expired")


@case
async def several_hundred_in_one_call(store: Store) -> None:
    """A call can reap as many jobs as the limit allows."""
    await store.create(*(new_job() for _ in range(300)))
    await store.claim(request(queue("task", lease=0), limit=300))
    equal(len(await store.reap("task", limit=200)), 200, "first turn")
    rows = await store.reap("task", limit=200)
    equal(len(rows), 100, "second turn")
    check(all(row.status == "pending" for row in rows), "all reaped jobs must be pending")


@case
async def jobs_of_dead_workers(store: Store) -> None:
    """Jobs of dead workers are reaped although their leases run. Other jobs are kept."""
    await store.create(*(new_job() for _ in range(4)))
    ids = [
        (await store.claim(request(queue("task"), limit=1, worker=worker))).jobs[0].job.id
        for worker in ("gone", "alive", "gone", "gone")
    ]
    equal(await store.reap("other", dead=["gone"]), [], "reaped of another type")
    reaped = await store.reap("task", dead=["gone", "missing"], ignored=[ids[2]], limit=2)
    equal(sorted(row.id for row in reaped), sorted([ids[0], ids[3]]), "reaped")
    equal([(row.status, row.attempt, row.leased_by) for row in reaped], [("pending", 1, None)] * 2, "their rows")
    equal(await store.statuses(ids[1], ids[2]), ["running", "running"], "the others")


@case
async def empty_call(store: Store) -> None:
    """Without types, nothing is reaped."""
    await abandoned(store, 1)
    equal(await store.reap(), [], "reaped")
