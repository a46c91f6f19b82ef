"""The behaviour suites run over every pair of state and notify adapter, through the public API alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest
from tests.conformance.postgres_harness import database, empty

import queuert
from queuert import Client, EntryJob, Transaction

Channel = Literal["in-process", "postgres"] | None

PAIRS: list[tuple[str, Channel]] = [
    ("memory", "in-process"),
    ("memory", None),
    ("sqlite", "in-process"),
    ("sqlite", None),
    ("postgres", "postgres"),
    ("postgres", None),
]


class Entry(EntryJob[None], name="ledger-entry"):
    """A line in a ledger that commits or rolls back with the transaction it is written in, on every adapter.

    No worker of the suites handles it, so it stays where it is put.
    """

    text: str


class Setting:
    """A database and a channel, and clients on them."""

    def __init__(self, state: str, notify: Channel, directory: Path) -> None:
        self.state = state
        self.notify: Channel = notify
        if state == "memory":
            self.url = f"memory://{uuid4()}"
        elif state == "sqlite":
            self.url = f"sqlite:///{directory / 'jobs.db'}"
        else:
            empty()
            self.url = database()

    def connect(self, jobs: Iterable[Any], **options: Any) -> Client[Any]:
        """A client, to be entered. Several of them share the database and the channel."""
        # Without a channel, waiters must not make the tests slow.
        options = {"poll_interval": 0.02, **({"busy_timeout": 30} if self.state == "sqlite" else {}), **options}
        return queuert.connect(self.url, jobs=[*jobs, Entry], notify=self.notify, **options)

    @property
    def poll_interval(self) -> float:
        """For workers: long where a notification must be what wakes them, short where there is none."""
        return 30.0 if self.notify else 0.02


async def write(client: Client[Any], tx: Transaction[Any], text: str) -> None:
    """Put a line into the ledger, in this transaction."""
    await client.start(tx, Entry(text=text))


async def ledger(client: Client[Any]) -> list[str]:
    """The committed lines, in the order in which they were written."""
    lines: list[str] = []
    cursor: str | None = None
    while True:
        page = await client.list_jobs(Entry, limit=1000, cursor=cursor)
        lines += [record.job.text for record in page.items]
        if page.next_cursor is None:
            return lines
        cursor = page.next_cursor


IN_SOAK = [("memory", "in-process"), ("sqlite", None), ("postgres", None)]
"""Left to `make soak`, which runs every pair: `make test` has each database once, two of them with a channel."""


@pytest.fixture(
    params=[
        pytest.param(
            (state, notify),
            id=f"{state}+{notify or 'polling'}",
            marks=[pytest.mark.soak] if (state, notify) in IN_SOAK else [],
        )
        for state, notify in PAIRS
    ]
)
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    state, notify = request.param
    return Setting(state, notify, tmp_path)
