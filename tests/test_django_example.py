"""The Django example: a server and a worker as processes, real requests, on SQLite and on PostgreSQL."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.support.postgres import server

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture(params=["sqlite", "postgresql"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    base = {**os.environ, "PYTHONUNBUFFERED": "1", "DJANGO_SETTINGS_MODULE": "django_orders.settings"}
    if request.param == "sqlite":
        yield {**base, "DATABASE_URL": f"sqlite:///{tmp_path / 'orders.db'}"}
    else:
        with server().fresh() as url:
            yield {**base, "DATABASE_URL": url}


@contextmanager
def running(environment: dict[str, str], *command: str) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "django_orders.manage", *command],
        cwd=EXAMPLES,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def line_with(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """What a process says once it is ready."""
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(pattern, line)
        if found:
            return found
    raise AssertionError(f"the process ended without a word like {pattern}")


def test_the_project_has_tests_of_its_own(environment: dict[str, str]) -> None:
    with running(environment, "test", "django_orders") as testing:
        assert testing.wait(250) == 0


def test_orders_are_shipped(environment: dict[str, str]) -> None:
    with running(environment, "migrate", "--verbosity", "0") as migrating:
        assert migrating.wait(250) == 0
    with (
        running(environment, "runserver", "--noreload", "127.0.0.1:0") as web,
        running(environment, "queuert", "worker", "--concurrency", "2", "--name", "shipper") as worker,
    ):
        port = line_with(web, r"http://127\.0\.0\.1:(\d+)/")[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            placed = http.post("/orders", json={"product": "lamp"}).json()
            assert http.get(f"/parcels/{placed['chain']}").json() == {"parcel": f"parcel-{placed['order']}"}
            assert http.get(f"/orders/{placed['order']}").json() == {"product": "lamp", "state": "shipped"}
            assert http.post("/orders", json={"product": "unicorn"}).status_code == 409
            second = http.post("/orders/async", json={"product": "chair"}).json()
            assert http.get(f"/parcels/{second['chain']}").json() == {"parcel": f"parcel-{second['order']}"}
            assert http.get(f"/orders/{second['order'] + 1}").status_code == 404
            assert http.get("/parcels/01234567-89ab-7def-8123-456789abcdef").status_code == 404
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(250) == 0
