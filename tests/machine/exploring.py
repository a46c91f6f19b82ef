"""Random programs on one adapter: dice decide each step."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.machine.driver import Driver, drive
from tests.machine.test_machine import FACTORIES
from tests.machine.world import Clock, Ids

from queuert.records.model import BlockerRef, JobRow, NewJob

W = TypeVar("W", bound="Explored")


class Explored:
    """A database, and what a program does with it."""

    def __init__(self, driver: Driver, clock: Clock, dice: random.Random) -> None:
        self.driver = driver
        self.operations = driver.operations
        self.clock = clock
        self.dice = dice
        self.ids = Ids()

    def run(self, program: Any, *, inside: bool = False) -> Any:
        return self.driver.run(program, inside=inside)

    def start_chain(self, type_name: str, blockers: Iterable[JobRow], **options: Any) -> None:
        """Start a chain that waits for the chains that begin with these jobs."""
        job_id = self.ids.new()
        job = NewJob(
            id=job_id,
            type_name=type_name,
            chain_id=job_id,
            chain_type=type_name,
            chain_index=0,
            input=b"{}",
            blockers=tuple(BlockerRef(each.id, each.type_name) for each in blockers),
            **options,
        )
        self.run(self.operations.create_jobs([job]))


@contextmanager
def exploring(world: type[W], name: str, seed: int) -> Generator[W, None, None]:
    """A world on an empty database of this adapter. If something in it is wrong, the error names the seed."""
    clock = Clock()
    with FACTORIES[name](clock) as adapter:
        driver = drive(adapter)
        try:
            driver.run(driver.operations.migrate(), inside=False)
            yield world(driver, clock, random.Random(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            driver.close()
