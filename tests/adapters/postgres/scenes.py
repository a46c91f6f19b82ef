"""Several connections to one installation, in an order of steps that the test decides.

A step that has to wait is started with `go`, and `blocked` says when it really waits: the server is asked, nobody
sleeps. `check` looks for whatever must never be in the tables, whichever way the steps went.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Literal, LiteralString, TypeVar, cast

import asyncpg
import psycopg
from tests.adapters.postgres.drivers import Watcher
from tests.support.postgres import Databases, template

from queuert.adapters.postgres.drivers.asyncpg import AsyncpgProvider
from queuert.adapters.postgres.drivers.errors import DEADLOCK_OR_SERIALIZATION, sqlstate
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.base.statuses import Status
from queuert.errors import QueuertError
from queuert.ports.program import Program
from queuert.ports.provider import run_async
from queuert.records.model import ChainRow, Claimed, ClaimRequest, Created, JobRow, NewJob, Settled, Settlement
from queuert_conformance.state.build import new_job, request

T = TypeVar("T")

Isolation = Literal["read_committed", "repeatable_read", "serializable"]

PATIENCE = 45.0
"""Seconds within which whatever is expected of a busy server must have come."""

COUNTED = "attempts that began, less those that ended, are those that run"

# Each query answers what must not be.
INVARIANTS: dict[str, LiteralString] = {
    "a pending job is in exactly one of ready, line, later and running": """
        SELECT j.id, flights FROM queuert_job AS j CROSS JOIN LATERAL (
            SELECT (SELECT count(*) FROM queuert_ready AS r WHERE r.id = j.id)
                + (SELECT count(*) FROM queuert_line AS e WHERE e.id = j.id)
                + (SELECT count(*) FROM queuert_later AS l WHERE l.id = j.id)
                + (SELECT count(*) FROM queuert_running AS r WHERE r.job_id = j.id) AS flights
        ) AS found WHERE flights <> (j.status = 'pending')::integer""",
    "a row of line says what its job says": """
        SELECT e.id FROM queuert_line AS e LEFT JOIN queuert_job AS j ON j.id = e.id
        WHERE (j.lane, j.type_name, j.priority, j.scheduled_at)
            IS DISTINCT FROM (e.lane, e.type_name, e.priority, e.scheduled_at)""",
    "a lane counts its claims, and those that have ended since": """
        SELECT l.lane FROM (
            SELECT lane, running FROM queuert_lane WHERE NOT open UNION ALL SELECT lane, running FROM queuert_turn
        ) AS l
        WHERE l.running <> (SELECT count(*) FROM queuert_running AS r WHERE r.lane = l.lane)
            + (SELECT count(*) FROM queuert_news AS n WHERE n.lane = l.lane AND n.kind < 0)""",
    "a lane that is open has one turn, and no other lane has one": """
        SELECT lane FROM queuert_lane AS l FULL JOIN queuert_turn AS t USING (lane)
        WHERE l.open IS DISTINCT FROM (t.ctid IS NOT NULL) OR t.name <> split_part(t.lane, E'\\x1f', 1)
        UNION ALL SELECT lane FROM queuert_turn GROUP BY lane HAVING count(*) > 1""",
    "a row of ready says what its job says": """
        SELECT r.id FROM queuert_ready AS r LEFT JOIN queuert_job AS j ON j.id = r.id
        WHERE (j.type_name, j.priority, j.scheduled_at) IS DISTINCT FROM (r.type_name, r.priority, r.scheduled_at)""",
    "a row of later says what its job says": """
        SELECT l.id FROM queuert_later AS l LEFT JOIN queuert_job AS j ON j.id = l.id
        WHERE (j.type_name, j.priority, j.scheduled_at) IS DISTINCT FROM (l.type_name, l.priority, l.scheduled_at)""",
    "a row of running says what its job says": """
        SELECT r.job_id FROM queuert_running AS r LEFT JOIN queuert_job AS j ON j.id = r.job_id
        WHERE j.type_name IS DISTINCT FROM r.type_name""",
    "a blocked job waits for as many chains as are not completed or still to free it, and for one at least": """
        SELECT j.id, j.blockers_left, count(b.*) FILTER (WHERE last.waits)
        FROM queuert_job AS j LEFT JOIN queuert_blocker AS b ON b.job_id = j.id LEFT JOIN LATERAL (
            SELECT c.status <> 'completed' OR b.done IS NOT TRUE AND EXISTS (
                SELECT FROM queuert_unblocking AS u WHERE u.chain_id = b.chain_id AND u.next_id <= b.job_id
            ) AS waits
            FROM queuert_job AS c WHERE c.chain_id = b.chain_id ORDER BY c.chain_index DESC LIMIT 1
        ) AS last ON true
        WHERE j.status = 'blocked' GROUP BY j.id
        HAVING j.blockers_left <> count(b.*) FILTER (WHERE last.waits) OR j.blockers_left < 1""",
    "only a completed chain has dependents to free": """
        SELECT u.chain_id FROM queuert_unblocking AS u LEFT JOIN LATERAL (
            SELECT c.status FROM queuert_job AS c WHERE c.chain_id = u.chain_id ORDER BY c.chain_index DESC LIMIT 1
        ) AS last ON true WHERE last.status IS DISTINCT FROM 'completed'""",
    "a job that never ran and was not retried is pending only when all it waits for is completed": """
        SELECT j.id FROM queuert_job AS j JOIN queuert_blocker AS b ON b.job_id = j.id CROSS JOIN LATERAL (
            SELECT c.status FROM queuert_job AS c WHERE c.chain_id = b.chain_id ORDER BY c.chain_index DESC LIMIT 1
        ) AS last
        WHERE j.status = 'pending' AND last.status <> 'completed' AND j.last_error IS NULL""",
    "the current job counts at least the edges that point at its chain": """
        SELECT b.chain_id, last.dependents, count(*) FROM queuert_blocker AS b CROSS JOIN LATERAL (
            SELECT c.dependents FROM queuert_job AS c WHERE c.chain_id = b.chain_id ORDER BY c.chain_index DESC LIMIT 1
        ) AS last GROUP BY b.chain_id, last.dependents HAVING last.dependents < count(*)""",
    "a job that can run knows of its edges": """
        SELECT j.id, j.blocker_count, count(*) FROM queuert_job AS j JOIN queuert_blocker AS b ON b.job_id = j.id
        GROUP BY j.id HAVING j.blocker_count < count(*)""",
    "an edge has a job": "SELECT job_id FROM queuert_blocker WHERE job_id NOT IN (SELECT id FROM queuert_job)",
    "an edge has a chain": """
        SELECT chain_id FROM queuert_blocker
        WHERE chain_id NOT IN (SELECT id FROM queuert_job WHERE chain_index = 0)""",
    "a key points at a chain of its type that was started under it, unless it outlives that chain": """
        SELECT k.chain_type, k.key FROM queuert_key AS k LEFT JOIN queuert_job AS j ON j.id = k.chain_id
        WHERE k.ended IS NULL
            AND (j.chain_index, j.type_name, j.dedup_key) IS DISTINCT FROM (0, k.chain_type, k.key)""",
    "a chain has all its jobs, and only the last has not handed over": """
        SELECT j.chain_id FROM queuert_job AS j GROUP BY j.chain_id
        HAVING count(*) <> max(j.chain_index) + 1 OR count(*) <> count(j.continued_to) + 1
            OR count(*) FILTER (WHERE j.status <> 'completed') > 1""",
    "resting is the status of what rests": """
        SELECT id, status, resting FROM queuert_job WHERE resting IS DISTINCT FROM
            CASE WHEN status IN ('blocked', 'failed', 'cancelled', 'expired') THEN status END""",
    COUNTED: """
        SELECT type_name, sum(number) FROM (
            SELECT type_name, number FROM queuert_tally WHERE what = 'begun'
            UNION ALL SELECT type_name, -cardinality(since) FROM queuert_tally WHERE what <> 'begun'
            UNION ALL SELECT type_name, number FROM queuert_history WHERE what = 'begun'
            UNION ALL SELECT type_name, -number FROM queuert_history WHERE what <> 'begun' AND bucket >= 0
            UNION ALL SELECT type_name, -1 FROM queuert_running
        ) AS attempt GROUP BY type_name HAVING sum(number) <> 0""",
    "what has ended says when": """
        SELECT id FROM queuert_job
        WHERE (completed_at IS NULL) <> (status IN ('blocked', 'pending'))""",
}


def violations(watch: Watcher) -> dict[str, list[Any]]:
    """What is wrong in the tables: for each rule that is broken, the rows that break it."""
    return {rule: found for rule, text in INVARIANTS.items() if (found := watch(text))}


class Session:
    """A connection of a user's: what is run here is part of his transaction."""

    def __init__(self, scene: Scene, connection: Any) -> None:
        self.connection: asyncpg.Connection[Any] = connection
        self._scene = scene
        self._transaction: Any = None
        self.pid: int = connection.get_server_pid()

    async def begin(self, isolation: Isolation = "read_committed") -> Session:
        self._transaction = self.connection.transaction(isolation=isolation)
        await self._transaction.start()
        await self.connection.execute("SELECT 1 FROM queuert_job LIMIT 1")  # a snapshot, if it is kept
        return self

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()

    async def run(self, program: Program[T]) -> T:
        return await run_async(self._scene.provider, self.connection, program)

    async def run_alone(self, program: Program[T], isolation: Isolation = "read_committed") -> T:
        """In a transaction of its own, on this connection."""
        await self.begin(isolation)
        try:
            result = await self.run(program)
        except BaseException:
            await self.rollback()
            raise
        await self.commit()
        return result

    async def start(self, *jobs: NewJob) -> list[Created]:
        return await self.run(self._scene.operations.create_jobs(jobs))

    async def settle(self, *settlements: Settlement) -> Settled:
        return await self.run(self._scene.operations.settle(settlements))

    async def take_over(self, chain_id: str) -> JobRow:
        """The current job of a chain, locked."""
        (found,) = await self.run(self._scene.operations.get_chains([chain_id], lock=True))
        assert found is not None
        return found.current

    async def lock(self, *job_ids: str) -> None:
        """As everybody does who changes jobs that may be in flight."""
        lock = self._scene.operations.words["lock_jobs"]
        await self.connection.execute(f"SELECT {lock}($1::text[]::uuid[])", list(job_ids))

    async def delete(self, *chain_ids: str, cascade: bool = False) -> Any:
        return await self.run(self._scene.operations.delete_chains(chain_ids, cascade=cascade))


