"""Wake hints: budgets, so that not all workers wake for one job."""

from __future__ import annotations

import asyncio

from queuert.ports.notify import NotifyAdapter
from queuert_conformance.checks import check, equal
from queuert_conformance.notify.channel import Channel, case, fresh


async def consumed(adapter: NotifyAdapter, type_name: str, times: int) -> list[bool]:
    return [await adapter.consume_wake_hint(type_name) for _ in range(times)]


@case
async def without_a_budget_everybody_wakes(channel: Channel) -> None:
    """If no budget is known, consuming returns true, every time."""
    equal(await consumed(channel.adapter, fresh(), 3), [True] * 3, "consumed")


@case
async def providing_is_accepted(channel: Channel) -> None:
    """Every adapter accepts budgets, and the first consumer may wake."""
    name = fresh()
    await channel.adapter.provide_wake_hints({name: 1})
    await channel.adapter.provide_wake_hints({})
    check(await channel.adapter.consume_wake_hint(name), "the first must be allowed to wake")


@case
async def a_budget_is_used_up(channel: Channel) -> None:
    """Consuming returns true as often as the budget allows, then false."""
    channel.needs_hints()
    name = fresh()
    await channel.adapter.provide_wake_hints({name: 2})
    equal(await consumed(channel.adapter, name, 4), [True, True, False, False], "consumed")


@case
async def budgets_add_up(channel: Channel) -> None:
    """Budgets of one type add up, before and after they are used."""
    channel.needs_hints()
    name = fresh()
    await channel.adapter.provide_wake_hints({name: 1})
    await channel.adapter.provide_wake_hints({name: 2})
    equal(await consumed(channel.adapter, name, 4), [True, True, True, False], "consumed")
    await channel.adapter.provide_wake_hints({name: 1})
    equal(await consumed(channel.adapter, name, 2), [True, False], "consumed after another one")


@case
async def types_have_budgets_of_their_own(channel: Channel) -> None:
    """One call can set budgets for several types. They are separate, and other types have none."""
    channel.needs_hints()
    one, two, other = fresh(), fresh(), fresh()
    await channel.adapter.provide_wake_hints({one: 1, two: 2})
    equal(await consumed(channel.adapter, one, 2), [True, False], "the first type")
    equal(await consumed(channel.adapter, other, 2), [True, True], "a type without a budget")
    equal(await consumed(channel.adapter, two, 3), [True, True, False], "the second type")


@case
async def a_crowd_consumes_at_once(channel: Channel) -> None:
    """However many consume at once, exactly as many may wake as the budget allows."""
    channel.needs_hints()
    name = fresh()
    await asyncio.gather(*(channel.adapter.provide_wake_hints({name: 2}) for _ in range(5)))
    woken = await asyncio.gather(*(channel.adapter.consume_wake_hint(name) for _ in range(30)))
    equal(sum(woken), 10, "woken listeners")


@case
async def budgets_are_shared(channel: Channel) -> None:
    """Adapters on one channel share the budgets."""
    channel.needs_hints()
    other, name = await channel.second(), fresh()
    await channel.adapter.provide_wake_hints({name: 1})
    await other.provide_wake_hints({name: 1})
    equal(await consumed(other, name, 1), [True], "consumed there")
    equal(await consumed(channel.adapter, name, 2), [True, False], "consumed here")
