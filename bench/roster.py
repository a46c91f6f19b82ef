"""The contenders: how each is started, and how to see from outside that its jobs are settled."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.environments import ROOT, node_modules, python_environment

HERE = Path(__file__).resolve().parent / "contenders"

Start = tuple[Sequence[str], Mapping[str, str]]
"""A command and its environment variables."""


@dataclass(frozen=True)
class Contender:
    name: str
    settings: str
    """How it is set up, for readers of the results."""
    install: Callable[[], Start]
    """Installs it if necessary. Raises `ContenderFailed` with the reason if it cannot be
    measured."""
    unsettled: str = ""
    """A query for whether any job is not settled."""
    home: Path = ROOT
    """The checkout whose code is measured."""


def _here(module: str) -> Callable[[], Start]:
    return lambda: ([sys.executable, "-m", f"bench.contenders.{module}"], _environment())


def _python(peer: str) -> Callable[[], Start]:
    return lambda: ([str(python_environment(peer)), "-m", f"bench.contenders.{peer}"], _environment())


def _ours_with(version: str) -> Callable[[], Start]:
    return lambda: ([str(python_environment("queuert", version)), "-m", "bench.contenders.queuert"], _environment())


def _node(script: str) -> Callable[[], Start]:
    return lambda: (
        ["node", str(HERE / script)],
        {**_environment(), "NODE_PATH": str(node_modules()), "NODE_ENV": "production"},
    )


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}


OURS = "queuert"
OTHER_PYTHONS = {f"{OURS}, Python {version}": version for version in ("3.13", "3.14")}
PRUNED = f"{OURS}, beside pruning"
WITHOUT_A_SNAPSHOT = f"{OURS}, without a snapshot"
LIMITED = f"{OURS}, 1,000 keys with a limit"
MANY_SLOTS = f"{OURS}, concurrency 1,000"
LIMITED_MANY_SLOTS = f"{LIMITED}, concurrency 1,000"
"""Entries of ours."""
BEFORE = "before"
PLAIN = "plain SQL"
PLAIN_SQLITE = "plain SQLite"
BARE = "our statement alone"

_OURS_UNSETTLED = "SELECT EXISTS (SELECT FROM queuert_ready) OR EXISTS (SELECT FROM queuert_running)"

CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(OURS, "asyncpg, uvloop", _here("queuert"), _OURS_UNSETTLED),
        *(
            Contender(name, "asyncpg, uvloop", _ours_with(version), _OURS_UNSETTLED)
            for name, version in OTHER_PYTHONS.items()
        ),
        Contender(PLAIN, "asyncpg, uvloop, one process", _here("plain_sql")),
        Contender(PLAIN_SQLITE, "WAL, synchronous FULL", _here("plain_sqlite")),
        Contender(BARE, "without the library, uvloop", _here("bare")),
        Contender(
            "pgqueuer",
            "asyncpg with a pool of 4, uvloop, batch 500",
            _python("pgqueuer"),
            "SELECT EXISTS (SELECT FROM pgqueuer)",
        ),
        Contender(
            "graphile-worker",
            "localQueue 500, batched completion, concurrency 100, 20 connections",
            _node("graphile_worker.cjs"),
            "SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)",
        ),
        Contender(
            "pg-boss",
            "four loops of fetch and complete, batch 500",
            _node("pg_boss.cjs"),
            "SELECT EXISTS (SELECT FROM pgboss.job WHERE name = 'bench' AND state < 'completed')",
        ),
        Contender(
            "procrastinate",
            "psycopg, uvloop, concurrency 20",
            _python("procrastinate"),
            "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
        ),
    )
}


def add_checkout(home: Path) -> None:
    """Measure the library of another checkout too, under the name `BEFORE`, with the same
    interpreter.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(home), str(home / "src")))}
    ours = CONTENDERS[OURS]
    command, _ = ours.install()
    CONTENDERS[BEFORE] = replace(ours, name=BEFORE, install=lambda: (command, environment), home=home)
