"""Each case as one pytest test.

    from queuert_conformance.pytest_plugin import state_tests

    test_my_adapter = state_tests(MyHarness)            # a class or function that makes a harness
    test_with_fixture = state_tests("my_harness")       # a fixture whose value makes a harness

Each case runs in its own event loop. You need no asyncio plugin, and one does not disturb.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

from queuert_conformance.case import Case, Suite
from queuert_conformance.codec.harness import CODEC, CodecHarness, open_harness
from queuert_conformance.notify.channel import NOTIFY, open_channel
from queuert_conformance.notify.harness import NotifyHarness
from queuert_conformance.runner import DEFAULT_TIMEOUT, Factory, Opener, run_case
from queuert_conformance.state.harness import StateHarness
from queuert_conformance.state.store import STATE, open_store

__all__ = ["codec_tests", "notify_tests", "state_tests"]

H = TypeVar("H")
S = TypeVar("S")

Test = Callable[..., None]


def state_tests(
    harness: Factory[StateHarness] | str,
    *,
    only: str | Iterable[str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Test:
    """A test of the state port, parametrised by case.

    Assign it to a name that begins with `test`.

    Args:
        harness: Makes a harness for each case: the class, a function, or the name of a fixture
            whose value is one of these.
        only: Run only some cases, chosen by operation, name or pattern (default: all).
        timeout: How long one case may take, in seconds (default: 100).
    """
    return _tests(STATE, harness, open_store, only, timeout)


def notify_tests(
    harness: Factory[NotifyHarness] | str,
    *,
    only: str | Iterable[str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Test:
    """A test of the notify port, parametrised by case.

    Assign it to a name that begins with `test`.

    Args:
        harness: Makes a harness for each case: the class, a function, or the name of a fixture
            whose value is one of these.
        only: Run only some cases, chosen by module, name or pattern (default: all).
        timeout: How long one case may take, in seconds (default: 100).
    """
    return _tests(NOTIFY, harness, open_channel, only, timeout)


def codec_tests(
    harness: Factory[CodecHarness] | str,
    *,
    only: str | Iterable[str] | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Test:
    """A test of a codec, parametrised by case.

    Assign it to a name that begins with `test`.

    Args:
        harness: Makes a harness for each case: the class, a function, or the name of a fixture
            whose value is one of these.
        only: Run only some cases, chosen by module, name or pattern (default: all).
        timeout: How long one case may take, in seconds (default: 100).
    """
    return _tests(CODEC, harness, open_harness, only, timeout)


def _tests(
    suite: Suite[S],
    harness: Factory[H] | str,
    opener: Opener[H, S],
    only: str | Iterable[str] | None,
    timeout: float,
) -> Test:
    @pytest.mark.parametrize("conformance_case", suite.select(only), ids=lambda case: case.name)
    def test(conformance_case: Case[S], request: pytest.FixtureRequest) -> None:
        factory: Any = request.getfixturevalue(harness) if isinstance(harness, str) else harness
        outcome = asyncio.run(run_case(conformance_case, factory, opener, timeout))
        if outcome.reason is not None:
            pytest.skip(outcome.reason)
        if outcome.error is not None:
            outcome.error.add_note(f"conformance case {outcome.name}: {outcome.rule}")
            raise outcome.error

    return test
