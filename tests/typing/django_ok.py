from __future__ import annotations

from typing import assert_type

import aiosqlite
from queuert import Attempt, Chain, Client, EntryJob, Handlers, SyncAttempt, SyncClient
from queuert_django import CloseOldConnections, DjangoConnection, get_client


class Ship(EntryJob[str], name="ship"):
    order_id: int


handlers = Handlers[DjangoConnection](middleware=[CloseOldConnections()])
files = Handlers[aiosqlite.Connection]()


@handlers.handles(Ship)
def ship(attempt: SyncAttempt[Ship, DjangoConnection]) -> str:
    with attempt.complete() as tx:
        assert_type(tx.connection, DjangoConnection)
        assert_type(tx.connection.alias, str)
        attempt.client.start(tx, Ship(order_id=8))
        return f"parcel-{attempt.job.order_id}"


@files.handles(Ship)
async def ship_from_a_file(attempt: Attempt[Ship, aiosqlite.Connection]) -> str:
    async with attempt.complete() as tx:
        await tx.connection.execute("SELECT 1")
        return "parcel"


def place_order(connection: DjangoConnection) -> str:
    client = get_client("orders")
    assert_type(client, SyncClient[DjangoConnection])
    chain = client.start(connection, Ship(order_id=7), after=60)
    assert_type(chain, Chain[Ship])
    assert_type(client.get_chain(chain, tx=connection), Chain[Ship] | None)
    with client.savepoint(connection):
        client.cancel(connection, chain)
    return client.wait(chain)


async def join(client: Client[aiosqlite.Connection], connection: aiosqlite.Connection) -> None:
    async with client.after_commit(connection) as tx:
        await tx.connection.execute("BEGIN IMMEDIATE")
        await client.start(tx, Ship(order_id=7))
        await connection.commit()
