"""From the filters of a user to those of the state port."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypedDict, cast

from queuert.base.arguments import aware, check_unicode
from queuert.base.statuses import Status, check_status
from queuert.base.times import MICROSECOND
from queuert.errors import InvalidArgument
from queuert.jobs.filter import Filter
from queuert.jobs.registry import Registry
from queuert.jobs.versions import names_a_version
from queuert.records.listings import ChainFilter, JobFilter

_ALL = Filter()


class Keywords(TypedDict):
    """The filters of a listing, besides the type."""

    where: Filter | str | None
    status: Status | Sequence[Status] | None
    ids: Sequence[str] | None
    created_after: datetime | None
    created_before: datetime | None


def filter_of(where: Filter | str | None) -> Filter:
    """A filter as a user gives it."""
    if where is None:
        return _ALL
    if isinstance(where, Filter):
        return where
    if isinstance(where, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Filter.parse(where)
    raise InvalidArgument(f"where takes a Filter or its text, got {where!r}")


def job_filter(jobs: Registry, types: tuple[str, ...] | None, keywords: Keywords) -> JobFilter:
    where = filter_of(keywords["where"])
    return JobFilter(
        types=_in_all(types, _stored(jobs, where.type), _types_in(jobs, where.queue)),
        chain_types=_stored(jobs, where.chain_type),
        job_ids=_in_all(_ids(keywords["ids"]), where.job),
        chain_ids=where.chain,
        **_common(where, keywords),
    )


def chain_filter(jobs: Registry, types: tuple[str, ...] | None, keywords: Keywords, *, root_only: bool) -> ChainFilter:
    where = filter_of(keywords["where"])
    return ChainFilter(
        types=_in_all(_stored(jobs, where.type), _types_in(jobs, where.queue)),
        chain_types=_in_all(types, _stored(jobs, where.chain_type)),
        job_ids=where.job,
        chain_ids=_in_all(_ids(keywords["ids"]), where.chain),
        root_only=root_only,
        **_common(where, keywords),
    )


def _common(where: Filter, keywords: Keywords) -> dict[str, Any]:
    after, before = keywords["created_after"], keywords["created_before"]
    created_from, created_before = where.created or (None, None)
    ended_from, ended_before = where.ended or (None, None)
    if after is not None:
        after = _next(aware(after, "created_after"))
    if before is not None:
        before = aware(before, "created_before")
    return {
        "statuses": _in_all(_statuses(keywords["status"]), where.status),
        "keys": where.key,
        "errors": where.error,
        "created_from": max(filter(None, (after, created_from)), default=None),
        "created_before": min(filter(None, (before, created_before)), default=None),
        "ended_from": ended_from,
        "ended_before": ended_before,
    }


def _next(moment: datetime) -> datetime:
    """The first moment after this one that a database can tell from it."""
    try:
        return moment + MICROSECOND
    except OverflowError:
        return moment


def _stored(jobs: Registry, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """All names that jobs of these types are stored with: of all versions, and earlier names. A
    name with a version means that version alone.
    """
    if names is None:
        return None
    known = [(name,) if names_a_version(name) else jobs.names_of(name) for name in names]
    return tuple(dict.fromkeys(each for several in known for each in several))


def _types_in(jobs: Registry, queues: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if queues is None else tuple(job_type.name for job_type in jobs if job_type.queue in queues)


def _statuses(given: Status | Sequence[Status] | None) -> tuple[Status, ...] | None:
    if given is None:
        return None
    one = isinstance(given, str) or not isinstance(given, Iterable)  # pyright: ignore[reportUnnecessaryIsInstance]
    statuses = cast("tuple[Status, ...]", (given,) if one else tuple(given))
    for status in statuses:
        check_status(status)
    return statuses


def _ids(ids: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(ids, str | bytes) or not (ids is None or hasattr(ids, "__iter__")):
        raise InvalidArgument(f"ids takes a list of ids, got {ids!r}")
    return None if ids is None else tuple(check_unicode(each, "each of ids") for each in ids)


def _in_all(*given: tuple[str, ...] | None) -> tuple[Any, ...] | None:
    """What is in each of the lists. None is a list of everything."""
    lists = [dict.fromkeys(each) for each in given if each is not None]
    return tuple(each for each in lists[0] if all(each in other for other in lists[1:])) if lists else None
