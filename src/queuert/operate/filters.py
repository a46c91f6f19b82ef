"""Filters as people give them. Queues, and versions of job types, are looked up: the command knows
no job classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from queuert.client.client import Client
from queuert.errors import InvalidArgument
from queuert.jobs.filter import Filter
from queuert.jobs.versions import is_version_of, names_a_version


async def read_filter(client: Client[Any], words: Sequence[str]) -> Filter:
    """The filter of these words, with the types of a queue instead of the queue, and all versions
    of a type that are stored or that workers know.

    The types of a queue are those that the workers in the database serve through it, also workers
    that have died lately.
    """
    where = await _with_versions(client, Filter.parse(" ".join(words)))
    if where.queue is None:
        return where
    types = await _types_in(client, where.queue)
    if where.type is not None and types.isdisjoint(where.type):
        raise InvalidArgument(
            f"nothing can match: {_named(where.queue)} has the types {', '.join(sorted(types))}, "
            f"not {', '.join(where.type)}"
        )
    wanted = types if where.type is None else types.intersection(where.type)
    return replace(where, queue=None, type=tuple(sorted(wanted)))


async def _with_versions(client: Client[Any], where: Filter) -> Filter:
    given = {*(where.type or ()), *(where.chain_type or ())}
    if all(names_a_version(name) for name in given):
        return where
    known = await versions_known(client)

    def widened(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        return tuple(sorted({*names, *(each for each in known if any(is_version_of(each, name) for name in names))}))

    return replace(where, type=widened(where.type), chain_type=widened(where.chain_type))


async def versions_known(client: Client[Any]) -> set[str]:
    """The names of versions, like `charge@2`, that workers know or have known, and of open jobs."""
    return {name for name in await types_known(client) if names_a_version(name)}


async def types_known(client: Client[Any]) -> set[str]:
    """The names that jobs are stored with, of open jobs, and of those that workers know or have
    known.
    """
    workers = await client.list_workers()
    known = {each.name for worker in workers for queue in worker.queues for each in queue.types}
    known.update(each.job_type for each in await client.stats(limit=1))
    known.update(each.policy.chain_type for each in (await client.retention()).types)
    return known


async def _types_in(client: Client[Any], queues: Sequence[str]) -> set[str]:
    served: dict[str, set[str]] = {}
    for worker in await client.list_workers():
        for queue in worker.queues:
            served.setdefault(queue.name, set()).update(each.name for each in queue.types)
    unknown = [name for name in queues if name not in served]
    if unknown:
        known = f"the workers serve {', '.join(sorted(served))}" if served else "no worker is known"
        raise InvalidArgument(f"no worker is known that serves {_named(unknown)} ({known}): give type:NAME instead")
    return set[str]().union(*(served[name] for name in queues))


def _named(queues: Sequence[str]) -> str:
    return f"queue{'s' * (len(queues) > 1)} {', '.join(queues)}"
