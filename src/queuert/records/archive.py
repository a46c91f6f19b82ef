"""Chains that are archived before they are deleted: what is kept of them, and where.

`Keep(archive=…)` takes a function, `ArchiveTable` or `JsonLines` (in
`queuert.features.retention.json_lines`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from queuert.base.statuses import Status
from queuert.errors import InvalidArgument
from queuert.records.failed_attempts import FailedAttempt
from queuert.records.model import JobRow

if TYPE_CHECKING:
    from queuert.base.transaction import Transaction

REMEMBERED = 12
"""For how many months the database records that a chain was archived, if it is stored elsewhere."""


class ArchivedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job of an archived chain. Values are plain JSON."""

    id: str
    """The id of the job."""
    job_type: str
    """The name of its type."""
    chain_index: int
    """Its position in the chain, counted from 0."""
    status: Status
    """How it ended."""
    priority: int
    """Its priority."""
    created_at: datetime
    """When it was created."""
    scheduled_at: datetime
    """When it became due."""
    completed_at: datetime | None = None
    """When it ended."""
    completed_by: str | None = None
    """The id of the worker that completed it."""
    attempt_number: int = 0
    """The number of its last attempt."""
    losses: int = 0
    """How many of its attempts were lost with their worker."""
    last_attempt_at: datetime | None = None
    """When its last attempt was claimed."""
    deadline: datetime | None = None
    """Its deadline."""
    blockers: tuple[str, ...] = ()
    """The ids of the chains that it waited for."""
    attempts: tuple[FailedAttempt, ...] = ()
    """Its last attempts that failed or were lost."""
    trace_context: str | None = None
    """The trace context that is stored with it."""
    raw_input: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="input")
    """The input, as JSON bytes."""
    raw_output: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="output")
    """The output, as JSON bytes; null if there is none."""
    raw_error: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="last_error")
    """The error of the last attempt, as JSON bytes; null if there is none."""

    @property
    def input(self) -> Any:
        """The input."""
        return msgspec.json.decode(self.raw_input)

    @property
    def output(self) -> Any:
        """The output. None if there is none."""
        return msgspec.json.decode(self.raw_output)

    @property
    def last_error(self) -> Any:
        """The error of the last attempt. None if there is none."""
        return msgspec.json.decode(self.raw_error)


