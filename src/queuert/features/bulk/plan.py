"""What a bulk operation would do, as users see it."""

from __future__ import annotations

from typing import Any

import msgspec

from queuert.features.bulk.jobs import BulkAction
from queuert.jobs.chain import Chain


class PlanNote(msgspec.Struct, frozen=True):
    """Something to know before it is done: what would stay as it is, or would not run, and why."""

    text: str
    """The note."""
    chains: tuple[str, ...] = ()
    """The ids of the chains that it is about, among those that were examined."""

    def __str__(self) -> str:
        return self.text


class BulkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a bulk operation would do now. Nothing was changed."""

    action: BulkAction
    """What would be done."""
    filter: str
    """The filter as text."""
    number: int
    """How many chains match."""
    more: bool
    """Whether there are more than these: counting stops at a bound."""
    types: dict[str, int]
    """How many of them have a current job of each type, those with most chains first."""
    sample: tuple[Chain[Any], ...]
    """The first ones."""
    cascaded: tuple[Chain[Any], ...] = ()
    """Other chains that `cascade` would lead to, from the sample and some more."""
    notes: tuple[PlanNote, ...] = ()
    """What would stay as it is, or would not run, and why."""

    @property
    def counted(self) -> str:
        """The number of chains in words."""
        return f"{'more than ' * self.more}{self.number:,} chain{'s' * (self.number != 1)}"

    def __str__(self) -> str:
        kinds = ", ".join(f"{number:,} {name}" for name, number in self.types.items())
        lines = [f"{self.action.replace('_', ' ')} {self.filter}: {self.counted}{f' ({kinds})' * bool(kinds)}"]
        if self.cascaded:
            lines.append(f"also, because of cascade: {len(self.cascaded):,}")
        return "\n".join([*lines, *(f"- {note.text}" for note in self.notes)])