class Scene:
    """One installation in a database of its own."""

    def __init__(self, url: str, provider: AsyncpgProvider, watch: Watcher, exits: AsyncExitStack) -> None:
        self.url = url
        self.provider = provider
        self.operations = PostgresOperations()
        self.watch = watch
        self._exits = exits
        self._tasks: set[asyncio.Task[Any]] = set()
        self._connections: list[asyncpg.Connection[Any]] = []

    async def session(self) -> Session:
        connection = await asyncpg.connect(self.url)
        self._exits.push_async_callback(connection.close)
        self._connections.append(connection)
        return Session(self, connection)

    async def sessions(self, number: int) -> list[Session]:
        return [await self.session() for _ in range(number)]

    def go(self, waiting: Any) -> asyncio.Task[Any]:
        """A step that goes on while others are taken."""
        task: asyncio.Task[Any] = asyncio.ensure_future(waiting)
        self._tasks.add(task)
        return task

    async def blocked(self, session: Session | int, by: Session | None = None) -> None:
        """Wait until the server says that this session waits for a lock, of that one if it is named."""
        pid = session if isinstance(session, int) else session.pid
        async with asyncio.timeout(PATIENCE):
            while True:
                (holders,) = self.watch("SELECT pg_blocking_pids(%s)", pid)
                if holders and (by is None or by.pid in holders):
                    return
                await asyncio.sleep(0.005)

    async def waits_for(self, session: Session) -> int:
        """Wait until somebody waits for a lock of this session; answers who."""
        async with asyncio.timeout(PATIENCE):
            while not (found := self.watch.others(f"{session.pid} = ANY (pg_blocking_pids(pid))")):
                await asyncio.sleep(0.005)
            return found[0]

    async def run(self, program: Program[T]) -> T:
        """On a connection of our own, committed at once."""
        return await run_async(self.provider, None, program)

    async def start(self, *jobs: NewJob) -> list[Created]:
        return await self.run(self.operations.create_jobs(jobs))

    async def new(self, *types: str, **fields: Any) -> list[str]:
        """Start a chain of each type; answers their ids."""
        jobs = [new_job(type_name, **fields) for type_name in types]
        await self.start(*jobs)
        return [job.id for job in jobs]

    async def claim(self, wanted: ClaimRequest | None = None) -> list[Claimed]:
        return (await self.run(self.operations.claim(wanted or request()))).jobs

    async def settle(self, *settlements: Settlement) -> Settled:
        return await self.run(self.operations.settle(settlements))

    async def delete(self, *chain_ids: str, cascade: bool = False) -> Any:
        return await self.run(self.operations.delete_chains(chain_ids, cascade=cascade))

    async def jobs(self, ids: Iterable[str]) -> list[JobRow]:
        return [job for job in await self.run(self.operations.get_jobs(list(ids))) if job is not None]

    async def job(self, job_id: str) -> JobRow:
        (found,) = await self.jobs([job_id])
        return found

    async def chain(self, chain_id: str) -> ChainRow:
        (found,) = await self.run(self.operations.get_chains([chain_id]))
        assert found is not None
        return found

    async def statuses(self, *ids: str) -> list[Status]:
        return [job.status for job in await self.jobs(ids)]

    def check(self) -> None:
        assert violations(self.watch) == {}

    async def deadlocks(self) -> int:
        """How many there were. Backends tell their figures when they go: this closes all connections."""
        await self.provider.close()
        for connection in self._connections:
            await connection.close()
        await self.watch.until_gone()
        self.watch.flush_statistics()
        (number,) = self.watch("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(number)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def open_scene(postgres: Databases, *, max_size: int = 20, at: str | None = None) -> AsyncGenerator[Scene]:
    """An empty installation, or the one at this URL; its tables are looked over at the end."""
    async with AsyncExitStack() as exits:
        url = at or exits.enter_context(postgres.fresh(template=template()))
        provider = AsyncpgProvider(url, max_size=max_size)
        exits.push_async_callback(provider.close)
        watch = Watcher(url)
        exits.callback(watch.close)
        scene = Scene(url, provider, watch, exits)
        exits.push_async_callback(scene.aclose)
        yield scene
        scene.check()


def is_conflict(error: BaseException) -> bool:
    """Whether the server undid the transaction because of others: it may be tried again."""
    return sqlstate(error) in DEADLOCK_OR_SERIALIZATION


async def conflict(step: Awaitable[Any]) -> str | None:
    """The code of the server's error if others made the step fail, None if it went well. Other errors are raised."""
    try:
        await step
    except QueuertError:
        raise
    except Exception as error:
        if not is_conflict(error):
            raise
        return sqlstate(error)
    return None


def explain(connection: psycopg.Connection[Any], text: str, values: Any = None) -> dict[str, Any]:
    """The plan of a statement that is carried out, with the pages it touched."""
    query: Any = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}"
    cursor = psycopg.RawCursor(connection)
    found: Any = cursor.execute(query, values).fetchall()[0][0]
    plan = json.loads(found) if isinstance(found, str) else found
    return cast("dict[str, Any]", plan[0]["Plan"])


def pages(plan: dict[str, Any]) -> int:
    """The pages that a statement touched, also inside of functions."""
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
