"""A contender's process, seen from the harness."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

START, END = 120.0, 1800.0
"""Seconds to wait for a process to start or end. A million jobs take a while."""


class ContenderFailed(Exception):
    """What the contender wrote to stderr, or why the harness stopped waiting."""


class Process:
    """One task in its own process.

    Use it in an `async with` block. `done` is its last progress report.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path, task: Mapping[str, Any]) -> None:
        self._command = [*command, json.dumps(task)]
        self._env = dict(env)
        self._cwd = cwd
        self.done = 0
        self.peak_rss = 0.0
        """Megabytes, set by the code that samples them."""
        self.news = asyncio.Event()
        """Set with each report."""
        self._ready = asyncio.Event()
        self._result: dict[str, Any] | None = None

    async def __aenter__(self) -> Self:
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=self._env,
            cwd=self._cwd,
            limit=2**24,  # a line may contain thousands of times
        )
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._listening
        self._stderr.close()

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # output of the library itself
            if not isinstance(message, dict):
                continue
            self.done = message.get("done", self.done)
            self._result = message.get("result", self._result)
            if "ready" in message:
                self._ready.set()
            self.news.set()
        await self._process.wait()
        self._ready.set()
        self.news.set()

    @property
    def ended(self) -> bool:
        return self._listening.done()

    async def ready(self) -> None:
        await self._within(START, self._ready.wait())
        if self.ended:
            raise self._failure()

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())

    async def result(self) -> dict[str, Any]:
        """Its last message."""
        await self._within(END, asyncio.shield(self._listening))
        if self._process.returncode or self._result is None:
            raise self._failure()
        return self._result

    def check(self) -> None:
        """Raises if it has already ended."""
        if self.ended:
            raise self._failure()

    def rss(self) -> float:
        """Megabytes in memory now."""
        return resident(self._process.pid)

    async def _within(self, seconds: float, work: Any) -> None:
        try:
            await asyncio.wait_for(work, seconds)
        except TimeoutError:
            raise ContenderFailed(f"no answer within {seconds:.0f} s") from None

    def _failure(self) -> ContenderFailed:
        self._stderr.seek(0)
        lines = [line for line in self._stderr.read().splitlines() if line.strip()]
        return ContenderFailed(lines[-1] if lines else f"ended with exit code {self._process.returncode}")


def resident(pid: int) -> float:
    """Megabytes of a process in memory."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0
    found = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return int(found.stdout.strip() or 0) / 1024
