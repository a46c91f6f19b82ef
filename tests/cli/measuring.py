"""Coverage of the processes that the tests of the command start: most of it runs only there."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import coverage

import queuert.operate.cli


def variables_for_coverage() -> dict[str, str]:
    """What a Python process must find in its environment to be measured. Empty if nothing is measured."""
    current = coverage.Coverage.current()
    if current is None:
        return {}
    place = Path(current.get_data().base_filename()).absolute()
    return {"COVERAGE_PROCESS_START": _configuration(), "COVERAGE_FILE": str(place)}


@cache
def _configuration() -> str:
    """`parallel`: each process has a data file of its own, and pytest-cov combines them all.

    Only of the command itself: the rest is measured elsewhere, and would make each process twice as slow.
    Its directory, not its name: to find a module by name, coverage imports the packages around it, asyncio
    among them, and forgets them again; two copies of asyncio in one process do not get on.
    """
    command = Path(queuert.operate.cli.__file__).parent
    with tempfile.NamedTemporaryFile("w", suffix=".ini", delete=False) as file:
        file.write(f"[run]\nbranch = true\nparallel = true\nsource = {command}\n")
    return file.name
