"""Compare storage layouts on a real server: python -m bench.storage URL [--rows 100000] [--rounds
3].

Prints jobs/s for insert and for claim 100 + settle 100 with one and two clients, WAL bytes per job,
growth of heap and indexes, dead rows, and the same with a snapshot held open. Layouts take turns
within a round. The medians are shown.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

import asyncpg

HERE = Path(__file__).parent
BATCH = 100

CLAIM = {
    "a": """
        WITH taken AS (
            SELECT id FROM a_job WHERE ready AND type_name = $1 AND scheduled_at <= now()
            ORDER BY priority, scheduled_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
        )
        UPDATE a_job AS j SET status = 'running', ready = NULL, attempt = attempt + 1, last_attempt_at = now(),
            leased_by = 'w', leased_until = now() + interval '60s', token = nextval('a_token')
        FROM taken WHERE j.id = taken.id
        RETURNING j.id, j.token, j.type_name, j.chain_id, j.chain_index, j.input::text, j.attempt, j.created_at,
            j.deadline <= now()""",
    "b": """
        WITH taken AS (
            DELETE FROM b_ready AS r USING (
                SELECT ctid FROM b_ready WHERE type_name = $1 AND scheduled_at <= now()
                ORDER BY priority, scheduled_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
            ) AS head WHERE r.ctid = head.ctid RETURNING r.id, r.attempt
        ), run AS (
            INSERT INTO b_running SELECT id, nextval('b_token'), $1, 'w', now() + interval '60s', attempt + 1, now()
            FROM taken RETURNING job_id, token, attempt
        )
        SELECT j.id, run.token, j.type_name, j.chain_id, j.chain_index, j.input::text, run.attempt, j.created_at,
            j.deadline <= now()
        FROM run JOIN b_job AS j ON j.id = run.job_id""",
    "c": """
        WITH taken AS (
            DELETE FROM c_ready AS r USING (
                SELECT ctid FROM c_ready WHERE type_name = $1 AND scheduled_at <= now()
                ORDER BY priority, scheduled_at, id LIMIT $2 FOR UPDATE SKIP LOCKED
            ) AS head WHERE r.ctid = head.ctid RETURNING r.id, r.attempt
        ), lease AS (
            INSERT INTO c_lease SELECT nextval('c_token'), 'w', now() + interval '60s', now(), array_agg(id),
                array_agg(attempt + 1) FROM taken HAVING count(*) > 0 RETURNING token
        )
        SELECT j.id, (SELECT token FROM lease), j.type_name, j.chain_id, j.chain_index, j.input::text,
            taken.attempt + 1, j.created_at, j.deadline <= now()
        FROM taken JOIN c_job AS j ON j.id = taken.id""",
}

SETTLE = {
    "a": """
        WITH done AS (
            UPDATE a_job AS j SET status = 'completed', output = x.output::json, completed_at = now(),
                completed_by = 'w', leased_by = NULL, leased_until = NULL, token = NULL
            FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS x (id, token, output)
            WHERE j.id = x.id AND j.token = x.token AND j.status = 'running' RETURNING j.chain_id
        )
        SELECT count(*), bool_or(EXISTS (SELECT FROM blocker WHERE blocker.chain_id = done.chain_id)) FROM done""",
    "b": """
        WITH gone AS (
            DELETE FROM b_running AS r USING unnest($1::uuid[], $2::bigint[], $3::text[]) AS x (id, token, output)
            WHERE r.job_id = x.id AND r.token = x.token RETURNING r.job_id, r.attempt, r.started_at, x.output
        ), done AS (
            UPDATE b_job AS j SET status = 'completed', output = gone.output::json, attempt = gone.attempt,
                last_attempt_at = gone.started_at, completed_at = now(), completed_by = 'w'
            FROM gone WHERE j.id = gone.job_id RETURNING j.chain_id
        )
        SELECT count(*), bool_or(EXISTS (SELECT FROM blocker WHERE blocker.chain_id = done.chain_id)) FROM done""",
    # Only whole batches can be settled this way. Settling a part would rewrite the lease's row each
    # time.
    "c": """
        WITH gone AS (
            DELETE FROM c_lease WHERE token = ($2::bigint[])[1] RETURNING started_at
        ), done AS (
            UPDATE c_job AS j SET status = 'completed', output = x.output::json, attempt = attempt + 1,
                last_attempt_at = gone.started_at, completed_at = now(), completed_by = 'w'
            FROM gone, unnest($1::uuid[], $3::text[]) AS x (id, output) WHERE j.id = x.id RETURNING j.chain_id
        )
        SELECT count(*), bool_or(EXISTS (SELECT FROM blocker WHERE blocker.chain_id = done.chain_id)) FROM done""",
}


async def insert(connection: Any, layout: str, start: int, number: int) -> None:
    """Jobs `start` to `start + number`, ready to be claimed."""
    ready = ", ready" if layout == "a" else ""
    value = ", true" if layout == "a" else ""
    await connection.execute(f"""
        INSERT INTO {layout}_job (id, type_name, chain_id, chain_type, chain_index, input{ready})
        SELECT nth_id(g), 't', nth_id(g), 't', 0,
            json_build_object('order_id', g, 'text', noise.text){value}
        FROM generate_series({start}, {start + number - 1}) AS g JOIN noise ON n = g % 100""")
    if layout != "a":
        await connection.execute(f"""
            INSERT INTO {layout}_ready SELECT 't', 100, now(), nth_id(g), 0
            FROM generate_series({start}, {start + number - 1}) AS g""")


async def drain(url: str, layout: str, clients: int, number: int | None = None) -> tuple[int, float, list[float]]:
    """Claim and settle until nothing is left (or `number` batches per client). Returns jobs,
    seconds, and the seconds of each batch.
    """
    batches: list[float] = []
    settled = 0

    async def work() -> None:
        nonlocal settled
        connection = await asyncpg.connect(url)
        claim, settle = await connection.prepare(CLAIM[layout]), await connection.prepare(SETTLE[layout])
        done = 0
        while number is None or done < number:
            began = time.perf_counter()
            rows = await claim.fetch("t", BATCH)
            if not rows:
                break
            await settle.fetch([row[0] for row in rows], [row[1] for row in rows], ['{"ok": true}'] * len(rows))
            settled += len(rows)
            done += 1
            batches.append(time.perf_counter() - began)
        await connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(clients)))
    return settled, time.perf_counter() - began, batches


async def sizes(connection: Any, layout: str) -> tuple[int, int, int]:
    """Bytes of heap, bytes of indexes, dead rows, over the layout's tables."""
    await connection.execute("SELECT pg_stat_force_next_flush()")
    row = await connection.fetchrow(f"""
        SELECT sum(pg_table_size(relid))::bigint, sum(pg_indexes_size(relid))::bigint, sum(n_dead_tup)::bigint
        FROM pg_stat_user_tables WHERE relname LIKE '{layout}\\_%'""")
    return row[0], row[1], row[2]


