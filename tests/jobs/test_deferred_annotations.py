"""Annotations that Python 3.14 evaluates when they are read: they may mention what is defined later, or never.

There is no `from __future__ import annotations` here, which would make them strings.
"""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

import queuert
from queuert import Attempt, Chain, EntryJob, Handlers, Job, Worker
from queuert.errors import InvalidArgument, InvalidJobType

if TYPE_CHECKING:
    from typing import Never as Unknown

if sys.hexversion < 0x030E0000:
    pytest.skip("this Python evaluates annotations at once", allow_module_level=True)

handlers = Handlers()


class Order(EntryJob[int, "Charge"], name="order"):
    basket: Basket  # noqa: F821 # pyright: ignore[reportUndefinedVariable]
    credit: Chain[Credit]  # noqa: F821 # pyright: ignore[reportUndefinedVariable]


@dataclass(frozen=True)
class Basket:
    items: int


class Credit(EntryJob[int], name="credit"):
    pass


class Charge(Job[int], name="charge"):
    total: int


@handlers.handles(Order)
async def order(attempt: Attempt[Order]) -> Charge | Unknown:  # noqa: RUF020
    return Charge(total=attempt.job.basket.items - attempt.job.credit.output)


@handlers.handles(Credit)
async def credit(attempt: Attempt[Credit]) -> int:
    return 1


@handlers.handles(Charge)
async def charge(attempt: Attempt[Charge]) -> int:
    return attempt.job.total


async def test_names_that_are_defined_later() -> None:
    async with queuert.connect("memory://deferred", jobs=[Order]) as client:
        async with client.transaction() as tx:
            blocker = await client.start(tx, Credit())
            chain = await client.start(tx, Order(basket=Basket(items=3), credit=blocker))
        async with Worker(client, handlers):
            assert await client.wait(chain, timeout=60) == 2


def test_a_field_whose_type_is_known_nowhere() -> None:
    class Bad(EntryJob[None], name="bad"):
        items: Unknown

    with pytest.raises(InvalidJobType, match="mentions 'Unknown', which is not defined"):
        queuert.connect("memory://deferred", jobs=[Bad])


def test_a_handler_for_another_job() -> None:
    with pytest.raises(InvalidArgument, match="another job class, Charge"):

        @handlers.handles(Credit)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        async def wrong(attempt: Attempt[Charge]) -> int | Unknown:  # noqa: RUF020
            raise NotImplementedError
