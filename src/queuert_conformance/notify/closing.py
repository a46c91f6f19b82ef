"""close: it ends one adapter, and no other on the channel."""

from __future__ import annotations

from queuert.errors import ClientClosed
from queuert_conformance.checks import raises
from queuert_conformance.notify.channel import Channel, Ear, case, fresh, topics


@case
async def closing_twice(channel: Channel) -> None:
    """A second close does nothing."""
    for _ in range(3):
        await channel.adapter.close()


@case
async def later_calls_are_refused(channel: Channel) -> None:
    """After close, publishing, listening and wake hints raise ClientClosed."""
    await channel.adapter.close()
    for topic in topics(channel.adapter):
        with raises(ClientClosed, f"publishing {topic.name}"):
            await topic.publish([fresh()])
        with raises(ClientClosed, f"listening to {topic.name}"):
            await topic.listen(Ear())
    with raises(ClientClosed, "providing wake hints"):
        await channel.adapter.provide_wake_hints({fresh(): 1})
    with raises(ClientClosed, "consuming a wake hint"):
        await channel.adapter.consume_wake_hint(fresh())


@case
async def disposing_after_close(channel: Channel) -> None:
    """Dispose functions do nothing after close."""
    disposals = [await topic.listen(Ear()) for topic in topics(channel.adapter) for _ in range(2)]
    await channel.adapter.close()
    for dispose in disposals:
        await dispose()


@case
async def listeners_end(channel: Channel) -> None:
    """The listeners of a closed adapter are no longer called. Those of other adapters are."""
    mine, theirs = channel.topics, topics(await channel.second())
    gone, stay = [Ear() for _ in mine], [Ear() for _ in theirs]
    for topic, ear in zip([*mine, *theirs], [*gone, *stay], strict=True):
        await topic.listen(ear)
    await channel.adapter.close()
    for topic, ear in zip(theirs, stay, strict=True):
        await topic.publish([value := fresh()])
        await ear.hears(value)
    for ear in gone:
        await ear.stays_silent()
