"""What the random programs are made of: arguments that are likely to meet what is stored, and edges of every rule.

Times are drawn from few values, so that "not before" and "not after" meet their boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol, TypeVar, get_args

from hypothesis import strategies as st
from msgspec.structs import replace
from tests.machine.world import NO_TOKEN, Clock, Ids, Register, RollUp, Step

from queuert.base.statuses import STATUSES, Status
from queuert.records.dedup import Dedup, Scope
from queuert.records.listings import ChainFilter, JobFilter, PageRequest
from queuert.records.model import (
    NOW,
    BlockerRef,
    ClaimRequest,
    Collapse,
    JobRow,
    Lease,
    NewJob,
    QueueLimit,
    Settlement,
    TypeLimit,
    When,
)

T = TypeVar("T")

TYPES = ("a", "b", "c")
SPANS = (0.0, 1.0, 10.0, 60.0, 0.000001, 9.999999, 10.000001, 0.5, 3600.0, 1.0000005, 1e-7)
PRIORITIES = (100, 0, 101, -5, 2**31 - 1, -(2**31))
ORDINALS = (1, 2, 3, 5, 10)
KEYS = ("k", "l", "Schlüssel ☂ \U0001f5dd")
ERRORS = (b'{"code":"BOOM"}', b'{"code":"L\xc3\xb6wenbrand"}', b"null")
JSON = (b"{}", b"null", b'{"n":1}', b'"\xe2\x98\x82 \\u0001"', b"[1.5,true]")
STEPS_IN_TIME = (timedelta(microseconds=1), *(timedelta(seconds=seconds) for seconds in (1, 10, 60, 3600)))
UNKNOWN = "ffffffff-ffff-7fff-bfff-ffffffffffff"

spans = st.sampled_from(SPANS)
types = st.sampled_from(TYPES)
errors = st.sampled_from(ERRORS)


@dataclass
class Known:
    """What the model has, and what was there once."""

    clock: Clock
    ids: Ids = field(default_factory=Ids)
    rows: dict[str, JobRow] = field(default_factory=dict)
    former: dict[str, JobRow] = field(default_factory=dict)
    """Every row that was ever seen, as it was last."""
    claims: list[tuple[str, int]] = field(default_factory=list)
    """Job id and token number, all that were ever made."""
    depth: int = 0
    """Open blocks: the transaction and its savepoints."""

    def see(self, rows: Sequence[JobRow]) -> None:
        self.rows = {row.id: row for row in rows}
        self.former.update(self.rows)

    @property
    def chains(self) -> list[str]:
        return [row.id for row in self.rows.values() if row.chain_index == 0]

    @property
    def ready(self) -> list[str]:
        now = self.clock.now
        return [row.id for row in self.rows.values() if row.status == "pending" and row.scheduled_at <= now]

    @property
    def ended(self) -> list[str]:
        """Jobs whose lease has ended."""
        now = self.clock.now
        return [row.id for row in self.rows.values() if row.leased_until is not None and row.leased_until <= now]

    def has(self, status: str) -> bool:
        return any(row.status == status for row in self.rows.values())

    @property
    def running(self) -> list[tuple[str, int]]:
        current = {(row.id, row.token) for row in self.rows.values() if row.token is not None}
        return [claim for claim in self.claims if claim in current]


@dataclass(frozen=True)
class Action:
    """A method of the machine, and its arguments."""

    name: str
    arguments: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.arguments))})"


class Draw(Protocol):
    """`draw` of a composite strategy, or of `st.data()`."""

    def __call__(self, strategy: st.SearchStrategy[T], /) -> T: ...


class Draws:
    """Draws arguments. Simple values come first, so that a failing program shrinks to a plain one."""

    def __init__(self, draw: Draw, known: Known) -> None:
        self.draw = draw
        self.known = known

    def one_in(self, number: int) -> bool:
        return self.draw(st.integers(0, number - 1)) == number - 1

    def either(self, usual: T, rare: T, one_in: int = 4) -> T:
        return rare if self.one_in(one_in) else usual

    def among(self, values: Sequence[T]) -> T:
        return self.draw(st.sampled_from(values))

    def some(self, values: Sequence[T], most: int, least: int = 0) -> list[T]:
        return self.draw(st.lists(st.sampled_from(values), min_size=least, max_size=most)) if values else []

    # Actions

    def action(self) -> Action:
        return self._one_of([*self._changes(), *self._blocks(), *self._queries()])

    def any_change(self) -> Action:
        return self._one_of(self._changes())

    def _one_of(self, choices: Sequence[tuple[int, Callable[[], Action]]]) -> Action:
        return self.among([build for weight, build in choices for _ in range(weight)])()

    def _changes(self) -> list[tuple[int, Callable[[], Action]]]:
        known, has = self.known, self.known.has
        return [
            (6 if len(known.rows) < 30 else 1, lambda: self.change("create_jobs", self.new_jobs())),
            (8 if known.ready else 1, lambda: Action("claim", (self.claim(),))),
            (12 if has("running") else 1, lambda: self.change("settle", self.settlements())),
            (4 if has("blocked") else 1, lambda: self.change("continue_unblocking", self.among([1, 2, 10, 1, 0]))),
            (3 if known.claims else 0, lambda: self.change("renew", self.leases())),
            (6 if known.ended else 1, self.reap),
            (0 if known.depth else 2, self.horizon),  # never inside a transaction
            (2 if known.claims else 0, lambda: self.change("release", self.among(["w1", "w2"]), self.job_ids())),
            (2 if has("pending") else 0, lambda: self.change("trigger", self.job_ids())),
            (3 if has("failed") else 0, lambda: self.change("retry", self.failed_ids())),
            (1, lambda: self.change("set_priority", self.job_ids(), self.among([1, 50, 100, 200]))),
            (1, lambda: self.change("cancel_chains", self.chain_ids(), cascade=self.one_in(2))),
            (2 if has("failed") else 1, self.repair),
            (0 if known.depth else 1, lambda: Action("write", (RollUp(),))),
            (2, lambda: self.change("delete_chains", self.chain_ids(), cascade=self.one_in(2))),
        ]

    def _blocks(self) -> list[tuple[int, Callable[[], Action]]]:
        depth = self.known.depth
        return [
            (6, lambda: Action("pass_time", (self.among(STEPS_IN_TIME),))),
            (0 if depth else 2, lambda: Action("begin", ())),
            (3 if 0 < depth < 4 else 0, lambda: Action("savepoint", ())),
            (4 if depth > 1 else 0, lambda: Action("end_savepoint", (self.one_in(2),))),
            (2 if depth else 0, lambda: Action("end", (self.one_in(2),))),
        ]

    def _queries(self) -> list[tuple[int, Callable[[], Action]]]:
        return [
            (3, lambda: Action("read", (self.one_in(2), self.query()))),
            (4, lambda: Action("page_through", (self.one_in(2), *self.listing(), self.page()))),
        ]

    def change(self, operation: str, *arguments: Any, **options: Any) -> Action:
        return Action("write", (Step(operation, arguments, options),))

    # Ids

    def job_id(self) -> str:
        """Of a job that is stored, most of the time."""
        if self.known.rows and not self.one_in(12):
            return self.among(list(self.known.rows))
        return self.among([*self.known.former, UNKNOWN])

    def job_ids(self, most: int = 3) -> list[str]:
        return [self.job_id() for _ in range(self.draw(st.integers(1, most)))]

    def failed_ids(self) -> list[str]:
        failed = [row.id for row in self.known.rows.values() if row.status == "failed"]
        return [*self.some(failed, 3, least=1), *(self.job_ids() if self.one_in(3) else [])]

    def chain_ids(self) -> list[str]:
        return [self.chain_id() for _ in range(self.among([1, 1, 2, 4]))]

    def chain_id(self) -> str:
        chains = self.known.chains
        return self.among(chains) if chains and not self.one_in(12) else self.job_id()

    def new_id(self) -> str:
        if self.known.former and self.one_in(15):
            return self.among(list(self.known.former))  # stored, which is an error; or deleted, which is not
        return self.known.ids.new(self.draw(st.integers(0, 1000)) if self.one_in(4) else None)

    # Times

    def moment(self) -> datetime:
        moment = self.known.clock.now + timedelta(seconds=self.draw(spans)) * self.among([1, -1])
        return moment.astimezone(timezone(timedelta(hours=self.either(0, 2))))

    def when(self) -> When:
        kind = self.draw(st.integers(0, 4))
        if kind < 3:
            return NOW
        return When(after=self.draw(spans)) if kind == 3 else When(at=self.moment())

    # Creating

    def new_jobs(self) -> list[NewJob]:
        jobs: list[NewJob] = []
        for _ in range(self.draw(st.integers(1, 4))):
            jobs.append(self.new_job(jobs))
        keys = [None if job.dedup is None else (job.chain_type, job.dedup.key) for job in jobs]
        # A key that changes a chain is in a call once.
        return [
            job if key is None or keys.count(key) > 1 or self.one_in(2) else self.collapsing(job)
            for job, key in zip(jobs, keys, strict=True)
        ]

    def collapsing(self, job: NewJob) -> NewJob:
        assert job.dedup is not None
        collapse = self.among(get_args(Collapse))
        scope: Scope = "any" if collapse == "trail" else "waiting"
        dedup = Dedup(job.dedup.key, scope=scope, window=self.draw(spans), exclude=job.dedup.exclude)
        schedule = NOW if collapse == "trail" else job.schedule
        return replace(job, dedup=dedup, collapse=collapse, schedule=schedule, blockers=())

    def new_job(self, earlier: Sequence[NewJob]) -> NewJob:
        type_name, job_id = self.draw(types), self.new_id()
        if earlier and self.one_in(25):
            job_id = earlier[0].id
        return NewJob(
            id=job_id,
            type_name=type_name,
            chain_id=job_id,
            chain_type=type_name,
            chain_index=0,
            dedup=self.dedup() if self.one_in(3) else None,
            blockers=self.blockers(job_id, earlier) if self.one_in(3) else (),
            chain_trace_context=self.either(None, "00-chain", 8),
            **self.options(),
        )

    def continuation(self, row: JobRow) -> NewJob:
        job_id = self.new_id()
        return NewJob(
            id=job_id,
            type_name=self.draw(types),
            chain_id=row.chain_id,
            chain_type=row.chain_type,
            chain_index=row.chain_index + 1,
            blockers=self.blockers(row.chain_id, ()) if self.one_in(3) else (),
            chain_trace_context=row.chain_trace_context,
            **self.options(),
        )

    def options(self) -> dict[str, Any]:
        return {
            "input": self.among(JSON),
            "priority": self.among(PRIORITIES) if self.one_in(3) else 100,
            "schedule": self.when(),
            "deadline": self.when() if self.one_in(4) else None,
            "trace_context": self.either(None, "00-job", 8),
        }

    def dedup(self) -> Dedup:
        scope: Scope = self.among(get_args(Scope))
        window: float | timedelta | None = None
        if not self.one_in(3):
            window = self.draw(spans)
            window = timedelta(seconds=window) if self.one_in(4) else window
        keyed = [row.id for row in self.known.rows.values() if row.dedup_key is not None]
        exclude = tuple(self.some([*keyed, UNKNOWN], 3)) if self.one_in(2) else ()
        return Dedup(self.among(KEYS), scope=scope, window=window, exclude=exclude)

    def blockers(self, own_chain: str, earlier: Sequence[NewJob]) -> tuple[BlockerRef, ...]:
        chains = [(row.id, row.type_name) for row in self.known.rows.values() if row.chain_index == 0]
        chains += [(job.id, job.type_name) for job in earlier]
        refs = self.some(chains, 3, least=1)
        if self.one_in(20):
            refs.append((self.among([UNKNOWN, own_chain, self.job_id()]), "a"))
        if refs and self.one_in(30):
            refs.append((refs[0][0], "c" if refs[0][1] == "a" else "a"))
        return tuple(BlockerRef(chain_id, name, self.either(None, "00-edge", 8)) for chain_id, name in refs)

    # Claiming

    def types(self) -> list[str]:
        return self.some(TYPES, 4, least=1) if self.one_in(2) else list(TYPES)

    def claim(self) -> ClaimRequest:
        """Each type is asked for once. Queues may have members that are not asked for, or belong to others too."""
        members = self.among([(TYPES,), (("a", "b"), ("c",)), (("a",), ("b", "c")), (("a",), ("b",), ("c",))])
        queues = [self.queue(number, names) for number, names in enumerate(members)]
        return ClaimRequest(
            self.among(["w1", "w2"]),
            self.among([10, 3, 2, 1, 1, 10, 0]),
            tuple(self.draw(st.permutations(queues))) if self.one_in(3) else tuple(queues),
            self.among([3, 2, 1, 2, 3, 0]) if self.one_in(5) else None,
            self.among([0, 0, 1, 2]) if self.one_in(2) else None,
            self.among(ORDINALS),
        )

    def horizon(self) -> Action:
        """A worker registers, or moves its horizon."""
        worker, horizon = self.among(["w1", "w2"]), self.among(ORDINALS)
        if self.one_in(2):
            return Action("write", (Register(worker, self.either(0, horizon)),))
        return self.change("move_horizon", worker, horizon)

    def queue(self, number: int, members: tuple[str, ...]) -> QueueLimit:
        asked = [name for name in members if not self.one_in(5)]
        return QueueLimit(
            f"q{number}",
            self.among([0, 0, 1, -1]),
            tuple(TypeLimit(name, self.among([5, 5, 5, 2, 1, 0]), self.draw(spans)) for name in asked),
            self.either(members, TYPES),
            self.among([3, 2, 1, 2, 3, 0]) if self.one_in(3) else None,
        )

    # What follows a claim

    def held(self) -> tuple[str, int]:
        """A claim that is under way, most of the time; else one of the past, or one that never was."""
        running, claims = self.known.running, self.known.claims
        if running and not self.one_in(8):
            job_id, token = self.among(running)
            if self.one_in(6):
                token = self.among([NO_TOKEN, *(other for claimed, other in claims if claimed == job_id)])
            return job_id, token
        return self.among(claims) if claims else (self.job_id(), NO_TOKEN)

    def settlements(self) -> list[Settlement]:
        return [self.settlement() for _ in range(self.among([1, 1, 2, 4]))]

    def settlement(self) -> Settlement:
        job_id, token = (self.job_id(), None) if self.one_in(4) or not self.known.claims else self.held()
        row = self.known.former.get(job_id)
        how: dict[str, Any] = {"job_id": job_id, "token": token, "worker": self.among(["w1", None])}
        what = self.draw(st.integers(0, 9))
        if what < 3 or row is None:
            return Settlement(status="completed", output=self.among(JSON), **how)
        if what < 5:
            return Settlement(status="completed", continuation=self.continuation(row), **how)
        if what < 8:
            error = self.either(self.draw(errors), None)
            return Settlement(status=self.among(["failed", "expired", "cancelled"]), error=error, **how)
        if token is None and not self.one_in(4):
            return Settlement(status="cancelled", **how)
        if what == 8:
            return Settlement(status="pending", give_back=True, **how)
        if self.one_in(3):
            return Settlement(status="pending", uncounted=True, schedule=self.when(), **how)
        return Settlement(status="pending", error=self.either(self.draw(errors), None), schedule=self.when(), **how)

    def reap(self) -> Action:
        ignored = self.some(self.known.ended, 2) if self.one_in(2) else self.either([], self.job_ids())
        dead = [self.among(["w1", "w2"])] if self.one_in(4) else []
        types = self.types()
        pauses: list[tuple[float, ...]] = [(0.0, 5.0), (5.0,), ()]
        delays = {name: self.among(pauses) for name in types} if self.one_in(2) else {}
        return self.change("reap", types, ignored, self.among([10, 2, 1, 10, 0]), self.draw(errors), dead, delays)

    def leases(self) -> list[Lease]:
        return [Lease(*self.held(), self.draw(spans)) for _ in range(self.draw(st.integers(1, 3)))]

    # Queries

    def query(self) -> Step:
        what = self.draw(st.integers(0, 4))
        if what == 0:
            return Step("get_jobs", (self.job_ids(5),))
        if what == 1:
            return Step("get_chains", ([self.chain_id() for _ in range(3)],))
        if what == 2:
            return Step("job_blockers", (self.job_ids(5),))
        return Step("stats", ()) if what == 3 else Step("next_available_in", (self.types(),))

    def repair(self) -> Action:
        deadline = When(after=self.draw(spans)) if self.one_in(3) else None
        job_id, data = self.among([*self.failed_ids(), self.job_id()]), self.among(JSON)
        return self.change("repair", job_id, data, deadline, None, None)

    def listing(self) -> tuple[str, Any]:
        what = self.draw(st.integers(0, 6))
        if what < 2:
            return "list_jobs", self.job_filter()
        if what < 5:
            return "list_chains", self.chain_filter()
        return "list_chain_jobs" if what == 5 else "list_blocked_jobs", self.chain_id()

    def job_filter(self) -> JobFilter:
        return JobFilter(**self._conditions())

    def chain_filter(self) -> ChainFilter:
        return ChainFilter(root_only=self.one_in(3), **self._conditions())

    def _conditions(self) -> dict[str, Any]:
        return {
            "types": self._some(5, lambda: self.draw(types)),
            "chain_types": self._some(5, lambda: self.draw(types)),
            "statuses": self._some(2, self.status),
            "job_ids": self._some(8, self.job_id),
            "chain_ids": self._some(8, self.chain_id),
            "keys": self._some(12, lambda: self.among(KEYS)),
            "errors": self._some(8, lambda: self.among(["BOOM", "Löwenbrand", "none"])),
            "created_from": self.moment() if self.one_in(6) else None,
            "created_before": self.moment() if self.one_in(6) else None,
            "ended_from": self.moment() if self.one_in(8) else None,
            "ended_before": self.moment() if self.one_in(8) else None,
        }

    def _some(self, chance: int, one: Callable[[], Any]) -> tuple[Any, ...] | None:
        """Usually None; else a few values, mostly one."""
        if not self.one_in(chance):
            return None
        return tuple(one() for _ in range(self.among([1, 1, 2, 3, 0])))

    def status(self) -> Status:
        return self.among([row.status for row in self.known.rows.values()] or STATUSES)

    def page(self) -> PageRequest:
        """From the start, most of the time; else after some id, also where that is no position at all."""
        after = self.job_id() if self.one_in(10) else None
        return PageRequest(self.among([2, 1, 3, 10, 0]), after, self.among(["asc", "desc"]))
