"""Debounce and throttle: forms of deduplication that change the chain that waits under a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from queuert.base.arguments import LONGEST, Duration, seconds
from queuert.errors import InvalidArgument
from queuert.records.dedup import Dedup
from queuert.records.model import Collapse, When

if TYPE_CHECKING:
    from queuert.jobs.job import Job

J = TypeVar("J", bound="Job[Any, Any]", default=Any)


@dataclass(frozen=True)  # with slots, `Debounce[Job](…)` would raise: Python stores the alias in the object
class Debounce(Generic[J]):
    """Collect starts: the chain begins once no start with the same key has come for a while.

    The first start begins to wait. Each later start finds the chain that waits under its key,
    replaces its input, and restarts the wait. `start` returns that chain, marked `deduplicated` and
    `replaced`. A chain that has begun is not changed: the next start is the first of a new chain.

    Args:
        key: The key: 1 to 1,000 characters. Each chain type has its own keys.
        wait: How long there must be no start before the chain may begin, as a timedelta or in
            seconds.
        at_most: The longest time from the first start until the chain may begin. A chain that has
            waited this long is no longer changed.
        keep: "last" (the default) keeps the input, priority and deadline of the last start. "first"
            keeps those of the first: later starts only move the time.
        merge: Called with the waiting job and the new one. Returns the job to run. It is called in
            the transaction that starts the job, before anything is written, and must not use it.
    """

    key: str
    _: KW_ONLY
    wait: Duration
    at_most: Duration
    keep: Literal["last", "first"] = "last"
    merge: Callable[[J, J], J] | None = None

    def __post_init__(self) -> None:
        wait, at_most = _length(self.wait, "wait"), _length(self.at_most, "at_most")
        if at_most < wait:
            raise InvalidArgument(f"at_most must not be shorter than wait, got {at_most:g} and {wait:g} seconds")
        if self.keep not in ("last", "first"):
            raise InvalidArgument(f"keep must be 'last' or 'first', got {self.keep!r}")
        if self.merge is not None and not callable(self.merge):
            raise InvalidArgument(f"merge must be a function of two jobs, got {type(self.merge).__name__}")
        if self.merge is not None and self.keep != "last":
            raise InvalidArgument("give merge= or keep='first', not both: merge decides what is kept")
        Dedup(self.key)


@dataclass(frozen=True, slots=True)
class Throttle:
    """Start at most one chain in each period of time.

    The first start begins at once. With `trailing`, a start that comes too early is stored as one
    chain that is due when the period ends, and further ones replace the input of that chain
    (`replaced`). So the last start is never lost. Without it, a start that comes too early returns
    the chain of this period (`deduplicated`), as with `Dedup(key, scope="any", window=per)`.

    Args:
        key: The key: 1 to 1,000 characters. Each chain type has its own keys.
        per: The length of a period, as a timedelta or in seconds. It begins when a chain is due.
        trailing: Whether starts that come too early run at the end of the period (the default) or
            are dropped.
    """

    key: str
    _: KW_ONLY
    per: Duration
    trailing: bool = True

    def __post_init__(self) -> None:
        if not _length(self.per, "per"):
            raise InvalidArgument("per must be longer than 0 seconds")
        if not isinstance(self.trailing, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"trailing must be True or False, got {type(self.trailing).__name__}")
        Dedup(self.key)


AnyDedup: TypeAlias = Dedup | Debounce[Any] | Throttle


def _length(duration: Duration, what: str) -> float:
    value = seconds(duration, what)
    if value > LONGEST:
        raise InvalidArgument(f"{what} must not be longer than 100 years, got {value:g} seconds")
    return value


def rule_of(dedup: AnyDedup) -> tuple[Dedup, Collapse | None]:
    """What the state port is given: which chain matches, and what happens to it."""
    match dedup:
        case Debounce():
            collapse: Collapse = "hold" if dedup.merge else "replace" if dedup.keep == "last" else "postpone"
            return Dedup(dedup.key, scope="waiting", window=dedup.at_most), collapse
        case Throttle():
            return Dedup(dedup.key, scope="any", window=dedup.per), "trail" if dedup.trailing else None
        case Dedup():
            return dedup, None


def due_of(dedup: AnyDedup) -> When | None:
    """When the job is due, if that follows from its deduplication."""
    return When(after=seconds(dedup.wait, "wait")) if isinstance(dedup, Debounce) else None


def check_with(dedup: AnyDedup, *, scheduled: bool, blockers: bool) -> None:
    """Refuse what a debounced or throttled job cannot have besides."""
    if not isinstance(dedup, Debounce | Throttle):
        return
    name = type(dedup).__name__
    if scheduled:
        raise InvalidArgument(f"a job with {name} takes no at= or after=: the {name.lower()} decides when it is due")
    if blockers and (isinstance(dedup, Debounce) or dedup.trailing):
        raise InvalidArgument(f"a job that waits for other chains cannot have {name}: its input may be replaced")
