"""Listings: pages along an index, in the order of their sort key. See
`queuert.adapters.sql.listing`.

The filters decide which tables and indexes are walked, so that the cost depends on the page, not on
the table: blocked, failed, cancelled, expired and pending jobs have indexes, running jobs a table
of their own. Completed jobs are found along the index of all jobs, or of those of a type. A page
reads a bounded number of them.

LATERAL and OFFSET 0 keep the planner to the written order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from queuert.adapters.postgres.command import PgStatement, number_placeholders
from queuert.adapters.postgres.operations.base import BaseOperations, distinct
from queuert.adapters.postgres.rows import Row, chain_of, job_of
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
from queuert.adapters.sql.statement import substitute
from queuert.base.ids import is_uuid
from queuert.base.statuses import Status, check_status
from queuert.errors import InvalidCursor
from queuert.ports.program import Program
from queuert.records.listings import ChainFilter, JobFilter, Listed, PageRequest
from queuert.records.model import ChainRow, JobRow

_RESTING: frozenset[Status] = frozenset(("blocked", "failed", "cancelled", "expired"))

_RUN = "LEFT JOIN {running} AS r ON r.job_id = j.id"
_JOB = f"CROSS JOIN LATERAL (SELECT o.* FROM {{job}} AS o WHERE o.id = page.id OFFSET 0) AS j {_RUN}"
_RUNS = (
    "LEFT JOIN {running} AS first_run ON first_run.job_id = first.id "
    "LEFT JOIN {running} AS current_run ON current_run.job_id = current.id"
)
_BY_CURRENT = (
    "CROSS JOIN LATERAL (SELECT o.* FROM {job} AS o WHERE o.id = page.id OFFSET 0) AS current "
    f"CROSS JOIN LATERAL (SELECT o.* FROM {{job}} AS o WHERE o.id = current.chain_id OFFSET 0) AS first {_RUNS}"
)
_BY_FIRST = (
    "CROSS JOIN LATERAL (SELECT o.* FROM {job} AS o WHERE o.id = page.id OFFSET 0) AS first "
    "CROSS JOIN LATERAL (SELECT last.* FROM {job} AS last WHERE last.chain_id = first.id "
    f"ORDER BY last.chain_index DESC LIMIT 1) AS current {_RUNS}"
)

_numbered = lru_cache(maxsize=256)(number_placeholders)


class Listing(BaseOperations):
    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[Listed[JobRow]]:
        if where.by_chain:
            page.chain_position()  # raises `InvalidCursor`
        where = yield from self._with_keys(where)
        query = _Query(where, page)
        if query.is_empty:
            return Listed([])
        if where.job_ids is not None:
            statement = query.of_ids("SELECT j.id FROM {job} AS j WHERE j.id = ANY (:job_ids::text[]::uuid[])")
        elif where.chain_ids is not None:
            statement = query.of_chains()
        else:
            statement = query.along(query.job_branches())
        rows: list[Row] = yield statement(self.words, "{job_columns}", _JOB)
        return listed(rows, page, job_of, lambda row: f"{row.chain_id}/{row.chain_index}" if where.by_chain else row.id)

    def list_chain_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        if not is_uuid(chain_id):
            return []
        after = page.chain_index()
        seek = "" if after is None else f"AND j.chain_index {beyond(page)} :after::integer "
        text = (
            f"SELECT {{job_columns}} FROM {{job}} AS j {_RUN} WHERE j.chain_id = :chain_id::text::uuid {seek}"
            f"ORDER BY j.chain_index {page.order} LIMIT :limit::bigint"
        )
        rows: list[Row] = yield _statement(self.words, text, chain_id=chain_id, after=after, limit=page.limit)
        return [job_of(row) for row in rows]

    def list_blocked_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        if not is_uuid(chain_id):
            return []
        seek = "" if page.after is None else f"AND edge.job_id {beyond(page)} :after::text::uuid "
        text = (
            f"SELECT {{job_columns}} FROM {{blocker}} AS edge JOIN {{job}} AS j ON j.id = edge.job_id {_RUN} "
            f"WHERE edge.chain_id = :chain_id::text::uuid {seek}"
            f"ORDER BY edge.job_id {page.order} LIMIT :limit::bigint"
        )
        rows: list[Row] = yield _statement(self.words, text, chain_id=chain_id, after=page.after, limit=page.limit)
        return [job_of(row) for row in rows]

    def list_chains(self, where: ChainFilter, page: PageRequest) -> Program[Listed[ChainRow]]:
        where = yield from self._with_keys(where)
        query = _Query(where, page)
        if query.is_empty:
            return Listed([])
        if where.job_ids is not None or where.chain_ids is not None:
            statement = query.of_ids(_named_chains(where))
        elif where.by_current:
            statement = query.along(query.job_branches())
        elif where.chain_types is not None:
            statement = query.along(query.first_jobs())
        else:
            statement = query.all_chains()
        joined = _BY_CURRENT if where.by_current else _BY_FIRST
        rows: list[Row] = yield statement(self.words, "{first_columns}, {current_columns}", joined)
        return listed(rows, page, chain_of, lambda row: row.current.id if where.by_current else row.first.id)

    def _with_keys(self, where: Any) -> Program[Any]:
        """The filter with the chains of its keys instead of the keys."""
        if where.keys is None:
            return where
        rows: list[Row] = yield self.statement("read.keys", keys=list(where.keys))
        found = {chain_id for (chain_id,) in rows}
        if where.chain_ids is not None:
            found.intersection_update(where.chain_ids)
        return msgspec.structs.replace(where, keys=None, chain_ids=tuple(sorted(found)))


class _Prepared(msgspec.Struct):
    """A listing whose columns are still open."""

    head: str
    bound: int
    limit: int
    parameters: dict[str, Any]

    def __call__(self, words: dict[str, str], columns: str, joined: str) -> PgStatement:
        text = f"{self.head} SELECT page.matches, page.n = <bound>, {columns} FROM page {joined} ORDER BY page.n"
        # As literals: for a limit that it does not know, the planner would rather sort the whole
        # table.
        text = text.replace("<bound>", str(int(self.bound))).replace("<limit>", str(int(self.limit)))
        return _statement(words, text, **self.parameters)


class _Query:
    """The statement for one filter and one page. Words in braces are names of tables."""

    def __init__(self, where: JobFilter, page: PageRequest) -> None:
        self._where = where
        self._page = page
        self._chains = where if isinstance(where, ChainFilter) else None
        self._possible = where.possible
        for status in self._possible or ():
            check_status(status)
        self._parameters: dict[str, Any] = {
            "after": page.after,
            "descending": page.order == "desc",
            "statuses": list(self._possible or ()),
            "resting": [status for status in self._possible or () if status in _RESTING],
            "types": None if where.types is None else list(dict.fromkeys(where.types)),
            "chain_types": list(dict.fromkeys(where.chain_types or ())),
            "job_ids": sorted(distinct(where.job_ids or ())),
            "chain_ids": sorted(distinct(where.chain_ids or ()), reverse=page.order == "desc"),
            "errors": list(where.errors or ()),
            "created_from": where.created_from,
            "created_before": where.created_before,
            "ended_from": where.ended_from,
            "ended_before": where.ended_before,
        }

    @property
    def is_empty(self) -> bool:
        """Whether nothing can match, so that the database need not be asked."""
        where = self._where
        asked = (self._possible, where.types, where.chain_types, where.errors)
        ids = (where.job_ids, where.chain_ids)
        return () in asked or any(each is not None and not distinct(each) for each in ids)

    # Where rows are found

    def of_ids(self, source: str) -> _Prepared:
        """Rows by their ids. There are no more of them than ids, so all are read."""
        key = "j.id" if self._chains is None or self._chains.by_current else "j.chain_id"
        conditions = "".join(f" AND {each}" for each in self._conditions(frozenset(("job_ids", "by_current"))))
        return self.along([Branch(f"{source}{self._seek(key)}{conditions}", EVERYTHING)])

    def of_chains(self) -> _Prepared:
        """The jobs of chains, one chain after the other: index job_chain."""
        chains: list[str] = self._parameters["chain_ids"]
        after = self._page.chain_position()
        first = -1 if self._page.order == "asc" else 2**31 - 1
        starts = [first] * len(chains)
        if after is not None:
            chain_id, index = after
            chains = [each for each in chains if (each <= chain_id if self._page.order == "desc" else each >= chain_id)]
            starts = [index if each == chain_id else first for each in chains]
        self._parameters |= {"chain_ids": chains, "starts": starts}
        text = (
            "SELECT w.id FROM unnest(:chain_ids::text[], :starts::integer[]) AS c (id, start) "
            "CROSS JOIN LATERAL (SELECT j.id FROM {job} AS j WHERE j.chain_id = c.id::uuid "
            f"AND j.chain_index {beyond(self._page)} c.start ORDER BY j.chain_index {self._page.order} "
            "LIMIT <bound>) AS w"
        )
        return self.along([Branch(text, frozenset(("chain_ids",)))], is_sorted=True)

    def job_branches(self) -> list[Branch]:
        """Jobs by status and type, or the current jobs of chains."""
        possible = self._possible
        if possible is None or "completed" in possible:
            if self._where.types is not None:
                return [self._function("typed_jobs", "types")]
            return [Branch(f"SELECT j.id FROM {{job}} AS j WHERE true{self._pages('j.id')}")]
        # A job that is not completed is always its chain's current one.
        branches: list[Branch] = []
        if not _RESTING.isdisjoint(possible):
            branches.append(self._resting())
        served = frozenset(("types", "possible", "by_current"))
        of_type = "" if self._where.types is None else " WHERE type_name = ANY (:types::text[])"
        if "running" in possible:
            text = f"(SELECT job_id AS id FROM {{running}}{of_type}) AS j"
            branches.append(Branch(f"SELECT j.id FROM {text} WHERE true{self._pages('j.id')}", served))
        if "pending" in possible:
            branches.append(Branch(self._function("pending_jobs", "types").text, served))
        return branches

    def _resting(self) -> Branch:
        if self._where.types is not None:
            return self._function("resting_types", "types", "resting")
        if self._where.chain_types is not None:
            return self._function("resting_chains", "chain_types", "resting")
        return self._function("resting_jobs", "resting")

    def first_jobs(self) -> list[Branch]:
        """Chains by their types."""
        return [self._function("first_jobs", "chain_types")]

    def _function(self, name: str, *keys: str) -> Branch:
        """A walk by one of `functions/listing.sql`."""
        start = _next_uuid(self._page)
        if start is None:
            return Branch("SELECT NULL::uuid AS id WHERE false", EVERYTHING)
        self._parameters["start"] = start
        values = ", ".join(f":{key}::text[]" for key in keys)
        served = {"possible", "by_current"} if "resting" in keys else set[str]()
        # Of first jobs, `types` is never asked: see `by_current`.
        return Branch(
            f"SELECT w.id FROM {{{name}}}({values}, :start::text::uuid, :descending::boolean, <bound>) AS w (id)",
            frozenset(served.union(keys)),
        )

    def all_chains(self) -> _Prepared:
        """Chain after chain, by one seek for each in job_chain: a chain of a million jobs costs no
        more than any other.
        """
        order = f"ORDER BY o.chain_id {self._page.order} LIMIT 1"
        start = f"WHERE true{self._seek('o.chain_id')} "
        walk = (
            f"WITH RECURSIVE walk (id) AS ((SELECT o.chain_id FROM {{job}} AS o {start}{order}) UNION ALL "
            f"SELECT (SELECT o.chain_id FROM {{job}} AS o WHERE o.chain_id {beyond(self._page)} walk.id {order}) "
            "FROM walk WHERE walk.id IS NOT NULL), "
        )
        return self.along([Branch("SELECT walk.id FROM walk WHERE walk.id IS NOT NULL")], is_sorted=True, before=walk)

    def along(self, branches: Sequence[Branch], *, is_sorted: bool = False, before: str = "WITH ") -> _Prepared:
        """`is_sorted`: there is one branch, and its rows are in the right order."""
        merged = " UNION ALL ".join(f"({branch.text})" for branch in branches)
        order = "" if is_sorted else f"ORDER BY b.id {self._page.order}"
        conditions = self._conditions(served_by(branches))
        tested, matches = "", "true"
        if conditions:
            matches = "t.matches"
            tested = (
                f" CROSS JOIN LATERAL (SELECT ({' AND '.join(conditions)}) IS TRUE AS matches "
                "FROM {job} AS j WHERE j.id = s.id OFFSET 0) AS t"
            )
        # The rows of `scanned` are in order. Without another sort, testing stops when the page is
        # full.
        text = (
            f"{before}scanned AS (SELECT b.id, row_number() OVER ({order}) AS n "
            f"FROM ({merged}) AS b (id) {order} LIMIT <bound>), "
            f"page AS (SELECT s.id, {matches} AS matches, s.n FROM scanned AS s{tested} "
            f"WHERE {matches} OR s.n = <bound> LIMIT <limit>)"
        )
        bound = bound_of(self._page, tests=bool(conditions))
        return _Prepared(text, bound, self._page.limit, self._parameters)

    def _seek(self, key: str) -> str:
        if self._page.after is None:
            return ""
        _check_uuid(self._page.after)
        return f" AND {key} {beyond(self._page)} :after::text::uuid"

    def _pages(self, key: str) -> str:
        return f"{self._seek(key)} ORDER BY {key} {self._page.order} LIMIT <bound>"

    # What is tested row by row

    def _conditions(self, served: frozenset[str]) -> list[str]:
        """The filters that are not `served` otherwise, as conditions on the alias `j`."""
        first = "j.created_at"
        if tests_current_jobs(self._where):
            first = "(SELECT o.created_at FROM {job} AS o WHERE o.id = j.chain_id)"
        # Scalar subqueries are lookups. For EXISTS, the planner may read the whole table instead.
        status = "CASE WHEN (SELECT true FROM {running} AS r WHERE r.job_id = j.id) THEN 'running' ELSE j.status END"
        code, kind = "j.last_error ->> 'code'", "j.last_error ->> 'type'"
        texts = {
            "by_current": "j.continued_to IS NULL",
            "possible": f"{status} = ANY (:statuses::text[])",
            "types": "j.type_name = ANY (:types::text[])",
            "chain_types": "j.chain_type = ANY (:chain_types::text[])",
            "chain_ids": "j.chain_id = ANY (:chain_ids::text[]::uuid[])",
            "errors": f"({code} = ANY (:errors::text[]) OR {kind} = ANY (:errors::text[]))",
            "created_from": f"{first} >= :created_from::timestamptz",
            "created_before": f"{first} < :created_before::timestamptz",
            "ended_from": "j.completed_at >= :ended_from::timestamptz",
            "ended_before": "j.completed_at < :ended_before::timestamptz",
            "root_only": "(SELECT true FROM {blocker} AS edge WHERE edge.chain_id = j.chain_id LIMIT 1) IS NULL",
        }
        return not_served(self._where, served, texts)


def _named_chains(where: ChainFilter) -> str:
    """The current jobs of chains that are given by their ids, or by the ids of some of their
    jobs.
    """
    named = "SELECT unnest(:chain_ids::text[]::uuid[])"
    if where.job_ids is not None:
        named = "SELECT DISTINCT o.chain_id FROM {job} AS o WHERE o.id = ANY (:job_ids::text[]::uuid[])"
    key = "j.id" if where.by_current else "j.chain_id"
    return (
        f"SELECT {key} FROM ({named}) AS c (id) CROSS JOIN LATERAL (SELECT last.* FROM {{job}} AS last "
        "WHERE last.chain_id = c.id ORDER BY last.chain_index DESC LIMIT 1) AS j WHERE true"
    )


def _check_uuid(after: str) -> None:
    if not is_uuid(after):
        raise InvalidCursor(f"{after!r} is not the id of a job")


def _next_uuid(page: PageRequest) -> str | None:
    """The first id that a page can have; None if there is none."""
    descending = page.order == "desc"
    if page.after is None:
        return str(UUID(int=2**128 - 1 if descending else 0))
    _check_uuid(page.after)
    number = UUID(page.after).int + (-1 if descending else 1)
    return str(UUID(int=number)) if 0 <= number < 2**128 else None


def _statement(words: dict[str, str], text: str, **parameters: Any) -> PgStatement:
    numbered, names = _numbered(substitute(text, words, "a listing"))
    return PgStatement(numbered, tuple(parameters[name] for name in names), writes=False)
