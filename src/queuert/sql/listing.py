"""What the listings of SQL adapters share: conditions and cursors."""

from __future__ import annotations

from typing import Any

import msgspec

from queuert.model import PageRequest


class Query(msgspec.Struct):
    """A SELECT that is being built."""

    columns: str
    source: str
    sort_key: str
    conditions: list[str] = []
    parameters: dict[str, Any] = {}

    def where(self, condition: str, **parameters: Any) -> None:
        self.conditions.append(condition)
        self.parameters.update(parameters)


def beyond(page: PageRequest) -> str:
    """The rows of the page compared with the cursor."""
    return ">" if page.order == "asc" else "<"
