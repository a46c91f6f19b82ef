"""Values by typed key, and the layers of an onion."""

from __future__ import annotations

from typing import Any

import pytest

from queuert import Key, Middleware
from queuert.worker.handlers.middleware import MiddlewareStack, Values


def test_keys_are_told_apart_by_identity_and_not_by_name() -> None:
    first, second = Key[int]("number"), Key[str]("number")
    values = Values()
    values[first] = 1
    assert (first in values, second in values) == (True, False)
    assert values[first] == 1
    with pytest.raises(KeyError, match=r"no middleware has set Key\('number'\)"):
        _ = values[second]
    values[first] = 2
    assert values[first] == 2


class Doubling(Middleware):
    async def wrap_handler(self, attempt: Any, call_next: Any) -> Any:
        return 2 * await call_next()


async def test_only_layers_that_override_something_are_called() -> None:
    onion = MiddlewareStack([Middleware(), Doubling(), Middleware(), Doubling()])
    assert len(onion.all) == 4
    assert (onion.wraps("prepare"), onion.wraps("complete")) == (False, False)
    attempt: Any = None

    async def innermost() -> int:
        return 1

    assert await onion.call(attempt, innermost) == 4
    async with onion.phase("complete", attempt, attempt):
        pass


async def test_the_base_class_does_nothing() -> None:
    base, attempt = Middleware(), Values()

    async def innermost() -> str:
        return "result"

    unused: Any = attempt
    assert await base.wrap_handler(unused, innermost) == "result"
    async with base.wrap_prepare(unused, unused), base.wrap_complete(unused, unused):
        pass
