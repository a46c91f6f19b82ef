"""Listings: pages along an index, in the order of their sort key. Filters that no index serves are tested row by row.

Which table or index is walked is decided here by the filters, so that a page costs what it shows: statuses that rest
have indexes, running jobs a table of their own. Pending jobs are the exception: their tables are in the order of
claims, so what is pending is sorted for each page.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from queuert.adapters.postgres.command import PgStatement, number_placeholders
from queuert.adapters.postgres.operations.store import Store
from queuert.errors import InvalidArgument, InvalidCursor
from queuert.model import STATUSES, ChainFilter, JobFilter, PageRequest, Status

_RESTING: frozenset[Status] = frozenset(("blocked", "failed", "cancelled", "expired"))
_MAX_INTEGER = 2**31 - 1
_CONDITIONS = "<conditions>"

_numbered = lru_cache(maxsize=256)(number_placeholders)


class _Query(msgspec.Struct):
    """A select in the making."""

    columns: str
    source: str
    sort_key: str
    conditions: list[str] = []
    parameters: dict[str, Any] = {}
    walk: str = ""
    key_type: str = "text::uuid"

    def where(self, condition: str, **parameters: Any) -> None:
        self.conditions.append(condition)
        self.parameters.update(parameters)

    def page(self, page: PageRequest, after: Any) -> PgStatement:
        if after is not None and not self.walk:
            self.where(f"{self.sort_key} {_beyond(page)} :after::{self.key_type}", after=after)
        self.parameters["limit"] = page.limit
        conditions = " AND ".join(self.conditions) or "true"
        if self.walk:
            text = f"{self.walk.replace(_CONDITIONS, conditions)} SELECT {self.columns} FROM {self.source}"
        else:
            text = f"SELECT {self.columns} FROM {self.source} WHERE {conditions}"
        text, names = _numbered(f"{text} ORDER BY {self.sort_key} {page.order.upper()} LIMIT :limit::bigint")
        return PgStatement(text, tuple(self.parameters[name] for name in names), writes=False)


def jobs(store: Store, where: JobFilter, page: PageRequest) -> PgStatement:
    words = store.words
    query = _Query(words["job_columns"], _jobs_with(words, where.status, where.type_name), "j.id")
    if where.type_name is not None:
        query.where("j.type_name = :type_name::text", type_name=where.type_name)
    _status_is(query, "j", "r", where.status)
    _narrow(query, where, "j", "j.id")
    return query.page(page, page.after)


def chains(store: Store, where: ChainFilter, page: PageRequest) -> PgStatement:
    words = store.words
    columns = f"{words['first_columns']}, {words['current_columns']}"
    first_run = f"LEFT JOIN {words['running']} AS first_run ON first_run.job_id = first.id"
    current_run = f"LEFT JOIN {words['running']} AS current_run ON current_run.job_id = current.id"
    with_current = (
        f"CROSS JOIN LATERAL (SELECT last.* FROM {words['job']} AS last WHERE last.chain_id = first.id "
        f"ORDER BY last.chain_index DESC LIMIT 1) AS current {first_run} {current_run}"
    )
    if where.status is not None and where.ids is None:
        # A job that is not completed is always its chain's current one.
        source = _jobs_with(words, where.status, where.type_name, job="current", running="current_run")
        with_first = f"JOIN {words['job']} AS first ON first.id = current.chain_id {first_run}"
        query = _Query(columns, f"{source} {with_first}", "current.id")
        if where.status == "completed":
            query.where("current.continued_to IS NULL")
        if where.type_name is not None:
            query.where("current.chain_type = :type_name::text", type_name=where.type_name)
    elif where.type_name is None and where.ids is None:
        query = _all_chains(columns, words, with_current, page)
    else:
        query = _Query(columns, f"{words['job']} AS first {with_current}", "first.id", ["first.chain_index = 0"])
        query.sort_key = "first.id" if where.status is None else "current.id"
        if where.type_name is not None:
            query.where("first.type_name = :type_name::text", type_name=where.type_name)
    _status_is(query, "current", "current_run", where.status)
    _narrow(query, where, "first", "first.id")
    if where.root_only:
        query.where(f"NOT EXISTS (SELECT FROM {words['blocker']} AS edge WHERE edge.chain_id = first.id)")
    return query.page(page, page.after)


def _all_chains(columns: str, words: dict[str, str], with_current: str, page: PageRequest) -> _Query:
    """Chain after chain, by one seek for each in job_chain: a chain of a million jobs costs no more than any other.

    The page is found first, along the walk, with the filters inside it; OFFSET 0 keeps the planner to that order.
    """
    order = f"ORDER BY n.chain_id {page.order.upper()} LIMIT 1"
    start = "" if page.after is None else f"WHERE n.chain_id {_beyond(page)} :after::text::uuid "
    walk = (
        f"WITH RECURSIVE walk (id) AS ((SELECT n.chain_id FROM {words['job']} AS n {start}{order}) UNION ALL "
        f"SELECT (SELECT n.chain_id FROM {words['job']} AS n WHERE n.chain_id {_beyond(page)} walk.id {order}) "
        "FROM walk WHERE walk.id IS NOT NULL), "
        "page AS MATERIALIZED (SELECT found.id FROM walk CROSS JOIN LATERAL (SELECT first.id "
        f"FROM {words['job']} AS first WHERE first.id = walk.id AND {_CONDITIONS} OFFSET 0) AS found "
        "LIMIT :limit::bigint)"
    )
    source = f"page JOIN {words['job']} AS first ON first.id = page.id {with_current}"
    parameters = {} if page.after is None else {"after": page.after}
    return _Query(columns, source, "first.id", [], parameters, walk)


def chain_jobs(store: Store, chain_id: str, page: PageRequest) -> PgStatement:
    words = store.words
    query = _Query(words["job_columns"], _jobs_with(words, None, None), "j.chain_index", key_type="integer")
    query.where("j.chain_id = :chain_id::text::uuid", chain_id=chain_id)
    return query.page(page, None if page.after is None else _chain_index(page.after))


def blocked_jobs(store: Store, chain_id: str, page: PageRequest) -> PgStatement:
    words = store.words
    source = (
        f"{words['blocker']} AS edge JOIN {words['job']} AS j ON j.id = edge.job_id "
        f"LEFT JOIN {words['running']} AS r ON r.job_id = j.id"
    )
    query = _Query(words["job_columns"], source, "edge.job_id")
    query.where("edge.chain_id = :chain_id::text::uuid", chain_id=chain_id)
    return query.page(page, page.after)


def _jobs_with(
    words: dict[str, str], status: Status | None, type_name: str | None, job: str = "j", running: str = "r"
) -> str:
    """Where jobs of a status are found, with their running rows beside them."""
    if status == "running":
        return f"{words['running']} AS {running} JOIN {words['job']} AS {job} ON {job}.id = {running}.job_id"
    source = f"{words['job']} AS {job}"
    if status == "pending":
        of_type = "" if type_name is None or job != "j" else " WHERE type_name = :type_name::text"
        waiting = (
            f"(SELECT id FROM {words['ready']}{of_type} UNION ALL SELECT id FROM {words['later']}{of_type}) AS waiting"
        )
        source = f"{waiting} JOIN {words['job']} AS {job} ON {job}.id = waiting.id"
    return f"{source} LEFT JOIN {words['running']} AS {running} ON {running}.job_id = {job}.id"


def _status_is(query: _Query, job: str, running: str, status: Status | None) -> None:
    if status is None:
        return
    if status not in STATUSES:
        raise InvalidArgument(f"status must be one of {', '.join(STATUSES)}, got {status!r}")
    if status in _RESTING:
        query.where(f"{job}.resting = :status::text", status=status)
    elif status == "running":
        query.where(f"{running}.job_id IS NOT NULL")
    elif status == "pending":
        query.where(f"{job}.status = 'pending' AND {running}.job_id IS NULL")
    else:
        query.where(f"{job}.status = 'completed'")


def _narrow(query: _Query, where: JobFilter, created: str, key: str) -> None:
    if where.ids is not None:
        query.where(f"{key} = ANY (:ids::text[]::uuid[])", ids=sorted(set(where.ids)))
    if where.created_after is not None:
        query.where(f"{created}.created_at > :created_after::timestamptz", created_after=where.created_after)
    if where.created_before is not None:
        query.where(f"{created}.created_at < :created_before::timestamptz", created_before=where.created_before)


def _beyond(page: PageRequest) -> str:
    return ">" if page.order == "asc" else "<"


def _chain_index(after: str) -> int:
    if not (after.isascii() and after.isdigit()):
        raise InvalidCursor(f"{after!r} is no position in a chain")
    return min(int(after), _MAX_INTEGER)
