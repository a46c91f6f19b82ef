"""The recorded session of docs/operating.md: its commands are run, and their output is compared."""

from __future__ import annotations

import asyncio
import importlib
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.behaviour.steps import PATIENCE
from tests.cli.running import ROOT, command, environment, in_process
from tests.support.postgres import flush_statistics

import queuert
from queuert import SyncClient, Worker
from queuert.features.doctor import surroundings

PAGE = (ROOT / "docs" / "operating.md").read_text("utf-8")
SESSION = PAGE[PAGE.index("\n## Ten incidents\n") :]
PROGRAM = re.search(r"```python\n(.*?)^```$", SESSION, re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(?P<python>python)?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)

READS = ("why", "doctor")
"""Commands that may be repeated until they show what is expected."""


@dataclass(frozen=True)
class Step:
    """A command with its output; or Python, which has none."""

    text: str
    output: str = ""
    python: bool = False


def steps_of(title: str) -> list[Step]:
    section = SESSION[SESSION.index(f"\n### {title}\n") :].split("\n### ", 2)[1]
    found: list[Step] = []
    for block in BLOCK.finditer(section):
        if block["python"]:
            found.append(Step(block["text"], python=True))
            continue
        for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            found.append(Step(line, output))
    return found


# What is different each time.
VARYING = (
    (re.compile(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d UTC \([^)]*\)"), "TIME"),
    (re.compile(r"worker-[0-9a-f-]{36}"), "WORKER"),
    (re.compile(r"host \S+"), "HOST"),
    (re.compile(r"process \d+( \([^)]*\))?"), "PROCESS"),
    (re.compile(r"\d+ (s|min|rows)\b"), "NUMBER"),
    (re.compile(r"\d+ dead rows beside \d+"), "ROWS"),
    (re.compile(r"pg_terminate_backend\(\d+\)"), "TERMINATE"),
)


def steady(text: str) -> str:
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return text


@dataclass
class World:
    """The application with its database."""

    url: str
    place: Path
    shop: Any
    client: SyncClient[Any]
    holder: int = 0
    """The server's process that holds an old snapshot."""
    stack: ExitStack = field(default_factory=ExitStack)

    def start(self, job: Any, number: int, **options: Any) -> Any:
        with self.client.transaction() as tx:
            return self.client.start(tx, job, id=f"01b00000-0000-7000-8000-{number:012}", **options)

    def wait_for(self, chain: Any, check: Callable[[Any], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not check(self.client.get_chain(chain.id)):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @contextmanager
    def working(self, queues: Any = None) -> Generator[None]:
        """A worker, in a thread."""
        loop, started, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

        async def work() -> None:
            async with queuert.connect(self.url, jobs=self.shop.JOBS, migrate=False) as client:
                worker = Worker(
                    client,
                    self.shop.handlers,
                    queues=queues or self.shop.QUEUES,
                    poll_interval=0.05,
                    shutdown_timeout=0,
                )
                async with worker:
                    started.set()
                    await over.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=[work()])
        thread.start()
        try:
            assert started.wait(PATIENCE)
            yield
        finally:
            loop.call_soon_threadsafe(over.set)
            thread.join()
            loop.close()

    def run(self, step: Step) -> str:
        if step.python:
            exec(compile(f"import os\nimport queuert\n{step.text}", "operating.md", "exec"), {})
            return ""
        words = shlex.split(step.text)
        if words[0] == "psql":
            statement = words[-1].replace("4711", str(self.holder))
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(statement.encode())
            return step.output  # that of psql is of no interest
        assert words[0] == "queuert"
        if words[-1] == "&":
            self.stack.enter_context(self._background(words[1:-1]))
            return ""
        ended = in_process(*words[1:])
        return ended.out + ended.err

    @contextmanager
    def _background(self, words: list[str]) -> Generator[None]:
        process = subprocess.Popen(
            command(*words), cwd=self.place, env=environment(QUEUERT_URL=self.url),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


# How each incident comes about


def stuck(world: World) -> None:
    world.stack.enter_context(world.working())
    world.wait_for(world.start(world.shop.Export(day="2026-11-16"), 1), lambda chain: chain.status == "running")


def poisoned(world: World) -> None:
    world.stack.enter_context(world.working())
    world.wait_for(world.start(world.shop.Thumbnail(file="a.txt"), 2), lambda chain: chain.last_error is not None)


def paused(world: World) -> None:
    with world.client.transaction() as tx:
        world.client.pause(tx, "charge-card", reason="PSP down", by="on-call")
    world.stack.enter_context(world.working())
    world.start(world.shop.Charge(order=7), 3)


RUN_WORKER = """
import asyncio
import shop.jobs as shop

async def main():
    async with shop.worker.client:
        await shop.worker.run()

asyncio.run(main())
"""


def dead_worker(world: World) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", RUN_WORKER],
        cwd=world.place, env={**environment(QUEUERT_URL=world.url), "PYTHONPATH": f"{ROOT / 'src'}:{world.place}"},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE
        while not any(each.known_by != "registration" for each in world.client.list_workers()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        chain = world.start(world.shop.Export(day="2026-11-16"), 4)
        world.wait_for(chain, lambda chain: chain.status == "running")
    finally:
        process.kill()
        process.wait()
    if world.url.startswith("postgres"):
        # Two minutes later: nobody else has noticed that its lock is gone.
        with psycopg.connect(world.url, autocommit=True) as server:
            server.execute("UPDATE queuert_worker SET seen_at = seen_at - interval '2 minutes'")


def cap(world: World) -> None:
    stuck_there = world.start(world.shop.Export(day="2026-11-16"), 55)
    world.stack.enter_context(world.working())
    world.wait_for(stuck_there, lambda chain: chain.status == "running")
    world.start(world.shop.Export(day="2026-11-17"), 5)


def missing_handler(world: World) -> None:
    world.stack.enter_context(world.working(queues=["default"]))
    world.start(world.shop.Export(day="2026-11-17"), 6)


def blocked(world: World) -> None:
    world.shop.bank_is_down = True
    charged = world.start(world.shop.Charge(order=7), 77)
    world.start(world.shop.Invoice(charged=charged), 7)
    world.stack.enter_context(world.working())
    world.wait_for(charged, lambda chain: chain.status == "failed")
    world.shop.bank_is_down = False


def wrong_input(world: World) -> None:
    world.stack.enter_context(world.working())
    world.wait_for(world.start(world.shop.Charge(order=0), 8), lambda chain: chain.status == "failed")


def bloat(world: World) -> None:
    with psycopg.connect(world.url, autocommit=True) as server:
        server.execute("ALTER TABLE queuert_later SET (autovacuum_vacuum_threshold = 1)")
        server.execute("INSERT INTO queuert_later SELECT 'x', now(), gen_random_uuid(), 1 FROM generate_series(1, 500)")
        server.execute("DELETE FROM queuert_later WHERE type_name = 'x'")
        flush_statistics(server)


def old_snapshot(world: World) -> None:
    shell = world.stack.enter_context(_left_open(world.url))
    world.holder = shell.info.backend_pid


@contextmanager
def _left_open(url: str) -> Generator[psycopg.Connection[Any]]:
    connection = psycopg.connect(url, application_name="psql")
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    connection.execute("SELECT 1")
    try:
        yield connection
    finally:
        connection.close()


INCIDENTS = {
    "1. Stuck": stuck,
    "2. Poisoned": poisoned,
    "3. Paused": paused,
    "4. A dead worker": dead_worker,
    "5. A cap": cap,
    "6. A missing handler": missing_handler,
    "7. Blocked for ever": blocked,
    "8. A wrong input": wrong_input,
    "9. Bloat": bloat,
    "10. An old snapshot": old_snapshot,
}
OF_A_SERVER = ("9. Bloat", "10. An old snapshot")


@pytest.fixture
def world(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    assert PROGRAM is not None
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "jobs.py").write_text(PROGRAM[1])
    monkeypatch.setenv("QUEUERT_URL", url)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    shop = importlib.import_module("shop.jobs")
    try:
        with queuert.connect_sync(url, jobs=shop.JOBS) as client:
            world = World(url, tmp_path, shop, client)
            with world.stack:
                yield world
    finally:
        for name in ("shop", "shop.jobs"):
            sys.modules.pop(name, None)


def test_every_incident_is_run() -> None:
    assert re.findall(r"^### (.*)$", SESSION, re.MULTILINE) == list(INCIDENTS)


@pytest.mark.parametrize("title", [title for title in INCIDENTS if title not in OF_A_SERVER])
def test_incident(world: World, title: str) -> None:
    carry_out(world, title)


@pytest.mark.drivers
@pytest.mark.parametrize("title", OF_A_SERVER)
def test_incident_of_a_server(world: World, title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if world.url.startswith("sqlite"):
        pytest.skip("SQLite has no such thing")
    for name in ("MANY_DEAD", "LATE_VACUUM", "OLD_SNAPSHOT"):
        monkeypatch.setattr(surroundings, name, 0)
    carry_out(world, title)


def carry_out(world: World, title: str) -> None:
    INCIDENTS[title](world)
    for step in steps_of(title):
        compare(world, step)


def compare(world: World, step: Step) -> None:
    deadline = time.monotonic() + 4 * PATIENCE  # a worker may have to be started first
    while True:
        shown = steady(world.run(step))
        again = shown != steady(step.output) and shlex.split(step.text)[1] in READS and time.monotonic() < deadline
        if not again:
            break
        time.sleep(0.05)
    assert shown == steady(step.output), f"$ {step.text}"
