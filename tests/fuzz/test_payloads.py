"""Whatever is published on the channels of a broker: jobs run, `wait` answers, and the worker lives.

The provider is one within the process. What real brokers make of strange payloads is in `tests/brokers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import queuert
from queuert import Attempt, EntryJob, Every, Handlers, Worker
from queuert.adapters.broadcast.messages import Subscriptions
from queuert.ports.notify import Announced, OnMessage

IDS = st.uuids().map(str)
NAMES = st.one_of(st.text(max_size=20), IDS, st.sampled_from(["", "step", "\0", "x" * 10_000, "queuert.bulk-retry"]))
VALUES = st.lists(NAMES, max_size=5).map(msgspec.json.encode)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), NAMES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
).map(msgspec.json.encode)
RAW = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"[" * 20_000, b'["\\ud800"]', b'["\xff"]', b"\xef\xbb\xbf[]", b'["a",]', b"[1e400]", b"\0"]),
)
DRAWS = st.builds(
    lambda number, jobs: msgspec.json.encode([f"\0{number}:{jobs}", "step"]),
    st.one_of(st.integers(), st.sampled_from(["", "1:2", "x", "9" * 1000, "-" + "9" * 1000])),
    st.one_of(st.integers(), st.sampled_from(["", "x", "9" * 1000, "0"])),
)
"""What comes before the names of jobs that were announced together."""
PAYLOADS = st.lists(st.one_of(VALUES, DRAWS, JSON, RAW), min_size=1, max_size=20)


class Step(EntryJob[int], name="step"):
    number: int


class Provider:
    """Within the process; anybody may publish anything."""

    def __init__(self) -> None:
        self.channels: set[str] = set()
        self._listening: list[tuple[set[str], OnMessage]] = []

    async def publish(self, channel: str, messages: Sequence[str]) -> None:
        for message in messages:
            self.say(channel, message)

    async def subscribe(self, channels: Sequence[str], on_message: OnMessage, ready: Callable[[], None]) -> None:
        listening = (set(channels), on_message)
        self.channels |= listening[0]
        self._listening.append(listening)
        ready()
        try:
            await asyncio.Event().wait()
        finally:
            self._listening.remove(listening)

    def say(self, channel: str, payload: Any) -> None:
        for channels, on_message in list(self._listening):
            if channel in channels:
                on_message(channel, payload)


handlers = Handlers[Any]()


@handlers.handles(Step)
async def step(attempt: Attempt[Step]) -> int:
    return attempt.job.number


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(payloads=PAYLOADS)
def test_what_others_publish_kills_no_worker(payloads: list[bytes]) -> None:
    asyncio.run(work_beside(payloads))


async def work_beside(payloads: list[bytes]) -> None:
    provider = Provider()
    async with (
        queuert.connect("memory://", jobs=[Step], notify=provider, poll_interval=3600) as client,
        Worker(client, handlers, poll_interval=3600) as worker,
    ):
        async with client.transaction() as tx:
            await client.put_schedule(tx, "hourly", Every(timedelta(hours=1)), Step(number=0))
        assert await client.wait(await client.submit(Step(number=1)), timeout=30) == 1
        for payload in payloads:
            for channel in (*provider.channels, "another"):
                provider.say(channel, payload)
                provider.say(channel, payload.decode(errors="replace"))
            await asyncio.sleep(0)
        # No poll comes to help: the channel must still deliver.
        assert await client.wait(await client.submit(Step(number=2)), timeout=30) == 2
        assert worker.health().error is None


@given(number=st.one_of(st.integers(), st.just(10**999)), jobs=st.one_of(st.integers(), st.just(-(10**999))))
def test_a_draw_that_workers_cannot_compute_with_is_left_out(number: int, jobs: int) -> None:
    heard: list[Announced | str] = []
    subscriptions = Subscriptions({"channel": "job_scheduled"})
    subscriptions.add("job_scheduled", heard.append)
    subscriptions.receive("channel", msgspec.json.encode([f"\0{number}:{jobs}", "step"]))
    assert heard == ["step"]
    draw = getattr(heard[0], "draw", None)
    assert (draw is not None) == (0 <= number < 2**63 and 0 <= jobs < 2**63)
