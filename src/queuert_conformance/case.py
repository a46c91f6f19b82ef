"""Cases, and the suites that contain them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from queuert.errors import InvalidArgument

S = TypeVar("S")

DRIVER = "@driver"
"""Chooses the cases that a driver can fail, even if the operations over it are right."""

Body = Callable[[S], Awaitable[None]]


@dataclass(frozen=True)
class Case(Generic[S]):
    """One rule of a contract and the code that checks it.

    `name` is `<operation>.<what is checked>`.
    """

    name: str
    rule: str
    body: Body[S]
    driver: bool = False
    """Whether a database driver can break the rule, even if the operations over it are right."""


class Suite(Generic[S]):
    """The cases of one port, in the order of their definition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._cases: dict[str, Case[S]] = {}

    def __iter__(self) -> Iterator[Case[S]]:
        return iter(self._cases.values())

    def __len__(self) -> int:
        return len(self._cases)

    def case(self, body: Body[S]) -> Body[S]:
        """Register an async function as a case. Its docstring is the rule."""
        return self._add(body, driver=False)

    def driver_case(self, body: Body[S]) -> Body[S]:
        """Register a case that a driver can fail even if the operations over it are right.

        Such a case is about transactions, isolation, errors, concurrency or the encoding of values.
        """
        return self._add(body, driver=True)

    def _add(self, body: Body[S], *, driver: bool) -> Body[S]:
        module, function, doc = body.__module__, getattr(body, "__name__", repr(body)), body.__doc__
        name = f"{module.rpartition('.')[2]}.{function}"
        if not doc:
            raise InvalidArgument(f"case {name} has no docstring: state the rule in one line")
        if name in self._cases:
            raise InvalidArgument(f"there are two cases named {name}")
        self._cases[name] = Case(name, " ".join(doc.split()), body, driver)
        return body

    def select(self, only: str | Iterable[str] | None) -> list[Case[S]]:
        """The cases that match: an operation ("claim"), a case, a pattern ("*.empty_*") or
        "@driver".

        None: all.
        """
        if only is None:
            return list(self)
        patterns = [only] if isinstance(only, str) else list(only)
        for pattern in patterns:
            if not any(_matches(case, pattern) for case in self):
                raise InvalidArgument(f"no {self.name} case is named {pattern!r}")
        return [case for case in self if any(_matches(case, pattern) for pattern in patterns)]


def _matches(case: Case[S], pattern: str) -> bool:
    if pattern == DRIVER:
        return case.driver
    return fnmatchcase(case.name, pattern) or case.name.startswith(f"{pattern}.")
