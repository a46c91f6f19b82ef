"""Server processes of PostgreSQL that are used by one test after the other.

A new server process must parse and plan all that our functions do: that is two thirds of the work of a
short test. So what a pool of psycopg connections closes is kept here, if it was idle, and the next
test gets it, reset as far as a client can see it, in a new connection object. That is done only
for the database that tests share.
"""

from __future__ import annotations

import os
import select
from collections import defaultdict
from typing import Any

from psycopg import pq
from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn

from queuert.adapters.postgres.drivers.psycopg_pools import PsycopgOpener

MOST = 10
"""More of one kind are not kept."""

RESET = b"""
SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; CLOSE ALL; DEALLOCATE ALL; DISCARD TEMP;
SELECT pg_advisory_unlock_all()
"""
"""`DISCARD ALL`, but for what functions have planned."""

_kept: defaultdict[Any, list[PGconn]] = defaultdict(list)
_urls: set[str] = set()
_open = PsycopgOpener._open
_close = PsycopgOpener.close
_closed: PGconn = pq.PGconn.connect_start(b"")
_closed.finish()


def keep_warm(url: str) -> None:
    """Keep the server processes of pools that are opened with this URL."""
    _urls.add(url)
    PsycopgOpener._open = _open_warm  # type: ignore[method-assign]
    PsycopgOpener.close = _keep  # type: ignore[method-assign]


def cool_down() -> None:
    """Let all that are kept end. For tests that change what a new connection begins with: before and after."""
    for kept in _kept.values():
        while kept:
            kept.pop().finish()


async def _open_warm(self: PsycopgOpener, seconds: float, statement_timeout: float | None) -> Any:
    kind = (self._conninfo, self._prepare, statement_timeout, os.getpid())
    kept = _kept[kind]
    while kept:
        pgconn = kept.pop()
        if _is_quiet(pgconn):
            make: Any = self._connect
            connection = make.__self__(pgconn)
            connection._autocommit = True
            if not self._prepare:
                connection.prepare_threshold = None
            try:
                await self._configure(connection)
            except BaseException:
                pgconn.finish()
                raise
            break
        pgconn.finish()
    else:
        connection = await _open(self, seconds, statement_timeout)
    if self._conninfo in _urls:
        connection.kind = kind
    return connection


async def _keep(self: PsycopgOpener, connection: Any) -> None:
    kind, pgconn = getattr(connection, "kind", None), connection.pgconn
    if kind is None or kind[-1] != os.getpid() or len(_kept[kind]) >= MOST or not _reset(pgconn):
        await _close(self, connection)
        return
    connection.pgconn = _closed
    _kept[kind].append(pgconn)


def _reset(pgconn: PGconn) -> bool:
    if not _is_quiet(pgconn) or pgconn.pipeline_status != PipelineStatus.OFF:
        return False
    pgconn.notify_handler = pgconn.notice_handler = None
    return pgconn.exec_(RESET).status == ExecStatus.TUPLES_OK


def _is_quiet(pgconn: PGconn) -> bool:
    """Whether it is idle, and the server has said nothing: goodbye, for example."""
    if pgconn.status != ConnStatus.OK or pgconn.transaction_status != TransactionStatus.IDLE:
        return False
    return not select.select([pgconn.socket], [], [], 0)[0]
