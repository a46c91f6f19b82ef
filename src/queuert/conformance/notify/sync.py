"""The sync adapter: it publishes to every listener, and waits for chains."""

from __future__ import annotations

from queuert.conformance.checks import equal, raises
from queuert.conformance.notify.channel import Channel, Ear, case, fresh
from queuert.errors import ClientClosed


@case
async def listeners_hear_a_sync_publisher(channel: Channel) -> None:
    """Async listeners receive what a sync adapter publishes, for each of the three topics."""
    pairs = channel.topics
    adapter = await channel.sync_adapter()
    publishers = (adapter.job_scheduled, adapter.chain_completed, adapter.ownership_lost)
    for topic, publish in zip(pairs, publishers, strict=True):
        ear, values = Ear(), [fresh(), fresh()]
        await topic.listen(ear)
        publish(values)
        await ear.hears(*values)


@case
async def a_sync_listener_hears_of_chains(channel: Channel) -> None:
    """A sync listener receives ended chains from all publishers, until it is disposed."""
    pairs = channel.topics
    adapter = await channel.sync_adapter()
    ear, control, first, second, third = Ear(), Ear(), fresh(), fresh(), fresh()
    dispose = adapter.listen_chain_completed(ear)
    await pairs[1].publish([first])
    adapter.chain_completed([second])
    await ear.hears(first, second)
    await pairs[1].listen(control)
    dispose()
    dispose()
    await pairs[1].publish([third])
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
    dispose = adapter.listen_chain_completed(Ear())
    adapter.close()
    adapter.close()
    dispose()
    for publish in (adapter.job_scheduled, adapter.chain_completed, adapter.ownership_lost):
        with raises(ClientClosed, "publishing"):
            publish([fresh()])
    with raises(ClientClosed, "providing wake hints"):
        adapter.provide_wake_hints({fresh(): 1})
    with raises(ClientClosed, "listening"):
        adapter.listen_chain_completed(Ear())
