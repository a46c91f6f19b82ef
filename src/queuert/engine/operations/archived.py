"""Archiving chains before they are deleted, and chains that were."""

from __future__ import annotations

from queuert.base.times import EPOCH
from queuert.engine.engine import Engine
from queuert.errors import ChainArchived, ChainNotFound
from queuert.ports.program import Program
from queuert.records.archive import Archive, ArchivedChain, ArchiveRow, ArchiveTable, archived_chain, place_of


def take(engine: Engine, type_name: str, archive: Archive, limit: int) -> Program[list[ArchivedChain]]:
    """Delete chains of a type that are to be archived, and note that they are. In a transaction
    that is committed when they are archived.
    """
    found = yield from engine.state.take_archive(type_name, limit)
    chains, place = [archived_chain(each) for each in found], place_of(archive)
    stored = isinstance(archive, ArchiveTable)
    rows = [
        ArchiveRow(
            chain.id,
            chain.chain_type,
            chain.status,
            chain.created_at,
            chain.ended_at,
            EPOCH,
            place,
            chain.to_json() if stored else None,
        )
        for chain in chains
    ]
    yield from engine.state.store_archive(rows)
    return chains


def not_found(engine: Engine, chain_id: str) -> Program[ChainNotFound]:
    """The error for a chain that is not stored: it may be archived."""
    (row,) = yield from engine.state.get_archived([chain_id])
    return ChainNotFound(chain_id) if row is None else _error(row)


def get_archived(engine: Engine, chain_id: str) -> Program[ArchivedChain | None]:
    (row,) = yield from engine.state.get_archived([chain_id])
    if row is None:
        return None
    if row.chain is None:
        raise _error(row)
    return ArchivedChain.from_json(row.chain)


def _error(row: ArchiveRow) -> ChainArchived:
    return ChainArchived(row.chain_id, row.chain_type, row.status, row.archived_at, row.place)
