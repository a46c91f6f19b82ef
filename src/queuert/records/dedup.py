"""Deduplication: which chain a start returns instead of starting a new one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, cast

from queuert.base.arguments import LONGEST, MAX_KEY_LENGTH, Duration, check_text, seconds
from queuert.base.statuses import TERMINAL, Status
from queuert.errors import InvalidArgument

Scope = Literal["waiting", "incomplete", "any"]


@dataclass(frozen=True, slots=True)
class Dedup:
    """Start a chain only if there is no other chain with the same key.

    Each chain type has its own keys. A key refers to the latest chain that was started with it. If
    that chain matches, `start` returns it, marked `deduplicated`, and starts no new one.

    Args:
        key: The key: 1 to 1,000 characters. `dedup="key"` is short for `dedup=Dedup("key")`.
        scope: "waiting" matches until the chain begins: it does not begin before your transaction
            ends, so its handler finds what you have written. "incomplete" (the default) matches
            until the chain has ended. "any" matches whatever its status is.
        window: How long after its start a chain matches, as a timedelta or in seconds (default: no
            limit). Together with "any", it matches even if the chain was pruned meanwhile.
        exclude: The ids of chains that never match (default: none).
    """

    key: str
    _: KW_ONLY
    scope: Scope = "incomplete"
    window: Duration | None = None
    exclude: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_text(self.key, "a deduplication key", MAX_KEY_LENGTH)
        if self.scope not in ("waiting", "incomplete", "any"):
            raise InvalidArgument(f"scope must be 'waiting', 'incomplete' or 'any', got {self.scope!r}")
        if isinstance(self.exclude, str):
            raise InvalidArgument("exclude takes a list of chain ids, got one string")
        if not _are_strings(self.exclude):
            raise InvalidArgument(f"exclude takes a list of chain ids (chain.id), got {self.exclude!r}")
        if self.window is not None:
            seconds(self.window, "window")

    def matches(self, chain_id: str, status: Status, age: int, *, waiting: bool) -> bool:
        """Whether the chain that has the key is returned instead of a new one.

        Args:
            chain_id: The id of that chain.
            status: Its status.
            age: Its age in microseconds.
            waiting: Whether it has not begun.
        """
        if chain_id in self.exclude or (self.scope == "incomplete" and status in TERMINAL):
            return False
        if self.scope == "waiting" and not waiting:
            return False
        return self.window is None or age < self.window_length

    @property
    def window_length(self) -> int:
        """The length of the window in microseconds."""
        return 0 if self.window is None else round(seconds(self.window, "window") * 1_000_000)

    @property
    def outlives(self) -> float | None:
        """For how many seconds after the start of its chain the key matches, even if the chain is
        pruned. None: it does not.
        """
        if self.scope != "any" or self.window is None:
            return None
        return min(seconds(self.window, "window"), LONGEST)

    def matches_pruned(self, chain_id: str, status: Status, age: int) -> bool:
        """The same for a chain that was pruned: without a window, it matches no more.

        Args:
            chain_id: The id of that chain.
            status: How it had ended.
            age: How long ago it was started, in microseconds.
        """
        return self.outlives is not None and self.matches(chain_id, status, age, waiting=False)


def trailing_delay(since: int, per: int) -> int | None:
    """When a throttled job that does not replace another one is due, in microseconds from now.

    None: now, and it begins a period.

    Args:
        since: How long ago the chain that has the key was due. Negative: it is due later.
        per: The length of a period.
    """
    if since >= per:
        return None
    return -since if since < 0 else per - since


def _are_strings(values: object) -> bool:
    return isinstance(values, Iterable) and all(isinstance(each, str) for each in cast("Iterable[object]", values))
