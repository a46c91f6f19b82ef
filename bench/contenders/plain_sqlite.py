"""The upper limit of SQLite from Python: plain SQL on one narrow table, as durable as queuert (WAL,
synchronous FULL).
"""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

from bench.contenders.link import Task, run

TABLE = """
CREATE TABLE job (
    id INTEGER PRIMARY KEY, type_name TEXT NOT NULL, priority INTEGER NOT NULL DEFAULT 100,
    input TEXT NOT NULL, output TEXT, status TEXT NOT NULL DEFAULT 'pending'
)
"""
INDEX = "CREATE INDEX job_pending ON job (type_name, priority, id) WHERE status = 'pending'"
CLAIM = """
UPDATE job SET status = 'running' WHERE id IN (
    SELECT id FROM job WHERE type_name = 'bench' AND status = 'pending' ORDER BY priority, id LIMIT ?
) RETURNING id, input
"""
COMPLETE = "UPDATE job SET status = 'completed', output = 'null' WHERE id = ?"


async def prepare(task: Task) -> None: ...


async def measure(task: Task) -> dict[str, Any]:
    """Claim and complete `batch` jobs at once, in two transactions, until none is left."""
    connection = sqlite3.connect(task.url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(TABLE)
    connection.execute(INDEX)
    connection.execute("BEGIN")
    rows = (("bench", json.dumps(task.payload(number))) for number in range(task.jobs))
    connection.executemany("INSERT INTO job (type_name, input) VALUES (?, ?)", rows)
    connection.execute("COMMIT")
    batch, done = task.options["batch"], 0
    began = time.perf_counter()
    while True:
        connection.execute("BEGIN IMMEDIATE")
        claimed = connection.execute(CLAIM, (batch,)).fetchall()
        connection.execute("COMMIT")
        if not claimed:
            break
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(COMPLETE, [(row[0],) for row in claimed])
        connection.execute("COMMIT")
        done += len(claimed)
    seconds = time.perf_counter() - began
    connection.close()
    assert done == task.jobs, f"{done} of {task.jobs} jobs"
    return {"rate": done / seconds}


if __name__ == "__main__":
    run(prepare, None, measure)
