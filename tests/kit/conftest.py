"""Clients for the tests of `queuert.testing`: on each database, with tables that are only for tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.postgres import server, template

import queuert
from queuert import Client, SyncClient
from queuert.testing import Clock

STATES = ("memory", "sqlite", "postgres")


class Place:
    def __init__(self, state: str, url: str) -> None:
        self.state = state
        self.url = url

    def connect(self, jobs: Iterable[Any], **options: Any) -> Client[Any]:
        return queuert.connect(self.url, jobs=jobs, **options)

    def connect_sync(self, jobs: Iterable[Any], **options: Any) -> SyncClient[Any]:
        return queuert.connect_sync(self.url, jobs=jobs, **options)


@pytest.fixture(params=STATES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "memory":
        yield Place("memory", f"memory://{uuid4()}")
    elif request.param == "sqlite":
        yield Place("sqlite", f"sqlite:///{tmp_path / 'jobs.db'}")
    else:
        # Virtual time is only for tables that were made for it.
        made = None if "clock" in request.fixturenames else template()
        with server().fresh(template=made) as url:
            yield Place("postgres", url)


@pytest.fixture
def clock() -> Clock:
    return Clock()
