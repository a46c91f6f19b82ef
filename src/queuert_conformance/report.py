"""The result of a run, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent
from traceback import format_exception
from typing import Literal

Result = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case.

    Attributes:
        name: The name of the case.
        rule: The rule that it checks.
        result: "passed", "failed" or "skipped".
        seconds: How long it took.
        error: Why it failed.
        reason: Why it was skipped.
    """

    name: str
    rule: str
    result: Result
    seconds: float
    error: BaseException | None = None
    reason: str | None = None

    @property
    def traceback(self) -> str:
        """The traceback of the failure, as text. Empty if the case did not fail."""
        return "" if self.error is None else "".join(format_exception(self.error))


class ConformanceFailed(AssertionError):
    """At least one case failed. The message is the whole report.

    Attributes:
        report: The report.
    """

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True)
class Report:
    """The outcomes of a run. `str(report)` names every failure and every skip.

    Attributes:
        suite: The name of the suite.
        outcomes: The outcome of each case.
    """

    suite: str
    outcomes: Sequence[Outcome]

    @property
    def passed(self) -> list[Outcome]:
        """The cases that passed."""
        return [outcome for outcome in self.outcomes if outcome.result == "passed"]

    @property
    def failed(self) -> list[Outcome]:
        """The cases that failed."""
        return [outcome for outcome in self.outcomes if outcome.result == "failed"]

    @property
    def skipped(self) -> list[Outcome]:
        """The cases that were skipped."""
        return [outcome for outcome in self.outcomes if outcome.result == "skipped"]

    def raise_if_failed(self) -> None:
        """Raise `ConformanceFailed` if a case failed, with the report as its message."""
        if self.failed:
            raise ConformanceFailed(self)

    def __str__(self) -> str:
        failed, skipped = self.failed, self.skipped
        parts = [self._summary()]
        for outcome in failed:
            last_line = f"{type(outcome.error).__name__}: {outcome.error}"
            parts.append(
                f"FAILED {outcome.name}\n  rule: {outcome.rule}\n  what: {last_line}\n"
                f"{indent(outcome.traceback.rstrip(), '    ')}"
            )
        if skipped:
            parts.append("\n".join(f"SKIPPED {outcome.name}: {outcome.reason}" for outcome in skipped))
        if failed:
            parts.append("\n".join([self._summary(), *(f"  FAILED {outcome.name}" for outcome in failed)]))
        return "\n\n".join(parts)

    def _summary(self) -> str:
        took = sum(outcome.seconds for outcome in self.outcomes)
        return (
            f"{self.suite} conformance: {len(self.failed)} failed, {len(self.passed)} passed, "
            f"{len(self.skipped)} skipped, {took:.1f} s"
        )
