"""Sync clients: they publish on every topic, and wait for chains."""

from __future__ import annotations

from queuert.errors import ClientClosed
from queuert.ports.notify import TOPICS
from queuert_conformance.checks import equal, raises
from queuert_conformance.notify.channel import Channel, Ear, case, fresh


@case
async def listeners_hear_a_sync_publisher(channel: Channel) -> None:
    """Async listeners receive what a sync adapter publishes, for each topic."""
    pairs = channel.topics
    adapter = await channel.sync_adapter()
    for topic, name in zip(pairs, TOPICS, strict=True):
        ear, values = Ear(), [fresh(), fresh()]
        await topic.listen(ear)
        adapter.publish(name, values)
        await ear.hears(*values)


@case
async def a_sync_listener_hears_of_chains(channel: Channel) -> None:
    """A sync listener receives ended chains from all publishers, until it is disposed."""
    ended = channel.topics[TOPICS.index("chain_ended")]
    adapter = await channel.sync_adapter()
    ear, control, first, second, third = Ear(), Ear(), fresh(), fresh(), fresh()
    dispose = adapter.listen("chain_ended", ear)
    await ended.publish([first])
    adapter.publish("chain_ended", [second])
    await ear.hears(first, second)
    await ended.listen(control)
    dispose()
    dispose()
    await ended.publish([third])
    await control.hears(third)
    equal(sorted(ear.heard), sorted([first, second]), "received after dispose")


@case
async def hints_of_a_sync_publisher(channel: Channel) -> None:
    """Async adapters consume the budgets that a sync adapter provides."""
    channel.needs_hints()
    adapter, name = await channel.sync_adapter(), fresh()
    adapter.provide_wake_hints({name: 1})
    found = [await channel.adapter.consume_wake_hint(name) for _ in range(2)]
    equal(found, [True, False], "consumed")


@case
async def closing_the_sync_adapter(channel: Channel) -> None:
    """close is idempotent. Later calls raise ClientClosed, and dispose functions do nothing."""
    adapter = await channel.sync_adapter()
    dispose = adapter.listen("chain_ended", Ear())
    adapter.close()
    adapter.close()
    dispose()
    for topic in TOPICS:
        with raises(ClientClosed, "publishing"):
            adapter.publish(topic, [fresh()])
    with raises(ClientClosed, "providing wake hints"):
        adapter.provide_wake_hints({fresh(): 1})
    with raises(ClientClosed, "listening"):
        adapter.listen("chain_ended", Ear())
