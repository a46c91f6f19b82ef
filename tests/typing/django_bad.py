from __future__ import annotations

import sqlite3

import aiosqlite
from django_ok import Ship, handlers
from queuert import Client, SyncAttempt
from queuert_django import DjangoConnection, get_client


@handlers.handles(Ship)  # E: wrong output
def wrong_output(attempt: SyncAttempt[Ship, DjangoConnection]) -> int:
    return attempt.job.order_id


def wrong_handles(connection: DjangoConnection, other: sqlite3.Connection) -> None:
    client = get_client()
    client.start(other, Ship(order_id=7))  # E: a connection of another kind
    client.start(connection, Ship())  # E: missing input field
    client.get_chain("x", tx="default")  # E: an alias is no connection
    number: int = client.wait(client.start(connection, Ship(order_id=7)))  # E: wrong result type
    print(number)


def wrong_join(client: Client[aiosqlite.Connection], connection: sqlite3.Connection) -> None:
    client.after_commit(connection)  # E: a connection of the other driver
