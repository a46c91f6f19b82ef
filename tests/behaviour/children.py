"""Child processes that run a program of this suite."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from tests.behaviour.steps import PATIENCE, patiently
from tests.support.forking import Forked, fork

ROOT = Path(__file__).parents[2]


class Child:
    def __init__(self, process: Forked, lines: asyncio.StreamReader, stdin: int) -> None:
        self._process = process
        self._lines = lines
        self._stdin = stdin

    async def says(self) -> str:
        """The next line that it writes; empty when it has ended."""
        line: bytes = await patiently(self._lines.readline())
        return line.decode().rstrip("\n")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def stop_between_writes(self, url: str) -> None:
        """Stop it, but not while it holds the write lock of a SQLite file: everybody would wait for that."""
        while True:
            self.send(signal.SIGSTOP)
            if not url.startswith("sqlite:") or _can_be_written(Path(url.removeprefix("sqlite:///"))):
                return
            self.send(signal.SIGCONT)
            await asyncio.sleep(0.01)

    def tell(self) -> None:
        os.write(self._stdin, b"go on\n")

    async def exit_code(self) -> int:
        return await asyncio.to_thread(self._process.wait, PATIENCE)


def _can_be_written(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
    return True


async def reader(pipe: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Reads this end of a pipe; the transport closes it."""
    lines = asyncio.StreamReader(limit=1 << 20)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(pipe, "rb", buffering=0)
    )
    return lines, transport


@asynccontextmanager
async def child(program: str, *arguments: str) -> AsyncGenerator[Child]:
    """Run a module of `programs`; whatever happens, nothing of it is left behind."""
    its_stdin, stdin = os.pipe()
    stdout, its_stdout = os.pipe()
    process = fork(f"tests.behaviour.programs.{program}", arguments, stdin=its_stdin, stdout=its_stdout, stderr=2)
    os.close(its_stdin)
    os.close(its_stdout)
    lines, reading = await reader(stdout)
    running = Child(process, lines, stdin)
    try:
        yield running
    finally:
        process.kill()
        await running.exit_code()
        reading.close()
        os.close(stdin)
