"""Listings: pages along an index. See `queuert.adapters.sql.listing`.

Each branch follows one index in the order of its sort key. The filters decide which index that is,
not the query planner: `INDEXED BY` raises an error where the planner would silently sort a million
rows. SQLite uses a partial index only if the query has the condition of the index, word for word.
So a status is a literal in the text, together with that condition.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from queuert.adapters.sql.listing import (
    EVERYTHING,
    Branch,
    beyond,
    bound_of,
    listed,
    not_served,
    served_by,
    tests_current_jobs,
)
from queuert.adapters.sql.statement import Statement
from queuert.adapters.sqlite.operations.base import BaseOperations, array, replacements_for
from queuert.adapters.sqlite.operations.rows import Row, chain_of, job_of, micros
from queuert.base.statuses import Status, check_status
from queuert.ports.program import Program
from queuert.records.listings import ChainFilter, JobFilter, Listed, PageRequest
from queuert.records.model import ChainRow, JobRow

_APART: frozenset[Status] = frozenset(("blocked", "failed", "cancelled", "expired"))
"""Most jobs never have one of these. There are indexes for them by type and status."""

_MOST_BRANCHES = 64
"""With more types and statuses than these, types are tested row by row."""


class Listing(BaseOperations):
    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[Listed[JobRow]]:
        if where.by_chain:
            page.chain_position()  # raises `InvalidCursor`
        where = yield from self._with_keys(where)
        query = _Query(self.prefix, where, page)
        if query.is_empty:
            return Listed([])
        if where.job_ids is None and where.chain_ids is not None:
            return (yield from self._jobs_of_chains(where.chain_ids, where, page))
        statement = query.along(query.job_branches()) if where.job_ids is None else query.jobs_of_ids()
        rows: list[Row] = yield statement("{job_columns}", _JOB)
        return listed(rows, page, job_of, lambda row: row.id)

    def _jobs_of_chains(self, ids: Sequence[str], where: JobFilter, page: PageRequest) -> Program[Listed[JobRow]]:
        """One chain after the other, until the page is full."""
        descending = page.order == "desc"
        after = page.chain_position()
        found: list[JobRow] = []
        for chain_id in sorted(set(ids), reverse=descending):
            if after is not None and (chain_id > after[0] if descending else chain_id < after[0]):
                continue
            rest = msgspec.structs.replace(page, limit=page.limit - len(found))
            index = after[1] if after is not None and chain_id == after[0] else None
            statement = _Query(self.prefix, where, rest).jobs_of_chain(chain_id, index)
            rows: list[Row] = yield statement("{job_columns}", _JOB)
            part = listed(rows, rest, job_of, lambda row: f"{row.chain_id}/{row.chain_index}")
            found += part.rows
            if part.stopped_at is not None or len(found) >= page.limit:
                return Listed(found, part.stopped_at)
        return Listed(found)

    def list_chains(self, where: ChainFilter, page: PageRequest) -> Program[Listed[ChainRow]]:
        where = yield from self._with_keys(where)
        query = _Query(self.prefix, where, page)
        if query.is_empty:
            return Listed([])
        if where.job_ids is not None or where.chain_ids is not None:
            statement = query.named_chains(where)
        elif where.by_current:
            statement = query.along(query.job_branches())
        elif where.chain_types is not None:
            statement = query.along(query.first_jobs())
        else:
            statement = query.all_chains()
        rows: list[Row] = yield statement(
            "{first_columns}, {current_columns}", _BY_CURRENT if where.by_current else _BY_FIRST
        )
        return listed(rows, page, chain_of, lambda row: row.current.id if where.by_current else row.first.id)

    def list_chain_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        after = page.chain_index()
        seek = "" if after is None else f"AND job.chain_index {beyond(page)} :after "
        text = (
            f"SELECT {replacements_for(self.prefix)['job_columns']} FROM {self.prefix}job AS job "
            f"WHERE job.chain_id = :chain_id {seek}ORDER BY job.chain_index {page.order} LIMIT :limit"
        )
        rows: list[Row] = yield _statement(text, chain_id=chain_id, after=after, limit=page.limit)
        return [job_of(row) for row in rows]

    def list_blocked_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        seek = "" if page.after is None else f"AND edge.job_id {beyond(page)} :after "
        text = (
            f"SELECT {replacements_for(self.prefix)['job_columns']} FROM {self.prefix}blocker AS edge "
            f"CROSS JOIN {self.prefix}job AS job ON job.id = edge.job_id "
            f"WHERE edge.chain_id = :chain_id {seek}ORDER BY edge.job_id {page.order} LIMIT :limit"
        )
        rows: list[Row] = yield _statement(text, chain_id=chain_id, after=page.after, limit=page.limit)
        return [job_of(row) for row in rows]

    def _with_keys(self, where: Any) -> Program[Any]:
        """The filter with the chains of its keys instead of the keys."""
        if where.keys is None:
            return where
        rows: list[Row] = yield self.statement("read.keys", keys=array(where.keys))
        found = {chain_id for (chain_id,) in rows}
        if where.chain_ids is not None:
            found.intersection_update(where.chain_ids)
        return msgspec.structs.replace(where, keys=None, chain_ids=tuple(sorted(found)))


_PARAMETER = re.compile(":([a-z_]+[0-9]*)")
_JOB = "CROSS JOIN {prefix}job AS job ON job.id = page.id"
_BY_CURRENT = (
    "CROSS JOIN {prefix}job AS current ON current.id = page.id "
    "CROSS JOIN {prefix}job AS first ON first.id = current.chain_id"
)
_BY_FIRST = (
    "CROSS JOIN {prefix}job AS first ON first.id = page.id "
    "CROSS JOIN {prefix}job AS current ON current.rowid = {current_of_first}"
)


class _Prepared(msgspec.Struct):
    """A listing whose columns are still open."""

    head: str
    words: dict[str, str]
    parameters: dict[str, Any]

    def __call__(self, columns: str, joined: str) -> Statement:
        # CROSS JOIN: the rows of the page are the outer loop, so they stay in their order.
        text = f"{self.head} SELECT page.matches, page.n = :bound, {columns} FROM page {joined}"
        for word in ("job_columns", "first_columns", "current_columns", "current_of_first", "prefix"):
            text = text.replace(f"{{{word}}}", self.words[word])
        return _statement(text, **self.parameters)


class _Query:
    """The statement for one filter and one page."""

    def __init__(self, prefix: str, where: JobFilter, page: PageRequest) -> None:
        self._words = replacements_for(prefix)
        self._where = where
        self._page = page
        self._possible = where.possible
        for status in self._possible or ():
            check_status(status)  # it becomes part of the SQL text
        self._parameters: dict[str, Any] = {
            "limit": page.limit,
            "after": page.after,
            "statuses": array(self._possible or ()),
            "types": array(where.types or ()),
            "chain_types": array(where.chain_types or ()),
            "job_ids": array(sorted(set(where.job_ids or ()))),
            "chain_ids": array(sorted(set(where.chain_ids or ()), reverse=page.order == "desc")),
            "errors": array(where.errors or ()),
            **{f"type{place}": name for place, name in enumerate(dict.fromkeys(where.types or ()))},
            **{f"chain_type{place}": name for place, name in enumerate(dict.fromkeys(where.chain_types or ()))},
        }
        for name in ("created_from", "created_before", "ended_from", "ended_before"):
            moment = getattr(where, name)
            self._parameters[name] = None if moment is None else micros(moment)

    @property
    def is_empty(self) -> bool:
        """Whether nothing can match, so that the database need not be asked."""
        where = self._where
        return () in (
            self._possible, where.types, where.chain_types, where.errors, where.job_ids, where.chain_ids
        )  # fmt: skip

    # Where rows are found

    def jobs_of_ids(self) -> _Prepared:
        """There are no more of them than ids, so all are read."""
        text = (
            "SELECT job.id AS id FROM json_each(:job_ids) AS asked "
            "CROSS JOIN {prefix}job AS job ON job.id = asked.value"
        )
        return self.along([Branch(self._filtered(text, "job.id"), EVERYTHING)])

    def named_chains(self, where: ChainFilter) -> _Prepared:
        """Chains that are given by their ids, or by the ids of some of their jobs: by their current
        jobs.
        """
        named = "SELECT value AS id FROM json_each(:chain_ids)"
        if where.job_ids is not None:
            named = (
                "SELECT DISTINCT member.chain_id AS id FROM json_each(:job_ids) AS asked "
                "CROSS JOIN {prefix}job AS member ON member.id = asked.value"
            )
        key = "job.id" if where.by_current else "job.chain_id"
        text = (
            f"SELECT {key} AS id FROM ({named}) AS first "
            "CROSS JOIN {prefix}job AS job ON job.rowid = {current_of_first}"
        )
        return self.along([Branch(self._filtered(text, key), EVERYTHING)])

    def jobs_of_chain(self, chain_id: str, after: int | None) -> _Prepared:
        """Index job_chain."""
        seek = "" if after is None else f" AND job.chain_index {beyond(self._page)} :after_index"
        self._parameters |= {"chain_id": chain_id, "after_index": after}
        text = f"SELECT job.id AS id FROM {{prefix}}job AS job WHERE job.chain_id = :chain_id{seek}"
        order = f"ORDER BY job.chain_index {self._page.order}"
        return self.along([Branch(text, frozenset(("chain_ids",)))], order=order)

    def job_branches(self) -> list[Branch]:
        """Jobs by status and type, or the current jobs of chains."""
        possible = self._possible
        if possible is None or "completed" in possible:
            if self._where.types is None or not self._fits("types"):
                return [self._walk(None, "", ())]
            return self._by_type("types", "job_type", "", ())
        # A job that is not completed is always its chain's current one.
        return [branch for status in possible for branch in self._with_status(status)]

    def _with_status(self, status: Status) -> list[Branch]:
        where = self._where
        kind = "types" if where.types is not None else "chain_types" if where.chain_types is not None else None
        if kind is not None and status in _APART and self._fits(kind):
            index = "job_type_status" if kind == "types" else "job_chain_type_status"
            found = f"job.status = '{status}' AND +job.status < 'pending' AND job.status <> 'completed'"
            return self._by_type(kind, index, found, ("possible", "by_current"))
        found = f"job.status = '{status}' AND job.status <> 'completed'"
        return [self._walk("job_status", found, ("possible", "by_current"))]

    def first_jobs(self) -> list[Branch]:
        if self._fits("chain_types"):
            return self._by_type("chain_types", "job_first", "job.chain_index = 0", ())
        return [self._walk(None, "", ())]

    def _by_type(self, kind: str, index: str, found: str, served: Sequence[str]) -> list[Branch]:
        """One branch for each type."""
        names = self._where.types if kind == "types" else self._where.chain_types
        column = "chain_type" if index == "job_chain_type_status" else "type_name"
        also = f" AND {found}" if found else ""
        return [
            self._walk(index, f"job.{column} = :{kind.removesuffix('s')}{place}{also}", (*served, kind))
            for place in range(len(set(names or ())))
        ]

    def _fits(self, kind: str) -> bool:
        names = self._where.types if kind == "types" else self._where.chain_types
        return len(names or ()) * len(self._possible or (None,)) <= _MOST_BRANCHES

    def _walk(self, index: str | None, found: str, served: Sequence[str]) -> Branch:
        seek = "" if self._page.after is None else f"job.id {beyond(self._page)} :after"
        where = " AND ".join(filter(None, (found, seek)))
        indexed = "" if index is None else f" INDEXED BY {{prefix}}{index}"
        text = f"SELECT job.id AS id FROM {{prefix}}job AS job{indexed}"
        return Branch(f"{text} WHERE {where}" if where else text, frozenset(served))

    def all_chains(self) -> _Prepared:
        """One seek in job_chain for each chain: a chain of a million jobs costs no more than any
        other.
        """
        edge = "min" if self._page.order == "asc" else "max"
        further = beyond(self._page)
        start = "" if self._page.after is None else f" WHERE chain_id {further} :after"
        walk = (
            f"WITH RECURSIVE walk (id) AS (SELECT {edge}(chain_id) FROM {{prefix}}job{start} UNION ALL "
            f"SELECT (SELECT {edge}(job.chain_id) FROM {{prefix}}job AS job WHERE job.chain_id {further} walk.id) "
            "FROM walk WHERE walk.id IS NOT NULL), "
        )
        return self.along([Branch("SELECT id FROM walk WHERE id IS NOT NULL")], order="", before=walk)

    def along(self, branches: Sequence[Branch], *, order: str | None = None, before: str = "WITH ") -> _Prepared:
        """`order`: how a single branch is sorted, unless it is by id."""
        merged = " UNION ALL ".join(branch.text for branch in branches)
        if order is None:
            order = f"ORDER BY id {self._page.order}"
        conditions = self._conditions(served_by(branches))
        matches, tested = "true", ""
        if conditions:
            matches = f"({' AND '.join(conditions)}) IS TRUE"
            tested = " CROSS JOIN {prefix}job AS job ON job.id = scanned.id"
        text = (
            f"{before}scanned AS (SELECT id, row_number() OVER () AS n FROM ({merged} {order} LIMIT :bound)), "
            f"page AS (SELECT scanned.id AS id, {matches} AS matches, n FROM scanned{tested} "
            f"WHERE {matches} OR n = :bound LIMIT :limit)"
        )
        bound = bound_of(self._page, tests=bool(conditions))
        return _Prepared(text, self._words, {**self._parameters, "bound": bound})

    def _filtered(self, text: str, key: str) -> str:
        conditions = self._conditions(frozenset(("job_ids", "by_current")))
        if self._page.after is not None:
            conditions.append(f"{key} {beyond(self._page)} :after")
        return f"{text} WHERE {' AND '.join(conditions)}" if conditions else text

    # What is tested row by row

    def _conditions(self, served: frozenset[str]) -> list[str]:
        """The filters that are not `served` otherwise, as conditions on the alias `job`."""
        first, chain_types = "job.created_at", _one_of("job.chain_type", "chain_types")
        if tests_current_jobs(self._where):
            first = "(SELECT begun.created_at FROM {prefix}job AS begun WHERE begun.id = job.chain_id)"
        elif isinstance(self._where, ChainFilter):
            chain_types += " AND job.chain_index = 0"  # `first_jobs` walks along all jobs, if there are many types
        texts = {
            "by_current": "job.continued_to IS NULL",
            "possible": _one_of("job.status", "statuses"),
            "types": _one_of("job.type_name", "types"),
            "chain_types": chain_types,
            "chain_ids": _one_of("job.chain_id", "chain_ids"),
            "errors": f"({_one_of(_error('code'), 'errors')} OR {_one_of(_error('type'), 'errors')})",
            "created_from": f"{first} >= :created_from",
            "created_before": f"{first} < :created_before",
            "ended_from": "job.completed_at >= :ended_from",
            "ended_before": "job.completed_at < :ended_before",
            "root_only": "NOT EXISTS (SELECT 1 FROM {prefix}blocker AS edge WHERE edge.chain_id = job.chain_id)",
        }
        return not_served(self._where, served, texts)


def _one_of(value: str, parameter: str) -> str:
    return f"{value} IN (SELECT value FROM json_each(:{parameter}))"


def _error(field: str) -> str:
    return f"json_extract(job.last_error, '$.{field}')"


def _statement(text: str, **parameters: Any) -> Statement:
    """With the parameters that the text has: the driver refuses others."""
    used = {name: parameters[name] for name in _PARAMETER.findall(text)}
    return Statement(text, used, writes=False)
