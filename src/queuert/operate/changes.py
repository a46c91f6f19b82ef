"""What can be done to chains that people name, and what that leads to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from queuert.base.transaction import Transaction
from queuert.client.base import BaseClient
from queuert.client.client import Client
from queuert.engine.operations import cascades
from queuert.engine.operations.cascades import CancelCascade
from queuert.features import limits
from queuert.features.bulk.jobs import CHANGEABLE, BulkAction
from queuert.jobs.chain import Chain


@dataclass(frozen=True)
class Change:
    """One of `retry`, `cancel`, `trigger` and `delete`."""

    name: BulkAction
    done: str
    """What a chain is afterwards."""
    summary: str
    text: str
    needs: str
    """What the status must be, in words."""
    cascade: str | None = None
    """What cascading means, if it can be done so."""
    blockers: str | None = None
    """What cascading the other way means, if it can be done so."""

    async def allows(self, client: BaseClient[Any], chain: Chain[Any]) -> bool:
        """Whether a chain can be changed so: by its status, or because it stops a key."""
        statuses = CHANGEABLE[self.name]
        if statuses is None or chain.status in statuses:
            return True
        if self.name != "cancel" or chain.status != "failed":
            return False
        sessions = client.sessions
        return await sessions.run(limits.stops_key(sessions.engine, chain.id))

    async def carry_out(
        self,
        client: Client[Any],
        tx: Transaction[Any],
        ids: Sequence[str],
        *,
        cascade: bool | CancelCascade = False,
        by: str | None,
        reason: str | None,
    ) -> list[Chain[Any]]:
        options: dict[str, Any] = {"by": by, "reason": reason}
        if self.cascade is not None:
            options["cascade"] = cascade
        changed: list[Chain[Any]] = await getattr(client, self.name)(tx, ids, **options)
        return changed

    async def cascaded(
        self, client: Client[Any], ids: Sequence[str], cascade: bool | CancelCascade = True
    ) -> list[Chain[Any]]:
        """The other chains that cascading leads to."""
        sessions = client.sessions
        if self.name == "delete":
            program = cascades.blockers_below(sessions.engine, ids)
        elif cascade == "blockers":
            program = cascades.needed_by_none_else(sessions.engine, ids)
        else:
            program = cascades.waiting_above(sessions.engine, ids)
        rows = await sessions.run(program)
        return [sessions.engine.jobs.chain_from_row(row) for row in rows]


CHANGES = (
    Change(
        "retry",
        "retried",
        "give failed chains new attempts",
        "Gives failed chains new attempts at the job that failed.",
        "failed",
    ),
    Change(
        "cancel",
        "cancelled",
        "cancel chains that have not ended",
        "Cancels chains that have not ended, and failed ones that stop a key of a limit. "
        "Handlers that are running are told to stop.",
        "blocked, pending or running",
        "also cancel the chains that wait for these",
        "also cancel the chains that only these wait for",
    ),
    Change(
        "trigger",
        "triggered",
        "make chains due now that wait for their time",
        "Makes chains due now that wait for their time, for example for their next attempt.",
        "pending",
    ),
    Change(
        "delete",
        "deleted",
        "delete chains with all their jobs",
        "Deletes chains with all their jobs. A chain that another one waits or waited for is kept.",
        "",
        "also delete the chains that these wait or waited for",
    ),
)

BY_NAME: dict[str, Change] = {change.name: change for change in CHANGES}
