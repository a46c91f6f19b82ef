"""A connection that was abandoned too late to prevent its COMMIT."""

from __future__ import annotations

from pathlib import Path

from queuert.adapters.sqlite.connections import session
from queuert.adapters.sqlite.connections.database import Database
from queuert.adapters.sqlite.connections.own import OwnConnection


def test_it_is_not_used_again(tmp_path: Path) -> None:
    own = OwnConnection(Database(tmp_path / "late.db", 5.0))
    connection, _ = own.begin(None)
    connection.execute("CREATE TABLE written (number INTEGER)")
    own.end(None)
    assert session.abandon(connection)
    again = own.take()
    assert again is not connection
    assert again.execute("SELECT count(*) FROM written").fetchall() == [(0,)]
    own.close()
