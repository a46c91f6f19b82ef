"""Reading what a tab or a screen shows, and showing it.

All is read first. It is shown after that, without waiting: what is shown may be closed while the
database answers, and its widgets are gone then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from queuert.client.client import Client

Show: TypeAlias = Callable[[], None]
"""Shows what was read."""


class Shown(Protocol):
    """A tab, or a screen."""

    @property
    def is_attached(self) -> bool: ...

    async def read(self, client: Client[Any]) -> Show: ...


async def load(shown: Shown, client: Client[Any]) -> None:
    """Read, and show it unless it was closed meanwhile."""
    show = await shown.read(client)
    if shown.is_attached:
        show()
