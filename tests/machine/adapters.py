"""The adapters that the machine can be put on. A new one is one factory here and one line in `test_machine.py`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.machine.driver import AnyStateAdapter
from tests.machine.world import Clock
from tests.support.sqlite import with_tables

from queuert.adapters.memory import memory_state, sync_memory_state
from queuert.adapters.sqlite import sqlite_state, sync_sqlite_state


@contextmanager
def memory(clock: Clock) -> Generator[AnyStateAdapter, None, None]:
    yield sync_memory_state(clock=clock)


@contextmanager
def async_memory(clock: Clock) -> Generator[AnyStateAdapter, None, None]:
    yield memory_state(clock=clock)


@contextmanager
def sqlite(clock: Clock) -> Generator[AnyStateAdapter, None, None]:
    with TemporaryDirectory() as folder:
        yield sync_sqlite_state(with_tables(Path(folder) / "jobs.db"), clock=clock)


@contextmanager
def async_sqlite(clock: Clock) -> Generator[AnyStateAdapter, None, None]:
    with TemporaryDirectory() as folder:
        yield sqlite_state(with_tables(Path(folder) / "jobs.db"), clock=clock)
