"""Publishing and listening: every listener receives every message until it is disposed."""

from __future__ import annotations

import asyncio

from queuert.base.arguments import MAX_NAME_LENGTH
from queuert_conformance.checks import equal
from queuert_conformance.notify.channel import Channel, Ear, case, fresh, topics


@case
async def a_listener_hears(channel: Channel) -> None:
    """A listener receives everything that is published after listening returned."""
    for topic in channel.topics:
        ear, value = Ear(), fresh()
        await topic.listen(ear)
        await topic.publish([value])
        await ear.hears(value)


@case
async def several_values_of_one_call(channel: Channel) -> None:
    """A listener is called once for each value of a call."""
    for topic in channel.topics:
        ear, values = Ear(), [fresh() for _ in range(20)]
        await topic.listen(ear)
        await topic.publish(values)
        await ear.hears(*values)


@case
async def topics_do_not_mix(channel: Channel) -> None:
    """What is published under one topic is not received under another."""
    pairs = [(topic, Ear(), fresh()) for topic in channel.topics]
    for topic, ear, _ in pairs:
        await topic.listen(ear)
    for topic, _, value in pairs:
        await topic.publish([value])
    for _, ear, value in pairs:
        await ear.hears(value)
    await asyncio.sleep(0.02)
    equal([ear.heard for _, ear, _ in pairs], [[value] for _, _, value in pairs], "received in the end")


@case
async def many_listeners(channel: Channel) -> None:
    """Any number of listeners receive the same."""
    for topic in channel.topics:
        ears, value = [Ear() for _ in range(50)], fresh()
        for ear in ears:
            await topic.listen(ear)
        await topic.publish([value])
        for ear in ears:
            await ear.hears(value)


@case
async def listeners_that_come_at_once(channel: Channel) -> None:
    """Listeners that subscribe at the same time are all active when their calls return."""
    for topic in channel.topics:
        ears, value = [Ear() for _ in range(10)], fresh()
        await asyncio.gather(*(topic.listen(ear) for ear in ears))
        await topic.publish([value])
        for ear in ears:
            await ear.hears(value)


@case
async def a_disposed_listener_hears_no_more(channel: Channel) -> None:
    """After dispose a listener is no longer called. The others are."""
    for topic in channel.topics:
        gone, stays, value = Ear(), Ear(), fresh()
        dispose = await topic.listen(gone)
        await topic.listen(stays)
        await dispose()
        await topic.publish([value])
        await stays.hears(value)
        await gone.stays_silent()


@case
async def disposing_twice(channel: Channel) -> None:
    """A second dispose does nothing, not even to a listener that was added later."""
    for topic in channel.topics:
        dispose = await topic.listen(Ear())
        await dispose()
        ear, value = Ear(), fresh()
        await topic.listen(ear)
        await dispose()
        await topic.publish([value])
        await ear.hears(value)


@case
async def listening_again(channel: Channel) -> None:
    """After the last listener was disposed, a new listener still receives messages."""
    for topic in channel.topics:
        for _ in range(3):
            ear, value = Ear(), fresh()
            dispose = await topic.listen(ear)
            await topic.publish([value])
            await ear.hears(value)
            await dispose()


@case
async def nobody_listens(channel: Channel) -> None:
    """Publishing without listeners, or without values, raises no error."""
    for topic in topics(channel.adapter):
        await topic.publish([fresh()])
        await topic.publish([])


@case
async def odd_texts(channel: Channel) -> None:
    """Values may contain quotes, backslashes, spaces and any letters, up to the longest name."""
    values = [
        f'{fresh()} it\'s "odd" \\ ; -- $1 %s',
        f"{fresh()} Zoë 東京 🚲",
        f"{fresh()}:*.>\n\t",
        fresh().ljust(MAX_NAME_LENGTH, "ü"),
    ]
    for topic in channel.topics:
        ear = Ear()
        await topic.listen(ear)
        await topic.publish(values)
        await ear.hears(*values)


@case
async def another_process_hears(channel: Channel) -> None:
    """Adapters on one channel receive each other's messages, in both directions."""
    others = topics(await channel.second())
    for here, there in zip(channel.topics, others, strict=True):
        near, far, first, second = Ear(), Ear(), fresh(), fresh()
        await here.listen(near)
        await there.listen(far)
        await here.publish([first])
        await there.publish([second])
        await near.hears(first, second)
        await far.hears(first, second)
