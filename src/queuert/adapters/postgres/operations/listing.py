"""Listings: pages along an index, in the order of their sort key. Filters that no index serves are
tested row by row.

The filters decide which table or index is scanned, so that the cost depends on the page, not on the
table: blocked, failed, cancelled and expired jobs have indexes, running jobs a table of their own.
Pending jobs are the exception: their tables are in the order of claims, so they are sorted for each
page.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from queuert.adapters.postgres.command import PgStatement, number_placeholders
from queuert.adapters.postgres.operations.store import Store, distinct
from queuert.adapters.postgres.rows import Row, chain_of, job_of
from queuert.ids import is_uuid
from queuert.model import ChainFilter, ChainRow, JobFilter, JobRow, PageRequest, Status, check_status
from queuert.ports.program import Program
from queuert.sql.listing import Query, beyond
from queuert.sql.statement import substitute

_JOBS = "{job_columns}"
_CHAINS = "{first_columns}, {current_columns}"
_RUN = "LEFT JOIN {running} AS r ON r.job_id = j.id"
_FIRST_RUN = "LEFT JOIN {running} AS first_run ON first_run.job_id = first.id"
_WITH_CURRENT = (
    "CROSS JOIN LATERAL (SELECT last.* FROM {job} AS last WHERE last.chain_id = first.id "
    "ORDER BY last.chain_index DESC LIMIT 1) AS current "
    f"{_FIRST_RUN} LEFT JOIN {{running}} AS current_run ON current_run.job_id = current.id"
)
_STATUS = {
    "running": "{run}.job_id IS NOT NULL",
    "pending": "{job}.status = 'pending' AND {run}.job_id IS NULL",
    "completed": "{job}.status = 'completed'",
}
"""The conditions; for all others, `resting` has the status."""

_numbered = lru_cache(maxsize=256)(number_placeholders)


class _Query(Query):
    """Words in braces are names of tables."""

    walk: str = ""

    def narrow(self, where: JobFilter, table: str) -> None:
        if where.ids is not None:
            self.where(f"{table}.id = ANY (:ids::text[]::uuid[])", ids=sorted(distinct(where.ids)))
        if where.created_after is not None:
            self.where(f"{table}.created_at > :created_after::timestamptz", created_after=where.created_after)
        if where.created_before is not None:
            self.where(f"{table}.created_at < :created_before::timestamptz", created_before=where.created_before)

    def status_is(self, status: Status | None, job: str, run: str) -> None:
        if status is None:
            return
        check_status(status)
        if status in _STATUS:
            self.where(_STATUS[status].format(job=job, run=run))
        else:
            self.where(f"{job}.resting = :status::text", status=status)

    def page(self, words: dict[str, str], page: PageRequest, after: Any, key_type: str = "text::uuid") -> PgStatement:
        self.parameters.update(after=after, limit=page.limit)
        if after is not None and not self.walk:
            self.where(f"{self.sort_key} {beyond(page)} :after::{key_type}")
        conditions = " AND ".join(self.conditions) or "true"
        text = (
            f"SELECT {self.columns} FROM {self.source} WHERE {'true' if self.walk else conditions} "
            f"ORDER BY {self.sort_key} {page.order.upper()} LIMIT :limit::bigint"
        )
        walk = self.walk.replace("<conditions>", conditions)
        numbered, names = _numbered(substitute(f"{walk}{text}", words, "a listing"))
        return PgStatement(numbered, tuple(self.parameters[name] for name in names), writes=False)


class Listing(Store):
    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[list[JobRow]]:
        query = _Query(_JOBS, _jobs_with(where.status, where.type_name, "j", "r"), "j.id")
        if where.type_name is not None:
            query.where("j.type_name = :type_name::text", type_name=where.type_name)
        query.status_is(where.status, "j", "r")
        query.narrow(where, "j")
        rows: list[Row] = yield query.page(self.words, page, page.after)
        return [job_of(row) for row in rows]

    def list_chain_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        if not is_uuid(chain_id):
            return []
        query = _Query(_JOBS, _jobs_with(None, None, "j", "r"), "j.chain_index")
        query.where("j.chain_id = :chain_id::text::uuid", chain_id=chain_id)
        rows: list[Row] = yield query.page(self.words, page, page.chain_index(), "integer")
        return [job_of(row) for row in rows]

    def list_blocked_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        if not is_uuid(chain_id):
            return []
        query = _Query(_JOBS, f"{{blocker}} AS edge JOIN {{job}} AS j ON j.id = edge.job_id {_RUN}", "edge.job_id")
        query.where("edge.chain_id = :chain_id::text::uuid", chain_id=chain_id)
        rows: list[Row] = yield query.page(self.words, page, page.after)
        return [job_of(row) for row in rows]

    def list_chains(self, where: ChainFilter, page: PageRequest) -> Program[list[ChainRow]]:
        by_status = where.status is not None and where.ids is None
        if by_status:
            # A job that is not completed is always its chain's current one.
            source = _jobs_with(where.status, where.type_name, "current", "current_run")
            source = f"{source} JOIN {{job}} AS first ON first.id = current.chain_id {_FIRST_RUN}"
            query = _Query(_CHAINS, source, "current.id")
            if where.status == "completed":
                query.where("current.continued_to IS NULL")
        elif where.type_name is None and where.ids is None:
            query = _all_chains(page)
        else:
            sort_key = "first.id" if where.status is None else "current.id"
            query = _Query(_CHAINS, f"{{job}} AS first {_WITH_CURRENT}", sort_key)
            query.where("first.chain_index = 0")
        if where.type_name is not None:
            side = "current.chain_type" if by_status else "first.type_name"
            query.where(f"{side} = :type_name::text", type_name=where.type_name)
        query.status_is(where.status, "current", "current_run")
        query.narrow(where, "first")
        if where.root_only:
            query.where("NOT EXISTS (SELECT FROM {blocker} AS edge WHERE edge.chain_id = first.id)")
        rows: list[Row] = yield query.page(self.words, page, page.after)
        return [chain_of(row) for row in rows]


def _all_chains(page: PageRequest) -> _Query:
    """Chain after chain, by one seek for each in job_chain: a chain of a million jobs costs no more
    than any other.

    The page is found first, along the walk, with the filters inside it; OFFSET 0 keeps the planner
    to that order.
    """
    order = f"ORDER BY n.chain_id {page.order.upper()} LIMIT 1"
    start = "" if page.after is None else f"WHERE n.chain_id {beyond(page)} :after::text::uuid "
    walk = (
        f"WITH RECURSIVE walk (id) AS ((SELECT n.chain_id FROM {{job}} AS n {start}{order}) UNION ALL "
        f"SELECT (SELECT n.chain_id FROM {{job}} AS n WHERE n.chain_id {beyond(page)} walk.id {order}) "
        "FROM walk WHERE walk.id IS NOT NULL), "
        "page AS MATERIALIZED (SELECT found.id FROM walk CROSS JOIN LATERAL (SELECT first.id "
        "FROM {job} AS first WHERE first.id = walk.id AND <conditions> OFFSET 0) AS found "
        "LIMIT :limit::bigint) "
    )
    return _Query(_CHAINS, f"page JOIN {{job}} AS first ON first.id = page.id {_WITH_CURRENT}", "first.id", walk=walk)


def _jobs_with(status: Status | None, type_name: str | None, job: str, run: str) -> str:
    """Where jobs of a status are found, with their rows of `running` beside them."""
    if status == "running":
        return f"{{running}} AS {run} JOIN {{job}} AS {job} ON {job}.id = {run}.job_id"
    source = f"{{job}} AS {job}"
    if status == "pending":
        of_type = "" if type_name is None or job != "j" else " WHERE type_name = :type_name::text"
        waiting = f"(SELECT id FROM {{ready}}{of_type} UNION ALL SELECT id FROM {{later}}{of_type}) AS waiting"
        source = f"{waiting} JOIN {source} ON {job}.id = waiting.id"
    return f"{source} LEFT JOIN {{running}} AS {run} ON {run}.job_id = {job}.id"
