"""New attempts for one chain, with an input that a person has corrected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queuert.client.client import Client
from queuert.engine.operations.archived import not_found
from queuert.features import audit, repair
from queuert.jobs.chain import Chain, plain_json
from queuert.jobs.registry import Registry
from queuert.records.model import ChainRow


@dataclass(frozen=True)
class RepairPlan:
    """What would be stored."""

    chain: ChainRow
    before: Any
    after: Any
    new_fields: list[str]
    """Fields that the stored input does not have."""


async def plan_repair(client: Client[Any], chain_id: str, given: str, jobs: Registry | None) -> RepairPlan:
    """Check an input, given as JSON, as far as that can be known. The classes of `jobs` check it,
    too. Raises if the chain cannot be retried with it.
    """
    sessions = client.sessions
    (row,) = await sessions.run(sessions.engine.state.get_chains([chain_id]))
    if row is None:
        raise await sessions.run(not_found(sessions.engine, chain_id))
    correction = await sessions.run(repair.check_plain(sessions.engine, row, given, jobs))
    before, after = plain_json(row.current.input), plain_json(correction.data)
    fields = set[str](before) if isinstance(before, dict) else set[str]()  # pyright: ignore[reportUnknownArgumentType]
    return RepairPlan(row, before, after, sorted(set(after) - fields))


async def carry_out_repair(
    client: Client[Any], chain_id: str, given: str, jobs: Registry | None, *, by: str | None, reason: str | None
) -> Chain[Any]:
    """Check it again, and retry the chain with it, in one transaction with the record of who did
    it.
    """
    sessions, who = client.sessions, audit.check_who(by, reason)
    async with sessions.transaction() as tx:
        program = repair.repair_plain(sessions.engine, tx.hooks, chain_id, given, jobs)
        audited = audit.audited(sessions.engine, program, "retry", who, input=True)
        (changed,) = await sessions.run(audited, tx.connection)
    return changed
