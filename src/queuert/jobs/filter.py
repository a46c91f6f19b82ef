"""Which jobs or chains are meant: one filter for listings and for everything that works on many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self, TypeAlias, TypeVar, cast

from queuert.base.arguments import aware, check_text
from queuert.base.statuses import Status, check_status
from queuert.errors import InvalidArgument
from queuert.jobs import filter_text
from queuert.jobs.chain import Chain
from queuert.jobs.job import Job, is_job_class, name_of
from queuert.jobs.record import JobRecord

T = TypeVar("T")

OneOrSeveral: TypeAlias = T | Sequence[T]
TypeOrName: TypeAlias = type[Job[Any, Any]] | str
Range: TypeAlias = tuple[datetime | None, datetime | None]
"""From the first moment (included) to the second (excluded). None: no limit on that side."""

_MAX_VALUE = 1000


@dataclass(frozen=True, slots=True, init=False)
class Filter:
    """Which jobs or chains are meant: those that match everything that is given.

        Filter(status=["failed", "expired"], type=Charge, error="TIMEOUT")

    Several values mean: any of them. `str(filter)` writes a filter as text, and `Filter.parse`
    reads it.

    For chains, `status`, `type`, `queue`, `error` and `ended` are those of the current job, and
    `created` is when the chain was started.

    Args:
        status: One or several statuses.
        type: The job's type, as a class or its name: all versions and earlier names of it. A name
            like "charge@2" is that version alone.
        chain_type: The type that the chain started with, in the same way.
        queue: The job types that the client's job classes put into this queue now. The client does
            not know about `handles(queue=…)`.
        error: The `code` or the `type` of the last error. A completed job has no error.
        created: When it was created: from the first moment (included) to the second (excluded).
            None means no limit.
        ended: When it ended, with any status, in the same way.
        chain: `Chain` objects or ids of chains.
        job: `JobRecord` objects or ids of jobs. For chains: those that have one of these jobs.
        key: Deduplication keys: the latest chains that were started with them, and their jobs.
    """

    status: tuple[Status, ...] | None
    """The statuses, sorted. None: any. The same is true for all other fields."""
    type: tuple[str, ...] | None
    """The names of job types."""
    chain_type: tuple[str, ...] | None
    """The names of chain types."""
    queue: tuple[str, ...] | None
    """The names of queues."""
    error: tuple[str, ...] | None
    """Codes or types of errors."""
    created: Range | None
    """When it was created, in UTC."""
    ended: Range | None
    """When it ended, in UTC."""
    chain: tuple[str, ...] | None
    """Ids of chains."""
    job: tuple[str, ...] | None
    """Ids of jobs."""
    key: tuple[str, ...] | None
    """Deduplication keys."""

    def __init__(
        self,
        *,
        status: OneOrSeveral[Status] | None = None,
        type: OneOrSeveral[TypeOrName] | None = None,
        chain_type: OneOrSeveral[TypeOrName] | None = None,
        queue: OneOrSeveral[str] | None = None,
        error: OneOrSeveral[str] | None = None,
        created: Range | None = None,
        ended: Range | None = None,
        chain: OneOrSeveral[Chain[Any] | str] | None = None,
        job: OneOrSeveral[JobRecord[Any] | str] | None = None,
        key: OneOrSeveral[str] | None = None,
    ) -> None:
        values = {
            "status": _several("status", status, _status),
            "type": _several("type", type, _type_name),
            "chain_type": _several("chain_type", chain_type, _type_name),
            "queue": _several("queue", queue, _text),
            "error": _several("error", error, _text),
            "created": _range("created", created),
            "ended": _range("ended", ended),
            "chain": _several("chain", chain, _id),
            "job": _several("job", job, _id),
            "key": _several("key", key, _text),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def parse(cls, text: str, *, now: datetime | None = None) -> Self:
        """A filter from text like `status:failed type:charge-card error:TIMEOUT since:2h`.

        Args:
            text: Words with a space between them. Each is a name, a colon, and one value or several
                with commas. `since:2h` is short for `ended:2h..` if the filter has only statuses of
                ended chains, and otherwise for `created:2h..`.
            now: What durations are counted back from (default: the time of the call).
        """
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"a filter is parsed from text, got {text!r}")
        values = filter_text.read(text, datetime.now(UTC) if now is None else aware(now, "now"))
        if "chain-type" in values:
            values["chain_type"] = values.pop("chain-type")
        return cls(**values)

    def __str__(self) -> str:
        names = (*filter_text.LISTS, *filter_text.RANGES)
        return filter_text.write({name: getattr(self, name.replace("-", "_")) for name in names})


def _several(name: str, given: Any, check: Callable[[str, Any], str]) -> tuple[str, ...] | None:
    """The values, each once, sorted."""
    if given is None:
        return None
    one = isinstance(given, str | bytes | Chain | JobRecord | type) or not isinstance(given, Iterable)
    several = cast("Iterable[Any]", [given] if one else given)
    values = {check(name, value) for value in several}
    if not values:
        raise InvalidArgument(f"{name} has no values: leave it out if all of them are meant")
    return tuple(sorted(values))


def _status(_: str, value: Any) -> str:
    check_status(value)
    return str(value)


def _type_name(name: str, value: Any) -> str:
    return name_of(value) if is_job_class(value) else _text(name, value)


def _id(name: str, value: Any) -> str:
    return value.id if isinstance(value, Chain if name == "chain" else JobRecord) else _text(name, value)


def _text(name: str, value: Any) -> str:
    return check_text(value, name, _MAX_VALUE)


def _range(name: str, given: Any) -> Range | None:
    if given is None:
        return None
    if not isinstance(given, tuple | list) or len(cast("Sequence[Any]", given)) != 2:
        raise InvalidArgument(f"{name} takes two moments, (from, before), either of them None, got {given!r}")
    start, end = (None if moment is None else aware(moment, name) for moment in cast("Sequence[Any]", given))
    return None if start is None and end is None else (start, end)
