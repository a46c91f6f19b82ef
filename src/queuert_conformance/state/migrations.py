"""migrate and vacuum."""

from __future__ import annotations

import asyncio

from queuert_conformance.checks import check, equal
from queuert_conformance.state.build import key, new_job
from queuert_conformance.state.store import Store, driver_case
from queuert_conformance.state.unblock import behind, sources


async def some_data(store: Store) -> list[str]:
    (source,) = await sources(store, 1)
    job = await store.start(dedup=key("k"), **behind(source))
    return [source, job, (await store.running("run")).job.id]


@driver_case
async def migrating_again_does_nothing(store: Store) -> None:
    """On storage that is up to date nothing is applied, and the data is not changed."""
    jobs = await some_data(store)
    before = await store.jobs(*jobs)
    equal(await store.migrate(), [], "applied versions")
    equal(await store.migrate(), [], "applied versions, once more")
    equal(await store.jobs(*jobs), before, "the jobs")


@driver_case
async def several_migrate_at_once(store: Store) -> None:
    """Several processes may migrate at once."""
    other = await store.second()
    await some_data(store)
    applied = await asyncio.gather(*(store.spawn(each.migrate()) for each in (store, other, store, other)))
    equal(applied, [[], [], [], []], "applied versions")
    equal(len(await store.list_jobs()), 3, "jobs")


@driver_case
async def vacuum_keeps_everything(store: Store) -> None:
    """vacuum changes no data."""
    await store.create(*(new_job("filler", input=b'"' + b"x" * 1000 + b'"') for _ in range(200)))
    await store.delete(*(row.id for row in await store.list_jobs(types=("filler",))))
    jobs = await some_data(store)
    before = await store.jobs(*jobs)
    vacuumed = await store.vacuum()
    check(min(vacuumed.before, vacuumed.after, vacuumed.gained) >= 0, f"what it gained: {vacuumed}")
    equal(await store.jobs(*jobs), before, "the jobs")
    equal([each.job_id for each in (await store.finish(jobs[0])).unblocked], [jobs[1]], "freed afterwards")