class ArchivedChain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A whole chain, as an archive keeps it. Times are UTC."""

    id: str
    """The id of the chain."""
    chain_type: str
    """The name of its type: the job type that it started with."""
    status: Status
    """How it ended."""
    created_at: datetime
    """When it was started."""
    ended_at: datetime
    """When it ended."""
    dedup_key: str | None = None
    """The deduplication key that it was started with."""
    jobs: tuple[ArchivedJob, ...]
    """Its jobs, first to last."""

    def to_json(self) -> bytes:
        """One line of JSON."""
        return _encode(self)

    @staticmethod
    def from_json(data: bytes | str) -> ArchivedChain:
        """The chain that `to_json` has written. Raises `InvalidArgument` if it is not one.

        Args:
            data: The JSON.
        """
        try:
            return _decode(data)
        except msgspec.MsgspecError as error:
            raise InvalidArgument(f"this is not an archived chain: {error}") from None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ArchivedChain).decode

Archive: TypeAlias = "Callable[[Transaction[Any], Sequence[ArchivedChain]], Awaitable[None] | None]"
"""Called with the transaction that deletes the chains, and with the chains."""


@dataclass(frozen=True, slots=True)
class ArchiveTable:
    """Keeps archived chains in the table `queuert_archive` of the same database.

    Give it to `Keep(archive=…)`. `client.get_archived` reads a chain from it.

    Args:
        months: For how many months they are kept there (default: None, for ever). Then whole months
            are deleted. If types differ, the longest time counts for all.
    """

    months: int | None = None

    def __post_init__(self) -> None:
        months: Any = self.months
        if months is not None and (isinstance(months, bool) or not isinstance(months, int) or not 1 <= months <= 1200):
            raise InvalidArgument(
                f"ArchiveTable: months must be a whole number from 1 to 1200, or None: got {months!r}"
            )

    @property
    def place(self) -> str:
        """Where the chains are, in words."""
        return "the table queuert_archive"

    def __call__(self, tx: Transaction[Any], chains: Sequence[ArchivedChain]) -> None:
        """Nothing is left to do: the adapter stores the chains as it deletes them."""


class ChainToArchive(msgspec.Struct, frozen=True):
    """The rows of a chain that is to be archived. `blockers` and `attempts`: by job id."""

    jobs: list[JobRow]
    blockers: dict[str, list[str]]
    attempts: dict[str, list[FailedAttempt]]


class ArchiveRow(msgspec.Struct, frozen=True):
    """What the database keeps of an archived chain. `archived_at` is the time when it is stored.
    `place`: where the chain is. `chain`: as JSON; None if it is somewhere else.
    """

    chain_id: str
    chain_type: str
    status: Status
    created_at: datetime
    ended_at: datetime
    archived_at: datetime
    place: str
    chain: bytes | None = None


def chains_to_archive(
    jobs: Iterable[JobRow], blockers: Iterable[tuple[str, str]], attempts: Iterable[tuple[str, FailedAttempt]]
) -> list[ChainToArchive]:
    """The jobs of chains, chain by chain, first to last; with the blockers and attempts of each."""
    chains: dict[str, ChainToArchive] = {}
    chain_of: dict[str, ChainToArchive] = {}
    for job in jobs:
        chain = chain_of[job.id] = chains.setdefault(job.chain_id, ChainToArchive([], {}, {}))
        chain.jobs.append(job)
    for job_id, chain_id in blockers:
        chain_of[job_id].blockers.setdefault(job_id, []).append(chain_id)
    for job_id, attempt in attempts:
        chain_of[job_id].attempts.setdefault(job_id, []).append(attempt)
    return list(chains.values())


def archived_chain(found: ChainToArchive) -> ArchivedChain:
    first, last = found.jobs[0], found.jobs[-1]
    assert last.completed_at is not None
    return ArchivedChain(
        id=first.id,
        chain_type=first.chain_type,
        status=last.status,
        created_at=first.created_at,
        ended_at=last.completed_at,
        dedup_key=first.dedup_key,
        jobs=tuple(_job(row, found) for row in found.jobs),
    )


def _job(row: JobRow, found: ChainToArchive) -> ArchivedJob:
    return ArchivedJob(
        id=row.id,
        job_type=row.type_name,
        chain_index=row.chain_index,
        status=row.status,
        priority=row.priority,
        created_at=row.created_at,
        scheduled_at=row.scheduled_at,
        completed_at=row.completed_at,
        completed_by=row.completed_by,
        attempt_number=row.attempt,
        losses=row.losses,
        last_attempt_at=row.last_attempt_at,
        deadline=row.deadline,
        blockers=tuple(found.blockers.get(row.id, ())),
        attempts=tuple(found.attempts.get(row.id, ())),
        trace_context=row.trace_context,
        raw_input=_raw(row.input),
        raw_output=_raw(row.output),
        raw_error=_raw(None if row.status == "completed" else row.last_error),
    )


def _raw(data: bytes | None) -> msgspec.Raw:
    return msgspec.Raw(b"null" if data is None else data)


def check_archive(archive: object) -> None:
    """Raises `InvalidArgument` for an object that cannot be called."""
    if not callable(archive) or isinstance(archive, type):
        raise InvalidArgument(
            f"Keep: archive takes a function of (tx, chains), an ArchiveTable(…) or a JsonLines(…), got {archive!r}"
        )


def place_of(archive: Archive) -> str:
    """Where its chains are, in words."""
    place = getattr(archive, "place", None)
    if isinstance(place, str):
        return place
    while isinstance(archive, partial):
        archive = archive.func
    return f"the function {getattr(archive, '__qualname__', type(archive).__qualname__)}"


def months_of(archive: Archive) -> int | None:
    """For how many months the table knows of its chains; None: for ever."""
    return archive.months if isinstance(archive, ArchiveTable) else REMEMBERED


def is_async(archive: Archive) -> bool:
    return inspect.iscoroutinefunction(archive) or inspect.iscoroutinefunction(getattr(archive, "__call__", None))  # noqa: B004


def oldest_month(now: datetime, months: int) -> datetime:
    """The first moment of the oldest month that is kept: this many whole months before this one."""
    number = now.year * 12 + now.month - 1 - months
    return datetime(max(1, number // 12), number % 12 + 1, 1, tzinfo=UTC)
