from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.support.django import added, postgres_settings, set_up, sqlite_settings
from tests.support.postgres import server

set_up()

from django.core.management import call_command  # noqa: E402

from queuert import SyncClient  # noqa: E402
from queuert.adapters.django import DjangoConnection, DjangoProvider  # noqa: E402
from queuert.adapters.in_process import NoNotify  # noqa: E402
from queuert.ports.notify import Topic  # noqa: E402
from queuert.ports.state import SyncStateAdapter  # noqa: E402
from queuert_django.clients import operations_for  # noqa: E402
from queuert_django.discovery import find_jobs  # noqa: E402

QUICK = "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF"


@contextmanager
def database(kind: str, directory: Path, **changes: Any) -> Generator[str]:
    """The alias of a migrated database: a copy, for all migrations of a project take long."""
    if kind == "sqlite":
        file = directory / "shop.db"
        file.write_bytes(_migrated_file())
        with added({**sqlite_settings(file, init_command=QUICK), **changes}) as alias:
            yield alias
    else:
        with (
            server().fresh(template=_migrated_database()) as url,
            added({**postgres_settings(url), **changes}) as alias,
        ):
            yield alias


@cache
def _migrated_file() -> bytes:
    with TemporaryDirectory() as directory:
        file = Path(directory) / "shop.db"
        _migrate(sqlite_settings(file, init_command=QUICK))
        return file.read_bytes()


@cache
def _migrated_database() -> str:
    name = server().create()
    _migrate(postgres_settings(server().url_of(name)))
    return name


def _migrate(settings: dict[str, Any]) -> None:
    with added(settings) as alias:
        call_command("migrate", database=alias, run_syncdb=True, verbosity=0)


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def alias(kind: str, tmp_path: Path) -> Iterator[str]:
    with database(kind, tmp_path) as alias:
        yield alias


class Recording(NoNotify):
    """What was announced: a list for each publication."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[list[str]] = []

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        if topic == "job_scheduled":
            self.told.append(list(values))


def recording_client(alias: str) -> tuple[SyncClient[DjangoConnection], list[list[str]]]:
    notify = Recording()
    state = SyncStateAdapter(operations_for(alias), DjangoProvider(alias))
    client = SyncClient(state, notify, find_jobs(), migrate=False)
    client.sessions.open()  # as get_client does
    return client, notify.told
