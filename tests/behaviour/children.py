"""Child processes that run a program of this suite."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.behaviour.steps import patiently

ROOT = Path(__file__).parents[2]


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def says(self) -> str:
        """The next line that it writes; empty when it has ended."""
        assert self._process.stdout is not None
        line: bytes = await patiently(self._process.stdout.readline())
        return line.decode().rstrip("\n")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go on\n")

    async def exit_code(self) -> int:
        code: int = await patiently(self._process.wait())
        return code


@asynccontextmanager
async def child(program: str, *arguments: str) -> AsyncGenerator[Child]:
    """Run a module of `programs`; whatever happens, nothing of it is left behind."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"tests.behaviour.programs.{program}",
        *arguments,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Child(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