async def one(url: str, layout: str, rows: int, jobs: int, size: int, pinned: bool) -> dict[str, float]:
    admin = await asyncpg.connect(url)
    await admin.execute("DROP SCHEMA IF EXISTS storage CASCADE; CREATE SCHEMA storage; SET search_path = storage")
    await admin.execute((HERE / "layouts.sql").read_text())
    # Inputs that do not compress: a repeated letter would not take 4 kB.
    await admin.execute(f"""
        CREATE TABLE noise AS
        SELECT n, substr(string_agg(md5(n || '-' || piece), ''), 1, {size}) AS text
        FROM generate_series(0, 99) AS n, generate_series(1, {size // 32 + 1}) AS piece GROUP BY n;
        ANALYZE noise""")
    found: dict[str, float] = {}
    # History: completed jobs that no operation should read again.
    await insert(admin, layout, 1, rows)
    await admin.execute(f"UPDATE {layout}_job SET status = 'completed', output = '1', completed_at = now()"
                        + (", ready = NULL" if layout == "a" else ""))  # fmt: skip
    if layout != "a":
        await admin.execute(f"TRUNCATE {layout}_ready")
    began = time.perf_counter()
    for start in range(rows + 1, rows + 2 * jobs + 1, 1000):
        await insert(admin, layout, start, 1000)
    found["insert jobs/s"] = 2 * jobs / (time.perf_counter() - began)
    await admin.execute("VACUUM ANALYZE")
    await admin.execute("CHECKPOINT")
    heap, index, _ = await sizes(admin, layout)
    lsn = await admin.fetchval("SELECT pg_current_wal_lsn()")
    snapshot = other = None
    if pinned:
        other = await asyncpg.connect(url)
        snapshot = other.transaction(isolation="repeatable_read")
        await snapshot.start()
        await other.fetch("SELECT 1")
    options = f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3Dstorage"
    settled, took, batches = await drain(options, layout, 1, jobs // BATCH)
    found["1 client jobs/s"] = settled / took
    if pinned:
        part = max(1, len(batches) // 10)
        found["last/first tenth"] = sum(batches[:part]) / sum(batches[-part:])
    more, took, _ = await drain(options, layout, 2)
    found["2 clients jobs/s"] = more / took
    total = settled + more
    found["WAL B/job"] = await admin.fetchval("SELECT pg_current_wal_lsn() - $1::pg_lsn", lsn) / total
    heap_after, index_after, dead = await sizes(admin, layout)
    found["heap B/job"] = (heap_after - heap) / total
    found["index B/job"] = (index_after - index) / total
    found["dead rows/job"] = dead / total
    if snapshot is not None and other is not None:
        await snapshot.rollback()
        await other.close()
    await admin.close()
    return found


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000])
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--sizes", type=int, nargs="*", default=[60, 4000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pinned", action="store_true")
    options = parser.parse_args()
    for rows in options.rows:
        for size in options.sizes:
            found: dict[str, list[dict[str, float]]] = {layout: [] for layout in "abc"}
            for _ in range(options.rounds):
                for layout in found:
                    found[layout].append(await one(options.url, layout, rows, options.jobs, size, options.pinned))
            names = list(found["a"][0])
            print(f"\n{rows} completed rows, inputs of {size} bytes{', snapshot held open' * options.pinned}")
            print("| layout | " + " | ".join(names) + " |\n|" + " --- |" * (len(names) + 1))
            for layout, runs in found.items():
                medians = [statistics.median(run[name] for run in runs) for name in names]
                print(
                    f"| {layout} | "
                    + " | ".join(f"{value:,.2f}" if value < 10 else f"{value:,.0f}" for value in medians)
                    + " |",
                    flush=True,
                )


asyncio.run(main())
