"""The example of a notify provider: it passes the conformance suite, survives its forwarder, and its program runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support.ears import Ear
from tests.support.servers import free_port

from queuert.adapters.broadcast import BroadcastNotify
from queuert.ports.notify import MISSED, TOPICS, NotifyAdapter
from queuert_conformance import NotifyHarness
from queuert_conformance.pytest_plugin import notify_tests

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "zeromq_notify.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    return __import__("zeromq_notify")


class Forwarder:
    """The example's own, in a process that can be stopped and started."""

    def __init__(self) -> None:
        self.addresses = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, EXAMPLE, "forward", *self.addresses], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "forwarding\n"

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def shared_forwarder() -> Iterator[Forwarder]:
    found = Forwarder()
    yield found
    found.stop()


class ZeroMQHarness(NotifyHarness):
    """A provider has no wake hints, unless it offers the two methods for them."""

    hints = False

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._prefix = f"case.{uuid4()}"
        super().__init__(self.make())

    def make(self) -> NotifyAdapter:
        return BroadcastNotify(self._make(), prefix=self._prefix)

    async def second(self) -> NotifyAdapter:
        return self.make()


@pytest.fixture
def harness(example: Any, shared_forwarder: Forwarder) -> Callable[[], NotifyHarness]:
    return lambda: ZeroMQHarness(lambda: example.ZeroMQProvider(*shared_forwarder.addresses))


test_conformance = notify_tests("harness")


async def test_a_forwarder_that_is_killed_and_restarted(example: Any) -> None:
    forwarder = Forwarder()
    adapter, ears = BroadcastNotify(example.ZeroMQProvider(*forwarder.addresses)), [Ear() for _ in TOPICS]
    for topic, ear in zip(TOPICS, ears, strict=True):
        await adapter.listen(topic, ear)
    for number in range(2):
        forwarder.stop()
        forwarder.start()
        for topic, ear in zip(TOPICS, ears, strict=True):
            await ear.until(MISSED, times=number + 1)
            await adapter.publish(topic, [f"round {number}"])
            await ear.until(f"round {number}")
    assert all(ear.messages == ["round 0", "round 1"] for ear in ears)
    await adapter.close()
    forwarder.stop()


def test_the_program() -> None:
    """The notifications come through: neither side polls, and the waiting one would give up after half a minute."""
    addresses = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
    ended = subprocess.run([sys.executable, "-W", "error", EXAMPLE, *addresses], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "Hello, ZeroMQ\n", "")
