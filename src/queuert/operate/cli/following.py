"""Which chains are new or have changed, look by look. Each look reads a bounded number of chains.

A look reads the latest chains, those that are running, and by their ids those that were open at the
look before, and those that have been heard to end. So a chain that waits for hours and then ends
within moments is noticed if a notification tells of it, and may be missed otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from queuert.base.statuses import OPEN
from queuert.client.client import Client
from queuert.jobs.chain import Chain
from queuert.jobs.filter import Filter

PAGE = 200
"""Chains that are read at once, in the order of their ids."""
PAGES = 5
"""Pages of new chains that one look reads."""
BY_ID = 1000
"""Chains that one look reads by their ids."""
REMEMBERED = 5000
"""Chains whose state is kept, to notice that it changes."""

State = tuple[str | None, str | None, str | None]


class Follower:
    def __init__(self, client: Client[Any], where: Filter) -> None:
        self._client = client
        self._where = where
        # A chain that does not match yet may do so when its status changes.
        self._broad = replace(where, status=None, error=None, ended=None)
        self._known: dict[str, State] = {}
        """By chain id. The latest ones are the last: every look reads them, so they stay."""
        self._floor = ""
        """Chains before this one were there when following began."""
        self.overwhelmed = False
        """More was new at the last look than one look reads."""

    async def begin(self, last: int) -> list[Chain[Any]]:
        """The latest chains that match, the newest one last. What is stored now counts as seen."""
        latest = (await self._client.list_chains(where=self._broad, order="desc", limit=PAGE)).items
        if len(latest) == PAGE:
            self._floor = min(_place(chain) for chain in latest)
        self._changed([*await self._running(), *reversed(latest)])
        if last == 0:
            return []
        page = await self._client.list_chains(where=self._where, order="desc", limit=last)
        return list(reversed(page.items))

    async def look(self, heard: Sequence[str] = ()) -> list[Chain[Any]]:
        """The chains that match and are new or have changed, the latest change last."""
        new = await self._latest()
        running = await self._running()
        seen = {chain.id for chain in (*new, *running)}
        followed = [each for each, (_, status, _) in self._known.items() if status in OPEN and each not in seen]
        wanted = list(dict.fromkeys([*heard, *followed]))[:BY_ID]
        by_id = await self._by_id(self._broad, wanted)
        for gone in set(wanted) - {chain.id for chain in by_id}:
            self._known.pop(gone, None)  # deleted, or it does not match any more
        changed = self._changed([*by_id, *running, *reversed(new)], heard)
        if self._where != self._broad:
            changed = await self._by_id(self._where, [chain.id for chain in changed])
        return sorted(changed, key=lambda chain: (chain.completed_at or chain.created_at, chain.id))

    async def _latest(self) -> list[Chain[Any]]:
        """Page by page, as long as all of it is new."""
        found: list[Chain[Any]] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await self._client.list_chains(where=self._broad, order="desc", limit=PAGE, cursor=cursor)
            found += page.items
            cursor = page.next_cursor
            self.overwhelmed = cursor is not None and not any(chain.id in self._known for chain in page.items)
            if not self.overwhelmed or _place(found[-1]) <= self._floor:
                self.overwhelmed = False
                break
        return found

    async def _running(self) -> Sequence[Chain[Any]]:
        where = replace(self._broad, status=("running",))
        return (await self._client.list_chains(where=where, order="desc", limit=PAGE)).items

    async def _by_id(self, where: Filter, ids: Sequence[str]) -> list[Chain[Any]]:
        found: list[Chain[Any]] = []
        for start in range(0, len(ids), BY_ID):
            part = ids[start : start + BY_ID]
            cursor: str | None = None
            while True:
                page = await self._client.list_chains(where=where, ids=part, limit=BY_ID, cursor=cursor)
                found += page.items
                cursor = page.next_cursor
                if cursor is None:
                    break
        return found

    def _changed(self, chains: Iterable[Chain[Any]], heard: Sequence[str] = ()) -> list[Chain[Any]]:
        """Those whose state is another one than before. Their states are kept."""
        changed: dict[str, Chain[Any]] = {}
        for chain in chains:
            before = self._known.pop(chain.id, None)
            state = (chain.current_job_id, chain.status, (chain.last_error or {}).get("code"))
            self._known[chain.id] = state
            is_new = before is None and (_place(chain) > self._floor or chain.id in heard or chain.status == "running")
            if is_new or (before is not None and before != state):
                changed[chain.id] = chain
        for chain_id in list(self._known)[: max(0, len(self._known) - REMEMBERED)]:
            del self._known[chain_id]
        return list(changed.values())


def _place(chain: Chain[Any]) -> str:
    """Ids increase with time."""
    return chain.current_job_id or chain.id
