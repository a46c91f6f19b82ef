"""`manage.py queuert worker`, as a process from another folder, with the handlers and schedules of a project."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.steps import PATIENCE
from tests.cli.running import Ended
from tests.support.postgres import server

import queuert
from queuert import EntryJob

ROOT = Path(__file__).parents[2]

MANAGE = """
import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")
execute_from_command_line(sys.argv)
"""
SETTINGS = """
import json
import os

SECRET_KEY = "for tests"
DATABASES = json.loads(os.environ["TEST_DATABASES"])
INSTALLED_APPS = ["queuert_django", "corner_shop"]
QUEUERT = {"jobs": {}}
USE_TZ = True
"""
JOBS = """
import os
from datetime import timedelta

from queuert import Backoff, EntryJob, Handlers, Schedules, SyncAttempt


class Sweep(EntryJob[int], name="sweep"):
    floor: int = 1


handlers = Handlers()
schedules = Schedules()
schedules.every(timedelta(hours=1), Sweep(floor=0), name="sweep-hourly")


@handlers.handles(Sweep, backoff=Backoff(initial=3600, maximum=3600))
def sweep(attempt: SyncAttempt[Sweep]) -> int:
    if attempt.job.floor < 0:
        raise ValueError("there is no cellar")
    return int(os.environ["QUEUERT_PROCESS"])
"""


class Sweep(EntryJob[int], name="sweep"):
    floor: int = 1


class Project:
    def __init__(self, place: Path, url: str, databases: dict[str, Any]) -> None:
        self.url = url
        self._place = place
        backend = place / "backend"
        for name, text in (
            ("manage.py", MANAGE),
            ("site_settings.py", SETTINGS),
            ("corner_shop/__init__.py", ""),
            ("corner_shop/jobs.py", JOBS),
        ):
            (backend / name).parent.mkdir(parents=True, exist_ok=True)
            (backend / name).write_text(text)
        self.jobs = backend / "corner_shop" / "jobs.py"
        self._environment = {
            **os.environ, "PYTHONPATH": str(ROOT / "src"), "TEST_DATABASES": json.dumps(databases), "LOGNAME": "ada",
        }  # fmt: skip
        for name in ("DJANGO_SETTINGS_MODULE", "QUEUERT_URL"):
            self._environment.pop(name, None)

    def manage(self, *arguments: str) -> Ended:
        """From the folder above: the project is in that of manage.py."""
        command = [sys.executable, "backend/manage.py", *arguments]
        done = subprocess.run(
            command, cwd=self._place, env=self._environment, capture_output=True, text=True, timeout=PATIENCE
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def worker(self, *arguments: str) -> Ended:
        return self.manage("queuert", "--database", "jobs", "worker", *arguments)


@pytest.fixture(params=["sqlite", "postgres"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    from tests.support.django import postgres_settings, sqlite_settings

    file = tmp_path / "jobs.db"
    databases = {"default": sqlite_settings(tmp_path / "default.db")}
    if request.param == "sqlite":
        with queuert.connect_sync(f"sqlite:///{file}", jobs=[]):
            yield Project(tmp_path, f"sqlite:///{file}", {**databases, "jobs": sqlite_settings(file)})
    else:
        with server().fresh() as url, queuert.connect_sync(url, jobs=[]):
            yield Project(tmp_path, url, {**databases, "jobs": postgres_settings(url)})


def test_it_has_what_the_worker_command_has(project: Project) -> None:
    with queuert.connect_sync(project.url, jobs=[Sweep]) as client:
        good = client.submit(Sweep())
        client.submit(Sweep(floor=-1))
        options = ("--concurrency", "3", "--name", "broom", "--release", "r7", "--queues", "default")
        done = project.worker("--until-empty", "--processes", "2", "--health", "127.0.0.1:0", *options)
        assert done.code == 4, done
        assert re.fullmatch(r"left: 1 to be tried again, the first in \d+ min( \d+ s)?\n", done.out)
        assert "/live, /ready and /metrics are at" in done.err
        assert "broom-" in done.err
        assert client.wait(good) in (0, 1)


def test_its_schedules_are_declared_and_fire(project: Project) -> None:
    assert project.worker("--until-empty").code == 0
    with queuert.connect_sync(project.url, jobs=[Sweep]) as client:
        schedule = client.get_schedule("sweep-hourly")
        assert schedule is not None
        assert (schedule.declared, schedule.status) == (True, "active")
        triggered = project.manage("queuert", "--database", "jobs", "schedules", "trigger", "sweep-hourly")
        assert (triggered.code, triggered.err) == (0, "")
        assert project.worker("--until-empty").code == 0
        (chain,) = client.list_chains(Sweep).items
        assert chain.status == "completed"


def test_other_commands_know_the_jobs_of_the_project(project: Project) -> None:
    with queuert.connect_sync(project.url, jobs=[Sweep]) as client:
        chain = client.submit(Sweep())
        with client.transaction() as tx:
            client.cancel(tx, chain)
    command = ("queuert", "--database", "jobs")
    assert "0 open jobs examined: this code can run them" in project.manage(*command, "check").out
    refused = project.manage(*command, "retry", chain.id, "--input", '{"roof": 1}', "--yes")
    assert refused.code == 2
    assert "roof" in refused.err


def test_what_it_cannot_do_is_one_line(project: Project) -> None:
    for options, line in (
        (("--concurrency", "0"), "queuert worker: concurrency must be a number of 1 or more, got 0"),
        (("--queues", "nowhere"), "nowhere"),
    ):
        refused = project.worker(*options)
        assert refused.code == 2, refused
        assert line in refused.err
        assert "Traceback" not in refused.err
    project.jobs.write_text("")
    refused = project.worker()
    assert refused.err.endswith("no handlers found: put `handlers = Handlers()` into the jobs.py of an installed app\n")
    helped = project.worker("--help")
    assert "--concurrency N" in helped.out
    assert "--until-done" in helped.out
