"""Listings: pages along an index.

Each listing follows one index in the order of its sort key, and stops after a page. The filters
decide which index that is, not the query planner: `INDEXED BY` raises an error where the planner
would silently sort a million rows. SQLite uses a partial index only if the query has the condition
of the index, word for word. So a status is a literal in the text, together with that condition.
Filters that no index serves are tested row by row.
"""

from __future__ import annotations

from typing import Any

from queuert.adapters.sqlite.operations.base import BaseOperations, array, replacements_for
from queuert.adapters.sqlite.operations.rows import Row, chain_of, job_of, micros
from queuert.model import ChainFilter, ChainRow, JobFilter, JobRow, PageRequest, Status, check_status
from queuert.ports.program import Program
from queuert.sql.listing import Query, beyond
from queuert.sql.statement import Statement

_APART: frozenset[Status] = frozenset(("blocked", "failed", "cancelled", "expired"))
"""Most jobs never have one of these. There are indexes for them by type and status."""


class Listing(BaseOperations):
    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[list[JobRow]]:
        rows: list[Row] = yield _jobs(self.prefix, where, page)
        return [job_of(row) for row in rows]

    def list_chains(self, where: ChainFilter, page: PageRequest) -> Program[list[ChainRow]]:
        rows: list[Row] = yield _chains(self.prefix, where, page)
        return [chain_of(row) for row in rows]

    def list_chain_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        columns = replacements_for(self.prefix)["job_columns"]
        query = _Query(columns, f"{self.prefix}job AS job", "job.chain_index")
        query.where("job.chain_id = :chain_id", chain_id=chain_id)
        rows: list[Row] = yield query.page(page, page.chain_index())
        return [job_of(row) for row in rows]

    def list_blocked_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        columns = replacements_for(self.prefix)["job_columns"]
        source = f"{self.prefix}blocker AS edge CROSS JOIN {self.prefix}job AS job ON job.id = edge.job_id"
        query = _Query(columns, source, "edge.job_id")
        query.where("edge.chain_id = :chain_id", chain_id=chain_id)
        rows: list[Row] = yield query.page(page, page.after)
        return [job_of(row) for row in rows]


class _Query(Query):
    head: str = ""
    sorted_already: bool = False

    def page(self, page: PageRequest, after: Any) -> Statement:
        if after is not None and not self.sorted_already:
            self.where(f"{self.sort_key} {beyond(page)} :after", after=after)
        self.parameters["limit"] = page.limit
        clauses = [f"{self.head}SELECT {self.columns} FROM {self.source}"]
        if self.conditions:
            clauses.append(f"WHERE {' AND '.join(self.conditions)}")
        if not self.sorted_already:
            clauses.append(f"ORDER BY {self.sort_key} {page.order.upper()}")
        return Statement(" ".join([*clauses, "LIMIT :limit"]), self.parameters, writes=False)


def _jobs(prefix: str, where: JobFilter, page: PageRequest) -> Statement:
    words = replacements_for(prefix)
    table = f"{prefix}job"
    source, by_status = f"{table} AS job", ""
    if where.ids is not None:
        source = f"json_each(:ids) AS asked CROSS JOIN {table} AS job ON job.id = asked.value"
    elif where.status is not None and where.status != "completed":
        by_status = "type_status" if where.type_name is not None and where.status in _APART else "status"
        source = f"{table} AS job INDEXED BY {table}_{by_status}"
    elif where.status is None and where.type_name is not None:
        source = f"{table} AS job INDEXED BY {table}_type"
    query = _Query(words["job_columns"], source, "job.id")
    if where.type_name is not None:
        query.where("job.type_name = :type_name", type_name=where.type_name)
    if where.status is not None:
        query.conditions += _status_is("job", where.status, by_status)
    _narrow(query, where, "job")
    return query.page(page, page.after)


def _chains(prefix: str, where: ChainFilter, page: PageRequest) -> Statement:
    words = replacements_for(prefix)
    table = f"{prefix}job"
    columns = f"{words['first_columns']}, {words['current_columns']}"
    with_current = f"CROSS JOIN {table} AS current ON current.rowid = {words['current_of_first']}"
    if where.ids is not None:
        first = f"json_each(:ids) AS asked CROSS JOIN {table} AS first ON first.id = asked.value"
        query = _Query(columns, f"{first} {with_current}", "first.id", ["first.chain_index = 0"])
        if where.status is not None:
            query.sort_key = "current.id"
            query.conditions += _status_is("current", where.status, "")
    elif where.status is not None:
        query = _chains_by_status(columns, table, where.status, typed=where.type_name is not None)
    elif where.type_name is not None:
        source = f"{table} AS first INDEXED BY {table}_first {with_current}"
        query = _Query(columns, source, "first.id", ["first.chain_index = 0"])
    else:
        query = _all_chains(columns, table, with_current, page)
    if where.type_name is not None:
        side = "first.type_name" if query.sort_key == "first.id" else "current.chain_type"
        query.where(f"{side} = :type_name", type_name=where.type_name)
    _narrow(query, where, "first")
    if where.root_only:
        query.where(f"NOT EXISTS (SELECT 1 FROM {prefix}blocker AS edge WHERE edge.chain_id = first.id)")
    return query.page(page, page.after)


def _chains_by_status(columns: str, table: str, status: Status, *, typed: bool) -> _Query:
    """A job that is not completed is always the current one of its chain, so the index on the
    status of jobs serves chains.
    """
    with_first = f"CROSS JOIN {table} AS first ON first.id = current.chain_id"
    if status == "completed":
        query = _Query(columns, f"{table} AS current {with_first}", "current.id")
        query.where("current.status = 'completed' AND current.continued_to IS NULL")
        return query
    index = "chain_type_status" if typed and status in _APART else "status"
    query = _Query(columns, f"{table} AS current INDEXED BY {table}_{index} {with_first}", "current.id")
    query.conditions += _status_is("current", status, index)
    return query


def _all_chains(columns: str, table: str, with_current: str, page: PageRequest) -> _Query:
    """One seek in job_chain for each chain: a chain of a million jobs costs no more than any
    other.
    """
    edge = "min" if page.order == "asc" else "max"
    start = "" if page.after is None else f" WHERE chain_id {beyond(page)} :after"
    walk = (
        f"WITH RECURSIVE walk (id) AS (SELECT {edge}(chain_id) FROM {table}{start} UNION ALL "
        f"SELECT (SELECT {edge}(job.chain_id) FROM {table} AS job WHERE job.chain_id {beyond(page)} walk.id) "
        "FROM walk WHERE walk.id IS NOT NULL) "
    )
    source = f"walk CROSS JOIN {table} AS first ON first.id = walk.id {with_current}"
    parameters = {} if page.after is None else {"after": page.after}
    return _Query(columns, source, "first.id", [], parameters, walk, sorted_already=True)


def _narrow(query: _Query, where: JobFilter, created: str) -> None:
    if where.ids is not None:
        query.parameters["ids"] = array(sorted(set(where.ids)))
    if where.created_after is not None:
        query.where(f"{created}.created_at > :created_after", created_after=micros(where.created_after))
    if where.created_before is not None:
        query.where(f"{created}.created_at < :created_before", created_before=micros(where.created_before))


def _status_is(table: str, status: Status, index: str) -> list[str]:
    check_status(status)  # it becomes part of the SQL text
    conditions = [f"{table}.status = '{status}'"]
    if index == "status":
        conditions.append(f"{table}.status <> 'completed'")
    elif index:
        conditions.append(f"+{table}.status < 'pending' AND {table}.status <> 'completed'")
    return conditions
