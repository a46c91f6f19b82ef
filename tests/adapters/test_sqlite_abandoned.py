"""A connection whose transaction was ended by force."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from queuert.adapters.sqlite.connections import abandoning
from queuert.adapters.sqlite.connections.database import Database
from queuert.adapters.sqlite.connections.own import OwnConnection


def test_it_is_not_used_again(tmp_path: Path) -> None:
    """It was abandoned too late to prevent its COMMIT."""
    own = OwnConnection(Database(tmp_path / "late.db", 5.0))
    connection, _ = own.begin(None)
    connection.execute("CREATE TABLE written (number INTEGER)")
    own.end(None)
    assert abandoning.abandon(connection)
    again = own.take()
    assert again is not connection
    assert again.execute("SELECT count(*) FROM written").fetchall() == [(0,)]
    own.close()


IN_A_PYTHON_FUNCTION = """
import sqlite3, sys, threading
from queuert.adapters.sqlite.connections.abandoning import OwnRaw, abandon

connection = sqlite3.connect(sys.argv[1], factory=OwnRaw, check_same_thread=False, isolation_level=None)
connection.execute("CREATE TABLE written (number INTEGER)")
inside, go_on = threading.Event(), threading.Event()

def slow(number):
    inside.set()
    go_on.wait()
    return number

connection.create_function("slow", 1, slow)
refused = []

def handler():
    connection.execute("BEGIN IMMEDIATE")
    for statement in ("INSERT INTO written SELECT slow(1)", "INSERT INTO written VALUES (2)"):
        try:
            connection.execute(statement)
        except sqlite3.Error as error:
            refused.append(str(error))
        if rolled_back is not None:
            rolled_back.join()

rolled_back = None
before = set(threading.enumerate())
thread = threading.Thread(target=handler)
thread.start()
inside.wait()
abandon(connection)
(rolled_back,) = set(threading.enumerate()) - before - {thread}
go_on.set()
thread.join()
print(refused, sqlite3.connect(sys.argv[1]).execute("SELECT * FROM written").fetchall())
"""


def test_a_python_function_that_sqlite_is_calling(tmp_path: Path) -> None:
    """It needs the GIL to end, so nobody may wait for it and hold the GIL. In a process of its own: it could hang."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_PYTHON_FUNCTION, str(tmp_path / "jobs.db")],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == "['interrupted', 'attempt to write a readonly database'] []\n"
