"""What `client.doctor()` returns: what is wrong with a database, how bad it is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Diagnosis", "Finding", "Severity"]

Severity = Literal["error", "warning"]
"""An error means that jobs are lost, repeated or held back. A warning means that this may happen
later, or that jobs are slow.
"""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. `str(finding)` is a text for people."""

    code: str
    """A short name that does not change: docs/operating.md lists them."""
    severity: Severity
    """"error" or "warning"."""
    what: str
    """What is wrong, and what that leads to."""
    remedy: str
    """What to do."""
    subject: str | None = None
    """The id of the job or chain, or the name of the table that it is about."""
    fixable: bool = False
    """Whether `fix=True` can repair it."""
    repaired: bool = False
    """Whether this call has repaired it."""
    done: str | None = None
    """With `fix=True`: what was done, or why nothing was."""

    def __str__(self) -> str:
        rest = self.remedy if self.done is None else self.done
        return f"{self.severity}: {self.what} → {rest}"


@dataclass(frozen=True)
class Diagnosis:
    """What `client.doctor()` has found. `str(diagnosis)` is a text for people."""

    findings: tuple[Finding, ...]
    """What is wrong; errors first."""
    rows: int
    """How many rows were compared."""
    complete: bool
    """Whether all rows that this call is about were compared. False: there are more rows than one
    call reads, or more findings than it lists.
    """
    full: bool
    """Whether all jobs were read."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong, or everything was repaired."""
        return all(finding.repaired for finding in self.findings)

    @property
    def summary(self) -> str:
        """One line: how many findings, and what was compared."""
        extent = "all jobs" if self.full else "jobs that have not ended"
        part = "" if self.complete else ", not all of them"
        number = _number(len(self.findings), "finding") if self.findings else "no findings"
        return f"{number}, {_number(self.rows, 'row')} compared ({extent}{part})"

    def __str__(self) -> str:
        return "\n".join([*map(str, self.findings), self.summary])


def _number(number: int, one: str) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {one}s"
