"""The behaviour suites run over pairs of state and notify adapter, through the public API alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from itertools import compress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.conformance.postgres_harness import database, empty
from tests.support.matrix import parametrize, spread, take_turns
from tests.support.nats import nats_url
from tests.support.postgres import own_server
from tests.support.redis import redis_url
from tests.support.sqlite import with_tables

import queuert
from queuert import Client, EntryJob, SyncClient, Transaction

__all__ = ["own_server"]

STATES = ("memory", "sqlite", "postgres", "asyncpg")
"""`postgres` is PostgreSQL by psycopg, the driver that a URL without one means."""
CHANNELS = ("in-process", "postgres", "redis", "nats", None)
HINTS = ("in-process", "sqlite", "redis", "nats")
"""Channels that keep wake hints."""

ALWAYS = [("memory", None), ("sqlite", "sqlite"), ("postgres", "postgres")]
DRIVERS = [("asyncpg", "postgres")]
Pair = tuple[str, str | None]
TURNS: list[list[Pair]] = [[("sqlite", "sqlite"), ("postgres", "postgres")]]
TURNS_OF_DRIVERS: list[list[Pair]] = [
    [("memory", None), ("sqlite", "sqlite")],
    [("postgres", "postgres"), ("asyncpg", "postgres")],
]
"""For parameters of a test's own: who takes turns. Without `drivers`, memory runs with all of them."""
OTHER_TURNS = [
    ("ledger", ("sqlite", "psycopg")),
    ("driver", ("sqlite", "psycopg")),
    ("kind", ("sqlite", "postgres")),
    ("state", ("sqlite", "postgres")),
    ("scheme", ("postgresql", "postgresql+asyncpg")),
    ("scene", ("psycopg", "asyncpg")),
]
"""The same for tests that do not use `setting`: parameters that choose a database, and who takes turns."""
BROKERS = [("memory", "redis"), ("memory", "nats")]
PAIRS = [("sqlite", "sqlite"), *((state, notify) for state in STATES for notify in CHANNELS)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize(metafunc, "setting", always=ALWAYS, drivers=DRIVERS, channels=BROKERS, soak=PAIRS, ids=_name)
    synchronous = [pair for pair in PAIRS if pair[0] != "asyncpg"]
    parametrize(metafunc, "sync_setting", always=ALWAYS, channels=BROKERS, soak=synchronous, ids=_name)


def _name(pair: tuple[str, str | None]) -> str:
    state, notify = pair
    return f"{state}+{notify or 'polling'}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    ours = [item for item in here if "setting" in getattr(getattr(item, "callspec", None), "params", ())]
    for item in ours:
        called: Any = getattr(item, "callspec", None)
        if called.params["setting"][0] == "asyncpg" and _is_plain(item):
            item.add_marker(pytest.mark.skip(reason="with asyncpg, plain handlers cannot open transactions"))
    takes_turns = [item.get_closest_marker("in_turn") is not None and not _is_about_more(item) for item in ours]
    take_turns(compress(ours, takes_turns), "setting", TURNS[0], _name)
    ours = [item for item, is_alone in zip(ours, takes_turns, strict=True) if not is_alone]
    for is_marked in (False, True):
        chosen = [item for item in ours if is_marked is (item.get_closest_marker("drivers") is not None)]
        turns = TURNS_OF_DRIVERS if is_marked else TURNS
        spread([item for item in chosen if not _is_plain(item)], "setting", turns, _name)
    for parameter, turn in OTHER_TURNS:
        spread(here, parameter, [turn], str)


def _is_about_more(item: pytest.Item) -> bool:
    """Whether a driver or a channel matters, too. Handlers that run in threads open transactions there."""
    return _is_plain(item) or any(item.get_closest_marker(name) for name in ("drivers", "channels"))


def _is_plain(item: pytest.Item) -> bool:
    """Whether a plain function is the handler."""
    called: Any = getattr(item, "callspec", None)
    return (
        item.path.stem == "test_sync_handlers"
        or any(part.startswith("def") for part in called.id.split("-"))
        or "plain_handler" in item.name
    )


class Entry(EntryJob[None], name="ledger-entry"):
    """A line in a ledger that commits or rolls back with the transaction it is written in, on every adapter.

    No worker of the suites handles it, so it stays where it is put.
    """

    text: str


class Setting:
    """A database and a channel, and clients on them."""

    def __init__(self, state: str, notify: str | None, directory: Path) -> None:
        self._made_of = (state, notify, directory)
        self.state = "postgres" if state == "asyncpg" else state
        self.notify = notify
        self._channel = _channel(state, notify)
        if state == "memory":
            self.url = f"memory://{uuid4()}"
        elif state == "sqlite":
            self.url = f"sqlite:///{with_tables(directory / 'jobs.db')}"
        else:
            empty()
            self.url = database().replace("postgresql:", "postgresql+asyncpg:" if state == "asyncpg" else "postgresql:")
            if notify == "in-process":
                # Clients with the same URL share a hub; hints that another test has left there are none of ours.
                self.url += f"{'&' if '?' in self.url else '?'}application_name={uuid4()}"

    def anew(self) -> Setting:
        """The same, without what has been stored."""
        state, notify, directory = self._made_of
        return Setting(state, notify, Path(tempfile.mkdtemp(dir=directory)))

    def connect(self, jobs: Iterable[Any], **options: Any) -> Client[Any]:
        """A client, to be entered. Several of them share the database and the channel."""
        return queuert.connect(self.url, jobs=[*jobs, Entry], **self._options(options))

    def connect_sync(self, jobs: Iterable[Any], **options: Any) -> SyncClient[Any]:
        return queuert.connect_sync(self.url, jobs=[*jobs, Entry], **self._options(options))

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        channel = {"notify": None} if options.get("notify", self) is None else self._channel
        # Without a channel, waiters must not make the tests slow. With one, their questions would.
        defaults: dict[str, Any] = {
            "poll_interval": 0.02 if channel["notify"] is None else 0.2,
            **({"busy_timeout": 30} if self.state == "sqlite" else {}),
        }
        return {**defaults, **channel, **options}

    @property
    def poll_interval(self) -> float:
        """For workers: long where a notification must be what wakes them, short where there is none."""
        return 3600.0 if self.notify else 0.02


def _channel(state: str, notify: str | None) -> dict[str, Any]:
    """What `connect` is told of the channel. On a broker, each setting has names of its own."""
    if notify == "redis":
        return {"notify": redis_url(), "notify_prefix": f"test-{uuid4()}"}
    if notify == "nats":
        return {"notify": nats_url(), "notify_prefix": f"test-{uuid4()}", "notify_bucket": "behaviour"}
    if notify == "postgres" and state not in ("postgres", "asyncpg"):
        return {"notify": database(), "notify_prefix": f"t{uuid4()}:"}
    return {"notify": notify}


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


@pytest.fixture
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    state, notify = request.param
    return Setting(state, notify, tmp_path)


@pytest.fixture
def sync_setting(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    """For sync clients. asyncpg has none."""
    state, notify = request.param
    return Setting(state, notify, tmp_path)
