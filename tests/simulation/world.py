"""One run: users, workers that are killed and stopped, a database, and what must be true at every step and the end."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from tests.simulation.handlers import handlers_of
from tests.simulation.jobs import ALL, CAP, KINDS, NARROW, Capped, InThread, Join, Work
from tests.simulation.limited import NAMES, Ledger, is_stopped
from tests.simulation.limited import draw as draw_limited
from tests.simulation.loop import SimulatedLoop, simulate
from tests.simulation.plan import Plan
from tests.simulation.process import Faults, Process, Shared
from tests.simulation.storages import Embedded, Postgres, storage_of

from queuert import Backoff, Chain, ChainError, Client, Dedup, QueuertError, Worker
from queuert.base.ids import UuidV7
from queuert.base.statuses import OPEN
from queuert.ports.state import StateAdapter
from queuert.records.listings import JobFilter, PageRequest
from queuert.records.model import ChainRow, JobRow

T = TypeVar("T")

BEGINNING = datetime(2027, 1, 1, tzinfo=UTC)
LEASE = 10.0
LONGEST = 3600.0
"""Seconds of virtual time after which a chain that has not ended never will."""
LONGEST_PAUSE = 600.0
"""The same, if no handler has begun for so long."""
SHOWN = 40
"""Lines of what was said that a violation shows."""
ALWAYS = 10_000
"""So many failures are more than all attempts."""
SOON = Backoff(initial=0.5, maximum=5.0)


class Violation(AssertionError):
    """Something that is promised was not kept."""


class World:
    def __init__(self, plan: Plan, loop: SimulatedLoop, storage: Embedded | Postgres) -> None:
        self.plan = plan
        self.loop = loop
        self._storage = storage
        self._jumped = 0.0
        self.random = Random(f"world {plan.seed}")
        faults = Faults(plan.lost, plan.hanging, plan.unheard)
        self.shared = Shared(Random(f"faults {plan.seed}"), faults)
        self._new_id = UuidV7(lambda: int(self.now().timestamp() * 1000))
        self.workers: list[tuple[Process, Worker]] = []
        self._number = 0
        self.committed: dict[str, Any] = {}
        """The jobs that were started, by chain, as far as the user knows."""
        self.doubtful: set[str] = set()
        """Chains that were changed, or whose start was not confirmed: they may be gone, or may never have been."""
        self.rolled_back: set[str] = set()
        self.due: dict[str, datetime] = {}
        self._keys: dict[str, str] = {}
        self.begun: defaultdict[str, int] = defaultdict(int)
        self._active: defaultdict[str, list[tuple[Process, Any]]] = defaultdict(list)
        self._violations: list[Violation] = []
        self._ledger = Ledger(self.violated)

    # The database

    def now(self) -> datetime:
        """The database's clock. It may be set forward, and leases end with it: workers do not know, and go on."""
        return BEGINNING + timedelta(seconds=self.loop.time() + self._jumped)

    def client(self, process: Process) -> Client[Any]:
        operations, provider, notify = self._storage.parts_of(process)
        state: Any = StateAdapter(operations, provider)
        return Client(state, notify, ALL, generate_id=self._new_id, poll_interval=2.0)

    def read(self, program: str, *args: Any, **options: Any) -> Any:
        """What the database has now. Takes no time, and nothing goes wrong."""
        return self._storage.read(program, *args, **options)

    def jobs(self, **where: Any) -> Iterator[JobRow]:
        listed = self.read("list_jobs", JobFilter(**where), PageRequest(10_000))
        return iter(listed.rows)

    def chain(self, chain_id: str) -> ChainRow | None:
        (row,) = self.read("get_chains", [chain_id])
        found: ChainRow | None = row
        return found

    # What must be true at every step

    def _check_caps(self) -> None:
        running = [row.id for row in self.jobs(statuses=("running",), types=("capped",))]
        if len(running) > CAP:
            self.violated(f"{len(running)} jobs of a queue run at once, and {CAP} are allowed")
        if self.plan.limited:
            self._ledger.look(self.jobs(types=NAMES))

    def violated(self, what: str) -> None:
        """Raised here, it would be an error of the database, or of a handler."""
        self._violations.append(Violation(what))

    @contextmanager
    def attempt(self, process: Process, attempt: Any) -> Generator[None, None, None]:
        """Around every handler."""
        job_id = attempt.job_id
        self._check_begin(attempt)
        others = self._active[job_id]
        # Leases are lost only if the database is silent, or its clock jumps. Otherwise no other worker has the job.
        certain = not (self.plan.hanging or self.plan.jumps) and self.doubtful.isdisjoint((job_id, attempt.chain_id))
        if certain and any(not (other.dead or signal.aborted) for other, signal in others):
            self.violated(f"{job_id} runs twice at once")
        mine = (process, attempt.signal)
        others.append(mine)
        try:
            yield
        finally:
            others.remove(mine)

    def _check_begin(self, attempt: Any) -> None:
        job_id = attempt.job_id
        self.begun[job_id] += 1
        self.shared.note("handler of", job_id)
        if self.now() < self.due.get(job_id, self.now()):
            self.violated(f"{job_id} begins before it is due")
        if isinstance(attempt.job, Join):
            for chain in attempt.job.parts:
                row = self.chain(chain.id)
                if row is not None and row.current.status != "completed":
                    self.violated(
                        f"{job_id} begins although it waits for {row.first.id}, which is {row.current.status}"
                    )

    # A run

    async def run(self) -> None:
        user = Process("user", self.shared)
        client = self.client(user)
        faults, self.shared.faults = self.shared.faults, Faults()
        async with client:
            self.shared.on_change = self._check_caps
            for _ in range(self.plan.workers):
                await self.add_worker()
            self.shared.faults = faults
            chaos = asyncio.create_task(self._chaos())
            await asyncio.gather(*(self._act(client) for _ in range(self.plan.actions)))
            await chaos
            self.shared.faults = Faults()
            await self._until_all_ended()
            self._check_effects()
            await self._check_health(client)
            for process, worker in self.workers:
                if not process.dead:
                    await worker.stop()

    async def add_worker(self) -> None:
        self._number += 1
        process = Process(f"worker {self._number}", self.shared)
        client = self.client(process)
        worker = Worker(
            client, handlers_of(self, process), name=f"w{self._number}", queues=["default", NARROW],
            concurrency=self.random.randint(1, 4), prefetch=self.random.choice((0, 10)), lease=LEASE, backoff=SOON,
            recovery_backoff=SOON, poll_interval=3.0, shutdown_timeout=20.0, max_attempts=6,
        )  # fmt: skip
        self.workers.append((process, worker))
        starting = asyncio.ensure_future(self._start(client, worker))
        await asyncio.wait({starting}, timeout=60)

    async def _start(self, client: Client[Any], worker: Worker) -> None:
        sessions = client.sessions
        sessions.open()  # a process that is killed does not leave the block of its client
        await sessions.enter_schema()
        await worker.start()

    async def _chaos(self) -> None:
        """Workers are killed and stopped, and others take their places."""
        deeds = ["kill"] * self.plan.kills + ["stop"] * self.plan.stops + ["jump"] * self.plan.jumps
        self.random.shuffle(deeds)
        for deed in deeds:
            await asyncio.sleep(self.random.random() * 8)
            if deed == "jump":
                self._jumped += 2 * LEASE
                self.shared.note("the clock of the database jumps")
                continue
            process, worker = self.workers.pop(self.random.randrange(len(self.workers)))
            if deed == "kill":
                process.kill()
            else:
                await worker.stop()
            await self.add_worker()

    async def _act(self, client: Client[Any]) -> None:
        """A user does something, perhaps impatiently."""
        await asyncio.sleep(self.random.random() * 20)
        action = self.random.choice((self._begin_some, self._begin_some, self._begin_some, self._change, self._wait))
        patience = self.random.choice((None, None, None, 0.02, 0.2))
        with suppress(QueuertError, TimeoutError):
            async with asyncio.timeout(patience):
                await action(client)

    async def _begin_some(self, client: Client[Any]) -> None:
        undone = self.random.random() < 0.15
        chains: list[Chain[Any]] = []
        try:
            async with client.transaction() as tx:
                for job in self._draw():
                    options, asked_at = self._options(), self.now()
                    chain = await client.start(tx, job, **options)
                    chains.append(chain)
                    if not chain.deduplicated:
                        self.due[chain.id] = asked_at + timedelta(seconds=options.get("after", 0.0))
                        if "dedup" in options:
                            self._keys[chain.id] = options["dedup"].key
                    self.doubtful.add(chain.id)
                works = [chain for chain in chains if chain.chain_type == "work"]
                if works and self.random.random() < 0.4:
                    chains.append(await client.start(tx, Join(parts=works)))
                    self.doubtful.add(chains[-1].id)
                await self._linger()
                if undone:
                    raise KeyError("the user's transaction fails")
        except KeyError:
            new = {chain.id for chain in chains if not chain.deduplicated}
            self.rolled_back |= new
            self.doubtful -= new
            return
        for chain in chains:
            self.committed[chain.id] = chain
            if not chain.deduplicated:
                self.doubtful.discard(chain.id)

    def _draw(self) -> list[Any]:
        draw = self.random
        jobs: list[Any] = []
        for _ in range(draw.randint(1, 4)):
            failures = draw.choice((0, 0, 0, 1, 2, ALWAYS))
            if self.plan.limited and draw.random() < 0.6:
                jobs.append(draw_limited(draw, failures))
                continue
            kind = draw.random()
            if kind < 0.25:
                jobs.append(Capped(number=draw.randint(1, 9)))
            elif kind < 0.35:
                jobs.append(InThread(failures=failures))
            else:
                jobs.append(Work(kind=draw.choice(KINDS), failures=failures, goes_on=draw.random() < 0.3))
        return jobs

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self.random.random() < 0.2:
            options["after"] = self.random.random() * 30
        if self.random.random() < 0.2:
            options["priority"] = self.random.randint(0, 200)
        if self.random.random() < 0.2:
            options["dedup"] = Dedup(f"key {self.random.randint(1, 3)}", scope="incomplete")
        return options

    async def _change(self, client: Client[Any]) -> None:
        if not self.committed:
            return
        chain = self.random.choice(sorted(self.committed))
        change = self.random.choice((client.cancel, client.retry, client.trigger, client.delete))
        self.doubtful.add(chain)
        self.due.pop(chain, None)
        async with client.transaction() as tx:
            await change(tx, chain)
            await self._linger()

    async def _linger(self) -> None:
        if self.plan.lingering:
            await asyncio.sleep(self.random.random() * self.plan.lingering)

    async def _wait(self, client: Client[Any]) -> None:
        if self.committed:
            with suppress(ChainError):
                await client.wait(self.random.choice(sorted(self.committed)), timeout=self.random.random() * 60)

    async def _until_all_ended(self) -> None:
        end, pause_ends, begun = self.loop.time() + LONGEST, 0.0, -1
        while True:
            if begun < (begun := sum(self.begun.values())):
                pause_ends = self.loop.time() + LONGEST_PAUSE
            if self._violations:
                raise self._violations[0]
            left = [row for row in self.jobs(statuses=OPEN) if row.type_name != "effect"]
            waiting = [row for row in left if not self._hopeless(row)]
            if not waiting:
                return
            if self.loop.time() > min(end, pause_ends):
                row = waiting[0]
                raise Violation(f"{row.id} ({row.type_name}) never ends: it is {row.status}, attempt {row.attempt}")
            await asyncio.sleep(5.0)

    def _hopeless(self, row: JobRow) -> bool:
        """It waits for a chain that has ended badly, or behind a job that has."""
        if row.status != "blocked":
            return is_stopped(row, self.jobs(types=("in_order",)))
        (blockers,) = self.read("job_blockers", [row.id])
        return any(each.status in ("failed", "cancelled", "expired", "blocked") for each in blockers)

    # What must be true at the end

    def _check_effects(self) -> None:
        effects: defaultdict[str, int] = defaultdict(int)
        for row in self.jobs(types=("effect",)):
            effects[json.loads(row.input)["origin"]] += 1
        rows = {row.id: row for row in self.jobs(types=("work", "last", "capped", "in_thread", "join", *NAMES))}
        for job_id, row in rows.items():
            wanted = _effects_of(row)
            if effects[job_id] != wanted:
                raise Violation(f"{job_id} ({row.type_name}) is {row.status} and took effect {effects[job_id]} times")
            sure = job_id in self.committed and job_id not in self.doubtful
            if self.plan.calm and sure and row.status != "blocked" and row.type_name not in NAMES:
                self._check_attempts(row)
        for chain_id in self.committed:
            if chain_id not in self.doubtful and chain_id not in rows:
                raise Violation(f"{chain_id} was started, and is not there")
        for chain_id in self.rolled_back:
            if chain_id in rows:
                raise Violation(f"{chain_id} is there, although its transaction was rolled back")
        self._check_keys()

    def _check_attempts(self, row: JobRow) -> None:
        """Nothing went wrong, so no attempt can have been lost."""
        failures = json.loads(row.input).get("failures", 0)
        begun = min(6, failures + 1) if row.type_name in ("work", "in_thread") else 1
        if self.begun[row.id] != begun:
            raise Violation(f"{row.id} ({row.type_name}, {row.status}) began {self.begun[row.id]} times, not {begun}")

    def _check_keys(self) -> None:
        """Of the chains with one key, only one at a time had not ended."""
        by_key: defaultdict[tuple[str, str], list[ChainRow]] = defaultdict(list)
        for chain_id, key in self._keys.items():
            if chain_id in self.committed and (chain := self.chain(chain_id)) is not None:
                by_key[chain.first.chain_type, key].append(chain)
        for chains in by_key.values():
            chains.sort(key=lambda chain: chain.first.created_at)
            for before, after in pairwise(chains):
                ended = before.current.completed_at
                retried = before.first.id in self.doubtful
                if not retried and (ended is None or ended > after.first.created_at):
                    raise Violation(f"{after.first.id} was started while {before.first.id} had the same key")

    async def _check_health(self, client: Client[Any]) -> None:
        diagnosis = await client.doctor(full=True)
        broken = [finding for finding in diagnosis.findings if finding.severity == "error"]
        if broken:
            raise Violation(f"the database is not consistent: {broken[0]}")


def _effects_of(row: JobRow) -> int:
    if row.status != "completed" or row.type_name in ("capped", "in_thread", *NAMES):
        return 0
    if row.type_name == "work":
        return int(json.loads(row.input)["kind"] in ("atomic", "staged"))
    return 1


def run(plan: Plan, folder: Path) -> str:
    """Carry out a plan. Returns a digest of all that was said. Raises `Violation`."""
    worlds: list[World] = []

    def now() -> datetime:
        return worlds[0].now() if worlds else BEGINNING

    with storage_of(plan, now, folder) as storage:

        async def main(loop: SimulatedLoop) -> None:
            worlds.append(World(plan, loop, storage))
            await worlds[0].run()

        try:
            simulate(plan.seed, main)
        except Violation as error:
            error.add_note("\n".join(worlds[0].shared.trace[-SHOWN:]))
            raise
    return hashlib.sha256("\n".join(worlds[0].shared.trace).encode()).hexdigest()
