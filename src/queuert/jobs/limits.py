"""Limits by key, as users declare them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from queuert.base.arguments import LONGEST, MAX_KEY_LENGTH, MAX_NAME_LENGTH, Duration, check_text, seconds
from queuert.errors import InvalidArgument, InvalidJobType, JobTypeValidationError, ValidationCode
from queuert.records.limits import DeclaredLimit, LimitRule, RateRule, lane_of

if TYPE_CHECKING:
    from queuert.jobs.job_type import JobType

MOST = 1_000_000
"""The maximum of a concurrency, and of the number of a rate."""
WEIGHTS = (0.001, 1000.0)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most this many jobs of a key begin within any period of this length, by the database's
    clock.

    Args:
        number: How many may begin: 1 to 1,000,000.
        per: The length of the time, as a timedelta or in seconds.
        smooth: Space them evenly, `per / number` apart, instead of letting them begin at once
            (default: False).
    """

    number: int
    per: Duration
    smooth: bool = False

    def __post_init__(self) -> None:
        _check_number(self.number, "the number of a Rate")
        if not 0.001 <= seconds(self.per, "per of a Rate") <= LONGEST:
            raise InvalidArgument(f"per of a Rate must be between 1 millisecond and 100 years, got {self.per!r}")
        if not isinstance(self.smooth, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"smooth of a Rate must be True or False, got {self.smooth!r}")

    @property
    def rule(self) -> RateRule:
        """What is stored of it."""
        return RateRule(self.number, seconds(self.per, "per of a Rate"), self.smooth)


@dataclass(frozen=True, slots=True)
class Limit:
    """How many jobs with the same key may run at once, or begin in a period, in all workers
    together.

        class Sync(EntryJob[None], name="sync", limit=Limit(by="tenant", concurrency=4)):
            tenant: int

    The keys of a limit take turns: see docs/limits.md.

    Args:
        name: The name of a limit that several job types share (default: the limit is for one type,
            and has the name of that type).
        by: Where the key comes from: the name of a field, or a function of the job. The key is a
            string, an integer, a UUID or a member of an Enum with such values (default: one key for
            all jobs).
        concurrency: How many jobs of a key may run at once (default: no limit).
        rate: How many jobs of a key may begin in a period (default: no limit).
        weight: How many turns a key gets for each turn of a key with the weight 1: a number from
            0.001 to 1,000, the name of a field with such numbers, or a function of the job. With a
            field or a function, the weight of the first job in line counts (default: 1).
        ordered: The next job of a key begins only when the one before is completed. It needs
            `concurrency=1` (default: False).
    """

    name: str | None = None
    _: KW_ONLY
    by: str | Callable[[Any], Any] | None = None
    concurrency: int | None = None
    rate: Rate | None = None
    weight: float | str | Callable[[Any], float] = 1.0
    ordered: bool = False

    def __post_init__(self) -> None:
        if self.name is not None:
            check_limit_name(self.name)
        if self.by is not None and not isinstance(self.by, str) and not callable(self.by):
            raise InvalidArgument(f"by of a Limit must be the name of a field or a function, got {self.by!r}")
        check_concurrency(self.concurrency)
        check_rate(self.rate)
        if not isinstance(self.weight, str) and not callable(self.weight):
            check_weight(self.weight, "a number from 0.001 to 1,000, the name of a field or a function")
        if self.ordered and self.concurrency != 1:
            raise InvalidArgument("a Limit with ordered=True needs concurrency=1")
        if self.concurrency is None and self.rate is None:
            raise InvalidArgument("a Limit needs a concurrency or a rate")

    @property
    def rule(self) -> LimitRule:
        """What is stored of it."""
        rate = None if self.rate is None else self.rate.rule
        weight = None if isinstance(self.weight, str) or callable(self.weight) else float(self.weight)
        return LimitRule(self.concurrency, rate, weight, self.ordered)


def lane_for(limit: Limit, job: Any, type_name: str) -> str:
    """The lane of a job: `JobTypeValidationError` ("invalid_limit_key") if it has no valid key."""
    name = limit.name or type_name
    if limit.by is None:
        return lane_of(name, "")
    try:
        text = check_text(key_text(_value(limit.by, job)), "the key of a limit", MAX_KEY_LENGTH)
    except Exception as error:
        raise _refused("invalid_limit_key", name, type_name, error) from error
    return lane_of(name, text)


def weight_for(limit: Limit, job: Any, type_name: str) -> float | None:
    """The weight that a job gives its lane, or None if the limit sets it: `JobTypeValidationError`
    ("invalid_limit_weight") if it is not a valid one.
    """
    if not isinstance(limit.weight, str) and not callable(limit.weight):
        return None
    try:
        return check_weight(_value(limit.weight, job))
    except Exception as error:
        raise _refused("invalid_limit_weight", limit.name or type_name, type_name, error) from error


def _value(source: str | Callable[[Any], Any], job: Any) -> object:
    return getattr(job, source) if isinstance(source, str) else source(job)


def _refused(code: ValidationCode, name: str, type_name: str, error: Exception) -> JobTypeValidationError:
    message = str(error) if isinstance(error, InvalidArgument) else f"{type(error).__name__}: {error}"
    return JobTypeValidationError(code, type_name, f"limit {name!r}: {message}")


@dataclass(frozen=True, slots=True)
class LimitKey:
    """One key of a limit, as a target of `client.pause` and `client.resume`.

    Args:
        limit: The limit: its name, a `Limit` that has one, or a job class with a limit.
        key: The key.
    """

    limit: str | Limit | type[Any]
    key: str | int | UUID


def declared_limits(types: Iterable[JobType]) -> list[DeclaredLimit]:
    """The limits of job types, sorted by name: `InvalidJobType` if one name has two meanings."""
    rules: dict[str, LimitRule] = {}
    members: dict[str, list[str]] = {}
    for job_type in types:
        if job_type.limit is None:
            continue
        name = job_type.limit.name or job_type.names[0]
        if rules.setdefault(name, job_type.limit.rule) != job_type.limit.rule:
            raise InvalidJobType(
                job_type.name,
                f"the limit {name!r} is declared differently by {members[name][0]!r}: use one Limit object",
            )
        members.setdefault(name, []).append(job_type.name)
    return [DeclaredLimit(name, rule, tuple(members[name])) for name, rule in sorted(rules.items())]


def key_text(value: object) -> str:
    """A key as it is stored."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool) or not isinstance(value, str | int | UUID):
        raise InvalidArgument(f"the key of a limit must be a string, an integer or a UUID, got {value!r}")
    return str(value)


def check_limit_name(name: object) -> str:
    text = check_text(name, "the name of a limit", MAX_NAME_LENGTH)
    if any(character < " " for character in text):
        raise InvalidArgument(f"the name of a limit must not contain control characters, got {text!r}")
    return text


def check_concurrency(value: object) -> None:
    if value is not None:
        _check_number(value, "concurrency")


def check_rate(value: object) -> None:
    if value is not None and not isinstance(value, Rate):
        raise InvalidArgument(f"rate must be a Rate(…), got {value!r}")


def check_weight(value: object, expected: str = "a number from 0.001 to 1,000") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not WEIGHTS[0] <= value <= WEIGHTS[1]:
        raise InvalidArgument(f"weight must be {expected}, got {value!r}")
    return float(value)


def _check_number(value: object, what: str) -> None:
    if type(value) is not int or not 1 <= value <= MOST:
        raise InvalidArgument(f"{what} must be an integer from 1 to 1,000,000, got {value!r}")
