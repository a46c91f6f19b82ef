"""What the model and the adapter under test share: the time, the ids, and how their answers are compared.

Tokens are random. Each side's tokens are numbered in the order of their issue, and rows are compared with that number
in place of the token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace
from tests.machine.driver import Driver

from queuert.errors import QueuertError
from queuert.ports.program import Program
from queuert.ports.state import StateOperations
from queuert.records.listings import ChainFilter, JobFilter, PageRequest
from queuert.records.model import ClaimRequest, ClaimResult, JobRow, Lease, Settlement, new_token

START = datetime(2030, 1, 1, tzinfo=UTC)
ALL = PageRequest(limit=1_000_000)

NO_TOKEN = -1
"""The number of a token that nobody was ever given."""


class Difference(AssertionError):
    """The adapter did not do what the model did."""


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: timedelta) -> None:
        self.now += by


class Ids:
    """UUIDs, the same in every run. Usually each sorts after those before it; `at` puts one among them."""

    def __init__(self) -> None:
        self.count = 0

    def new(self, at: int | None = None) -> str:
        self.count += 1
        return str(UUID(int=((self.count if at is None else at % self.count) << 80) | (7 << 76) | self.count))


@dataclass(frozen=True)
class Step:
    """A call of the state port. Tokens in it are given by their number."""

    operation: str
    arguments: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def program(self, operations: StateOperations, own: Callable[[Any], Any]) -> Program[Any]:
        call = getattr(operations, self.operation)
        program: Program[Any] = call(*(own(argument) for argument in self.arguments), **self.options)
        return program

    def __str__(self) -> str:
        given = [*map(repr, self.arguments), *(f"{name}={value!r}" for name, value in self.options.items())]
        return f"{self.operation}({', '.join(given)})"


class Register(Step):
    """A worker registers. Only its horizon is compared: the rest of its row is about the server."""

    def __init__(self, worker: str, horizon: int) -> None:
        super().__init__("register_worker", (worker,), {"horizon": horizon})

    def program(self, operations: StateOperations, own: Callable[[Any], Any]) -> Program[Any]:
        row = yield from super().program(operations, own)
        return row.horizon


class RollUp(Step):
    """All that there is to roll up."""

    def __init__(self) -> None:
        super().__init__("roll_up", (2,))

    def program(self, operations: StateOperations, own: Callable[[Any], Any]) -> Program[Any]:
        while (yield from super().program(operations, own)):
            pass


class Everything(Step):
    """All that can be seen, read in one go: first what is stored, then what depends on the time."""

    def __init__(self) -> None:
        super().__init__("everything", ())

    def program(self, operations: StateOperations, own: Callable[[Any], Any]) -> Program[Any]:
        jobs = (yield from operations.list_jobs(JobFilter(), ALL)).rows
        chains = yield from operations.list_chains(ChainFilter(), ALL)
        roots = yield from operations.list_chains(ChainFilter(root_only=True), ALL)
        blockers = yield from operations.job_blockers([row.id for row in jobs])
        # What became due since the last claim is in line on some sides, and not yet on others.
        stats = [replace(each, limited=0) for each in (yield from operations.stats())]
        due = yield from operations.next_available_in([row.type_name for row in jobs])
        look = yield from operations.history(60, START)
        counted = [tally[:5] for tally in look.tallies]
        return [[jobs, chains, roots, blockers, counted], [stats, due]]


@dataclass
class Side:
    """The model, or the adapter under test."""

    name: str
    driver: Driver
    tokens: list[int] = field(default_factory=list)
    """By the order of issue."""
    order: dict[int, int] = field(default_factory=dict)

    def perform(self, step: Step, *, inside: bool) -> Outcome:
        try:
            value = self.driver.run(step.program(self.driver.operations, self._own), inside=inside)
        except QueuertError as error:
            return Outcome(error=type(error), fields=vars(error))
        if isinstance(value, ClaimResult):
            self._number_tokens(value)
        return Outcome(value=_comparable(value, self.order))

    def _own(self, value: Any) -> Any:
        """An argument with this side's tokens in place of their numbers."""
        if isinstance(value, list):
            return [self._own(each) for each in value]
        if isinstance(value, Settlement | Lease) and value.token is not None:
            return replace(value, token=2**62 if value.token == NO_TOKEN else self.tokens[value.token])
        if isinstance(value, ClaimRequest):
            return replace(value, first_token=new_token())
        return value

    def _number_tokens(self, result: ClaimResult) -> None:
        for claimed in result.jobs:
            token = claimed.job.token
            if token is None or token in self.order:
                raise Difference(f"{self.name}: {claimed.job.id} was claimed with {token!r}, which is no new token")
            self.order[token] = len(self.tokens)
            self.tokens.append(token)


@dataclass(frozen=True)
class Outcome:
    """What a step returned, or raised: the class of the error and the data it carries, not its words."""

    value: Any = None
    error: type[QueuertError] | None = None
    fields: dict[str, Any] = field(default_factory=dict)


def _comparable(value: Any, order: dict[int, int]) -> Any:
    if isinstance(value, JobRow):
        return value if value.token is None else replace(value, token=order.get(value.token, value.token))
    if isinstance(value, list | tuple):
        return [_comparable(each, order) for each in value]
    if isinstance(value, msgspec.Struct):
        fields = (getattr(value, name) for name in value.__struct_fields__)
        return (type(value).__name__, *(_comparable(each, order) for each in fields))
    return value


def difference(step: str, expected: Any, actual: Any) -> str:
    """Where two answers part, as deep as that can be said."""
    where, expected, actual = _narrow("", expected, actual)
    return f"{step}\nat {where or 'the top'}\nthe model says   {expected!r}\nthe adapter says {actual!r}"


def _narrow(where: str, expected: Any, actual: Any) -> tuple[str, Any, Any]:
    for name, left, right in _parts(expected, actual):
        if left != right:
            return _narrow(f"{where}{name}", left, right)
    return where, expected, actual


def _parts(expected: Any, actual: Any) -> list[tuple[str, Any, Any]]:
    if isinstance(expected, Outcome) and isinstance(actual, Outcome):
        return [(f".{name}", getattr(expected, name), getattr(actual, name)) for name in ("error", "fields", "value")]
    if isinstance(expected, JobRow) and isinstance(actual, JobRow) and expected.id == actual.id:
        names = expected.__struct_fields__
        return [(f".{expected.id}.{name}", getattr(expected, name), getattr(actual, name)) for name in names]
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple) and len(expected) == len(actual):
        return [(f"[{position}]", *pair) for position, pair in enumerate(zip(expected, actual, strict=True))]
    return []
