"""Ids as people give them: whole, or the beginning of one if no other id begins so."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import Any

from queuert.client.client import Client
from queuert.errors import InvalidArgument
from queuert.jobs.chain import Chain
from queuert.jobs.record import JobRecord
from queuert.records.listings import JobFilter, PageRequest
from queuert.records.model import JobRow

SHOWN = 3
"""Ids that are named if a beginning fits several."""

_BEGINNING = re.compile(r"[0-9a-f-]+", re.IGNORECASE)
_DIGITS = 32


class IdNotFound(InvalidArgument):
    """No job and no chain has this id."""


async def find_job(client: Client[Any], given: str) -> JobRecord[Any]:
    """The job with this id, or with the only id that begins so. A chain has the id of its first
    job.
    """
    given = given.strip().removesuffix("…")  # copied from a narrow terminal
    if not given:
        raise InvalidArgument("an id is empty: give the id of a chain or a job, or the beginning of one")
    found = await client.get_job(given) if _is_whole(given) else None
    if found is None and given != given.lower() and _is_whole(given):
        found = await client.get_job(given.lower())  # as some other tools write them
    if found is not None:
        return found
    candidates = await _beginning_with(client, given)
    if not candidates:
        if _is_whole(given):
            await client.get_chain(given.lower())  # raises `ChainArchived` if it was archived
        raise IdNotFound(f"there is no job and no chain {given}")
    if len(candidates) > 1:
        named = ", ".join(row.id for row in candidates[:SHOWN])
        more = " and others" if len(candidates) > SHOWN else ""
        raise InvalidArgument(f"several ids begin with {given}: {named}{more}")
    return client_record(await client.get_job(candidates[0].id), given)


async def find_chains(client: Client[Any], given: Sequence[str]) -> list[Chain[Any]]:
    """The chains of these ids, each once. An id of a job means its chain."""
    found: dict[str, Chain[Any]] = {}
    for text in given:
        job = await find_job(client, text)
        chain = await client.get_chain(job.chain_id)
        if chain is None:
            raise IdNotFound(f"there is no job and no chain {text}")
        found[chain.id] = chain
    return list(found.values())


def client_record(job: JobRecord[Any] | None, given: str) -> JobRecord[Any]:
    if job is None:  # it was deleted in between
        raise IdNotFound(f"there is no job and no chain {given}")
    return job


def _is_whole(given: str) -> bool:
    """Whether the database may be asked for this id: PostgreSQL knows only UUIDs."""
    try:
        uuid.UUID(given)
    except ValueError:
        return not _BEGINNING.fullmatch(given)  # an id of the user's own kind
    return True


async def _beginning_with(client: Client[Any], given: str) -> list[JobRow]:
    """A few jobs whose ids begin so: a short piece of the index of ids."""
    digits = given.replace("-", "").lower()
    if not _BEGINNING.fullmatch(given) or not 0 < len(digits) < _DIGITS:
        return []
    first = int(digits.ljust(_DIGITS, "0"), 16)
    after = None if first == 0 else str(uuid.UUID(int=first - 1))
    sessions = client.sessions
    program = sessions.engine.state.list_jobs(JobFilter(), PageRequest(SHOWN + 1, after))
    listed = await sessions.run(program)
    return [row for row in listed.rows if row.id.replace("-", "").lower().startswith(digits)]
