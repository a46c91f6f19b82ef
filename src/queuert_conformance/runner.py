"""Runs cases: each with its own harness and a time limit, so that no case affects the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from inspect import isawaitable
from time import perf_counter
from typing import Any, TypeVar

from queuert_conformance.case import Case, Suite
from queuert_conformance.checks import CheckFailed, Skipped
from queuert_conformance.report import Outcome, Report

H = TypeVar("H")
S = TypeVar("S")

Factory = Callable[[], H] | Callable[[], Awaitable[H]]
"""Makes a harness: a class, a function or an async function without arguments. Called for each
case."""

Opener = Callable[[H], AbstractAsyncContextManager[S]]
"""Makes the argument of a case from a harness. It empties the storage first, and disposes of the
harness at the end."""

DEFAULT_TIMEOUT = 100.0


async def run_suite(
    suite: Suite[S],
    factory: Factory[H],
    opener: Opener[H, S],
    only: str | Iterable[str] | None,
    timeout: float,
) -> Report:
    """Run the chosen cases one after the other."""
    outcomes = [await run_case(case, factory, opener, timeout) for case in suite.select(only)]
    return Report(suite.name, outcomes)


async def run_case(case: Case[S], factory: Factory[H], opener: Opener[H, S], timeout: float) -> Outcome:
    """Run one case. Any error is its outcome, except a cancellation from outside."""
    began = perf_counter()
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            made: Any = factory()
            harness: H = await made if isawaitable(made) else made
            async with opener(harness) as subject:
                await case.body(subject)
    except Skipped as skipped:
        return Outcome(case.name, case.rule, "skipped", perf_counter() - began, reason=str(skipped))
    except Exception as error:
        cause: Exception = error
        if isinstance(error, TimeoutError) and limit.expired():
            cause = CheckFailed(f"did not end within {timeout:g} s: it waits where it must not, or for ever")
            cause.__cause__ = error
        return Outcome(case.name, case.rule, "failed", perf_counter() - began, error=cause)
    return Outcome(case.name, case.rule, "passed", perf_counter() - began)
