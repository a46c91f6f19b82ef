"""`queuert worker` as a process, and what can be seen of it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.behaviour.children import reader
from tests.behaviour.steps import PATIENCE, eventually, patiently
from tests.cli.measuring import variables_for_coverage
from tests.support.forking import Forked, fork

ROOT = Path(__file__).parents[2]
SHOP = "tests.cli.programs.shop"


class Supervised:
    def __init__(self, process: Forked, stderr: asyncio.StreamReader, place: Path) -> None:
        self._process = process
        self._stderr = stderr
        self.place = place
        self.lines: list[str] = []
        """What it has written to stderr."""
        self.pids: set[int] = set()
        """All worker processes that it has ever had."""
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def out(self) -> str:
        """What it has written to stdout."""
        return (self.place / "stdout").read_text()

    async def _read(self) -> None:
        async for line in self._stderr:
            self.lines.append(line.decode().rstrip("\n"))
            if found := re.search(r"worker process (\d+) started", self.lines[-1]):
                self.pids.add(int(found[1]))

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def open(self, gate: str) -> None:
        (self.place / gate).touch()

    async def reached(self, gate: str) -> int:
        """The process in which a `Hold` job runs."""
        file = self.place / f"{gate}-reached"
        await eventually(lambda: file.exists() and file.read_text())
        return int(file.read_text())

    async def writes(self, pattern: str) -> re.Match[str]:
        """The first line that fits. Lines that were there before count."""
        await eventually(lambda: re.search(pattern, self.text, re.MULTILINE))
        found = re.search(pattern, self.text, re.MULTILINE)
        assert found is not None
        return found

    async def exit_code(self) -> int:
        code = await asyncio.to_thread(self._process.wait, PATIENCE)
        await patiently(self._reading)
        return code

    async def port(self) -> int:
        return int((await self.writes(r"/metrics are at 127\.0\.0\.1:(\d+)"))[1])

    async def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        """The status and the text of an answer."""
        answer = await self.exchange(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, _, body = answer.decode().partition("\r\n\r\n")
        return int(head.split()[1]), body

    async def exchange(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", await self.port())
        try:
            writer.write(request)
            answer: bytes = await patiently(reader.read())
            return answer
        finally:
            writer.close()

    async def processes(self) -> list[dict[str, Any]]:
        return json.loads((await self.get("/ready"))[1])["processes"]  # type: ignore[no-any-return]

    async def ready(self, count: int, *, besides: set[int] = frozenset()) -> list[int]:  # type: ignore[assignment]
        """Wait until so many processes are ready, and no other ones are left. Returns their ids."""

        async def are_ready() -> bool:
            found = await self.processes()
            return len(found) == count and all(each["ready"] and each["pid"] not in besides for each in found)

        await eventually(are_ready)
        return [each["pid"] for each in await self.processes()]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def environment(url: str, place: Path, **more: str) -> dict[str, str]:
    source = os.pathsep.join(map(str, (ROOT / "src", ROOT, place)))
    return {**os.environ, "PYTHONPATH": source, "QUEUERT_TEST_URL": url, "QUEUERT_TEST_PLACE": str(place),
            **variables_for_coverage(), **more}  # fmt: skip


@asynccontextmanager
async def supervised(
    url: str, place: Path, *arguments: str, worker: str = f"{SHOP}:worker", health: bool = True, **variables: str
) -> AsyncGenerator[Supervised]:
    """Run it; whatever happens, nothing of it is left behind."""
    options = ["--health", "127.0.0.1:0"] if health else []
    stderr, its_stderr = os.pipe()
    with (place / "stdout").open("w") as stdout:
        process = fork(
            "queuert", ["worker", worker, *options, *arguments], environment=environment(url, place, **variables),
            stdout=stdout.fileno(), stderr=its_stderr, new_session=True,
        )  # fmt: skip
    os.close(its_stderr)
    lines, transport = await reader(stderr)
    running = Supervised(process, lines, place)
    try:
        async with asyncio.timeout(3 * PATIENCE):
            yield running
    finally:
        # First politely: coverage of a process that is killed is lost.
        for number, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, PATIENCE)):
            if process.returncode is None:
                process.send_signal(number)
                with suppress(TimeoutError):
                    await asyncio.to_thread(process.wait, patience)
        for pid in running.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await running._reading
        transport.close()
