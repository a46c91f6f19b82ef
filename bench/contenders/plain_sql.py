"""The upper limit of the machine: plain SQL on one narrow table.

It only guarantees that no job is taken twice.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import asyncpg

from bench.contenders.link import Task, run

TABLE = """
CREATE TABLE job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    type_name text NOT NULL,
    priority integer NOT NULL DEFAULT 100,
    scheduled_at timestamptz NOT NULL DEFAULT now(),
    input json NOT NULL,
    output json,
    status text NOT NULL DEFAULT 'pending',
    worker text,
    leased_until timestamptz,
    completed_at timestamptz
) WITH (fillfactor = 50);
CREATE INDEX job_pending ON job (type_name, priority, scheduled_at, id) WHERE status = 'pending';
"""
FILL = "INSERT INTO job (type_name, input) SELECT 'bench', {payload} FROM generate_series(1, {jobs}) AS n"
CLAIM = """
WITH taken AS (
    SELECT id FROM job WHERE type_name = $1 AND status = 'pending' AND scheduled_at <= now()
    ORDER BY priority, scheduled_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE job SET status = 'running', worker = 'w', leased_until = now() + interval '60s'
FROM taken WHERE job.id = taken.id RETURNING job.id, job.input::text
"""
COMPLETE = """
UPDATE job SET status = 'completed', output = 'null', completed_at = now(), leased_until = NULL
WHERE id = ANY ($1::bigint[]) AND status = 'running'
"""


async def prepare(task: Task) -> None:
    connection = await asyncpg.connect(task.url)
    await connection.execute(TABLE)
    if task.jobs:
        payload = json.dumps(task.payload(0)).replace("'", "''")
        await connection.execute(FILL.format(payload=f"'{payload}'::json", jobs=task.jobs))
    await connection.close()


async def drain(task: Task) -> dict[str, Any]:
    """Claim and complete `batch` jobs at once, in two transactions, until none is left."""
    clients, batch = task.options["clients"], task.options["batch"]
    connections = [await asyncpg.connect(task.url) for _ in range(clients)]
    statements = [(await one.prepare(CLAIM), await one.prepare(COMPLETE)) for one in connections]

    async def work(claim: Any, complete: Any) -> int:
        done = 0
        while rows := await claim.fetch("bench", batch):
            await complete.fetch([row[0] for row in rows])
            done += len(rows)
        return done

    began = time.perf_counter()
    done = sum(await asyncio.gather(*(work(*both) for both in statements)))
    seconds = time.perf_counter() - began
    for connection in connections:
        await connection.close()
    assert done == task.jobs, f"{done} of {task.jobs} jobs"
    return {"rate": done / seconds}


async def start_bulk(task: Task) -> dict[str, Any]:
    """1,000 rows per INSERT, each in its own transaction."""
    connection = await asyncpg.connect(task.url)
    statement = await connection.prepare("INSERT INTO job (type_name, input) SELECT $1, unnest($2::json[])")
    began = time.perf_counter()
    for start in range(0, task.jobs, 1000):
        await statement.fetch("bench", [json.dumps(task.payload(start + n)) for n in range(1000)])
    seconds = time.perf_counter() - began
    await connection.close()
    return {"rate": task.jobs / seconds}


async def measure(task: Task) -> dict[str, Any]:
    return await {"drain": drain, "start-bulk": start_bulk}[task.work](task)


if __name__ == "__main__":
    run(prepare, None, measure)
