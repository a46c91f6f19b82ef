"""Announcements of many callers go out together."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence

import pytest
from tests.behaviour.steps import Gate, patiently

from queuert.adapters.broadcast.outbox import Outbox


class Broker:
    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gates: list[Gate] = []
        self.error: Exception | None = None

    async def send(self, values: Sequence[str]) -> None:
        self.batches.append(list(values))
        if self.gates:
            await self.gates[len(self.batches) - 1]()
        if self.error is not None:
            raise self.error


async def test_alone_it_goes_at_once() -> None:
    broker = Broker()
    outbox = Outbox(broker.send)
    await outbox.send(["a", "b"])
    await outbox.send(["a"])
    assert broker.batches == [["a", "b"], ["a"]]


async def test_what_comes_meanwhile_goes_together_and_once() -> None:
    broker = Broker()
    broker.gates = [Gate(), Gate()]
    outbox = Outbox(broker.send)
    first = asyncio.create_task(outbox.send(["a"]))
    await broker.gates[0].arrival()
    others = [asyncio.create_task(outbox.send([value])) for value in ("b", "c", "b")]
    await asyncio.sleep(0)
    assert broker.batches == [["a"]]
    broker.gates[0].open()
    await patiently(first)
    await broker.gates[1].arrival()
    assert broker.batches == [["a"], ["b", "c"]]
    assert not any(task.done() for task in others), "they hear of it when it is sent"
    broker.gates[1].open()
    await patiently(asyncio.gather(*others))


async def test_three_batches_in_a_row() -> None:
    broker = Broker()
    broker.gates = [Gate(), Gate(), Gate()]
    outbox = Outbox(broker.send)
    tasks = []
    for number in range(3):
        tasks += [asyncio.create_task(outbox.send([str(number)]))]
        await broker.gates[0].arrival()
        if number == 1:
            broker.gates[0].open()
            await broker.gates[1].arrival()
    assert broker.batches == [["0"], ["1"]]
    broker.gates[1].open()
    broker.gates[2].open()
    await patiently(asyncio.gather(*tasks))
    assert broker.batches == [["0"], ["1"], ["2"]]


async def test_everybody_in_a_batch_hears_of_its_failure_and_nobody_else() -> None:
    broker = Broker()
    broker.gates = [Gate(), Gate(), Gate()]
    outbox = Outbox(broker.send)
    first = asyncio.create_task(outbox.send(["a"]))
    await broker.gates[0].arrival()
    others = [asyncio.create_task(outbox.send([value])) for value in ("b", "c")]
    broker.gates[0].open()
    await patiently(first)
    await broker.gates[1].arrival()
    broker.error = OSError("gone")
    broker.gates[1].open()
    for task in others:
        with pytest.raises(OSError, match="gone"):
            await patiently(task)
    broker.error = None
    broker.gates[2].open()
    await outbox.send(["d"])
    assert broker.batches[-1] == ["d"]


async def test_a_caller_who_gives_up_takes_nothing_back() -> None:
    broker = Broker()
    broker.gates = [Gate(), Gate()]
    outbox = Outbox(broker.send)
    first = asyncio.create_task(outbox.send(["a"]))
    await broker.gates[0].arrival()
    other = asyncio.create_task(outbox.send(["b"]))
    await asyncio.sleep(0)
    for task in (first, other):
        task.cancel()
    await asyncio.gather(first, other, return_exceptions=True)
    for gate in broker.gates:
        gate.open()
    await patiently(outbox.send(["c"]))
    assert [value for batch in broker.batches for value in batch] == ["a", "b", "c"]


async def test_nobody_waits_for_what_failed() -> None:
    """Then nothing is said about it: not at garbage collection either."""
    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: said.append(context))
    broker = Broker()
    broker.gates, broker.error = [Gate()], OSError("gone")
    outbox = Outbox(broker.send)
    caller = asyncio.create_task(outbox.send(["a"]))
    await broker.gates[0].arrival()
    caller.cancel()
    await asyncio.wait({caller})
    broker.gates[0].open()
    while asyncio.all_tasks() != {asyncio.current_task()}:
        await asyncio.sleep(0)
    del outbox, broker, caller
    gc.collect()
    assert said == []
