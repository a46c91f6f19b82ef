"""Middleware stands around handlers and phases like the layers of an onion."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from tests.behaviour.conftest import Entry, Setting, ledger
from tests.behaviour.steps import failures, job
from tests.behaviour.working import begin, failed, outcome, output, working

from queuert import Attempt, EntryJob, Handlers, Key, Middleware, SyncAttempt, Transaction

pytestmark = pytest.mark.in_turn

Call = Callable[[], Awaitable[Any]]


class Task(EntryJob[str], name="task"):
    number: int = 0


TENANT = Key[str]("tenant")
ABSENT = Key[int]("absent")
WHO = contextvars.ContextVar("WHO", default="nobody")


class Layer(Middleware):
    """Writes down what it sees."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    async def wrap_handler(self, attempt: Any, call_next: Call) -> Any:
        self.log.append(f"{self.name} handler")
        try:
            return await call_next()
        finally:
            self.log.append(f"{self.name} handler end")

    def wrap_prepare(self, attempt: Any, tx: Transaction[Any]) -> AbstractAsyncContextManager[Any]:
        return self._around("prepare")

    def wrap_complete(self, attempt: Any, tx: Transaction[Any]) -> AbstractAsyncContextManager[Any]:
        return self._around("complete")

    @asynccontextmanager
    async def _around(self, phase: str) -> AsyncGenerator[None]:
        self.log.append(f"{self.name} {phase}")
        await asyncio.sleep(0)
        try:
            yield
        finally:
            self.log.append(f"{self.name} {phase} end")


def register(handlers: Handlers[Any], plain: bool, body: Callable[[Any, str], Any], **options: Any) -> None:
    """A handler, async or plain, that goes through both phases and calls `body` in each part of it."""
    if plain:

        @handlers.handles(Task, **options)
        def in_thread(attempt: SyncAttempt[Task]) -> Any:
            with attempt.prepare("atomic") as tx:
                attempt.client.start(tx, Entry(text="prepared"))
                body(attempt, "prepare")
            with attempt.complete() as tx:
                attempt.client.start(tx, Entry(text="completed"))
                body(attempt, "complete")
            return body(attempt, "end")
    else:

        @handlers.handles(Task, **options)
        async def handler(attempt: Attempt[Task]) -> Any:
            async with attempt.prepare("atomic") as tx:
                await attempt.client.start(tx, Entry(text="prepared"))
                body(attempt, "prepare")
            async with attempt.complete() as tx:
                await attempt.client.start(tx, Entry(text="completed"))
                body(attempt, "complete")
            return body(attempt, "end")


@pytest.fixture(params=[False, True], ids=["async", "def"])
def plain(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_the_first_layer_is_the_outermost_for_all_three(setting: Setting, plain: bool) -> None:
    log: list[str] = []

    def body(attempt: Any, where: str) -> str:
        log.append(f"- {where}")
        return "done"

    handlers = Handlers[Any](middleware=[Layer("a", log), Middleware(), Layer("b", log)])
    register(handlers, plain, body)
    async with working(setting, [Task], handlers) as client:
        assert await outcome(client, Task()) == "done"
    assert log == [
        "a handler", "b handler",
        "a prepare", "b prepare", "- prepare", "b prepare end", "a prepare end",
        "a complete", "b complete", "- complete", "b complete end", "a complete end",
        "- end", "b handler end", "a handler end",
    ]  # fmt: skip


async def test_each_registry_has_its_own(setting: Setting) -> None:
    log: list[str] = []

    class Other(EntryJob[str], name="other"):
        pass

    with_layer, without = Handlers[Any](middleware=[Layer("a", log)]), Handlers[Any]()

    async def handler(attempt: Attempt[Any]) -> str:
        return "done"

    with_layer.handles(Task)(handler)
    without.handles(Other)(handler)
    async with working(setting, [Task, Other], [with_layer, without]) as client:
        await outcome(client, Other())
        assert log == []
        await outcome(client, Task())
        assert log == ["a handler", "a handler end"]


class Tenant(Middleware):
    """Provides a value and a context variable, and transforms the result."""

    async def wrap_handler(self, attempt: Any, call_next: Call) -> Any:
        assert TENANT not in attempt.values
        attempt.values[TENANT] = f"tenant {attempt.job.number}"
        WHO.set(f"user {attempt.job.number}")
        return (await call_next()).upper()


async def test_values_context_and_results(setting: Setting, plain: bool) -> None:
    def body(attempt: Any, where: str) -> str:
        assert TENANT in attempt.values
        return f"{attempt.values[TENANT]}, {WHO.get()}"

    handlers = Handlers[Any](middleware=[Tenant()])
    register(handlers, plain, body)
    async with working(setting, [Task], handlers, concurrency=2) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Task(number=number) for number in range(5)])
        assert [await output(client, chain) for chain in chains] == [f"TENANT {n}, USER {n}" for n in range(5)]


async def test_a_value_that_nobody_set_is_an_error_that_names_it(setting: Setting, plain: bool) -> None:
    handlers = Handlers[Any](middleware=[Tenant()])
    register(handlers, plain, lambda attempt, where: str(attempt.values[ABSENT]), max_attempts=1)
    async with working(setting, [Task], handlers) as client:
        error = await failed(client, Task())
        assert (error["type"], "Key('absent')" in error["message"]) == ("KeyError", True)


class Failing(Layer):
    """Fails at one point, once."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__("failing", [])
        self.where = where
        self.error = error

    async def wrap_handler(self, attempt: Any, call_next: Call) -> Any:
        self._fail("before handler", attempt)
        result = await call_next()
        self._fail("after handler", attempt)
        return result

    def wrap_prepare(self, attempt: Any, tx: Transaction[Any]) -> AbstractAsyncContextManager[Any]:
        return self._failing("prepare", attempt)

    def wrap_complete(self, attempt: Any, tx: Transaction[Any]) -> AbstractAsyncContextManager[Any]:
        self._fail("making complete", attempt)
        return self._failing("complete", attempt)

    @asynccontextmanager
    async def _failing(self, phase: str, attempt: Any) -> AsyncGenerator[None]:
        self._fail(f"before {phase}", attempt)
        yield
        self._fail(f"after {phase}", attempt)

    def _fail(self, where: str, attempt: Any) -> None:
        if self.where == where and attempt.number == 1:
            raise self.error


POINTS = [
    "before handler", "after handler", "making complete",
    "before prepare", "after prepare", "before complete", "after complete",
]  # fmt: skip


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit("no")], ids=["RuntimeError", "SystemExit"])
@pytest.mark.parametrize("where", POINTS)
async def test_an_error_of_middleware_fails_the_attempt_and_undoes_it(
    setting: Setting, plain: bool, where: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = Handlers[Any](middleware=[Failing(where, error)])
    register(handlers, plain, lambda attempt, where: "done")
    async with working(setting, [Task], handlers) as client:
        chain = await begin(client, Task())
        assert await output(client, chain) == "done"
        record = await job(client, chain)
        ((_, seen),) = failures(caplog, chain.id)
        assert (record.attempt_number, type(seen)) == (2, type(error))
        assert await ledger(client) == ["prepared", "completed"]


class Swallowing(Middleware):
    """Takes errors for results, and hides those of phases."""

    async def wrap_handler(self, attempt: Any, call_next: Call) -> Any:
        try:
            return await call_next()
        except Exception as error:
            return f"instead of {error}"

    def wrap_complete(self, attempt: Any, tx: Transaction[Any]) -> AbstractAsyncContextManager[Any]:
        return self._swallowing()

    @asynccontextmanager
    async def _swallowing(self) -> AsyncGenerator[None]:
        try:
            yield
        except Exception:
            return


async def test_middleware_may_answer_for_a_failed_handler_but_not_for_a_failed_phase(
    setting: Setting, plain: bool
) -> None:
    def body(attempt: Any, where: str) -> str:
        if where == attempt.job.number * "complete" or (where, attempt.job.number) == ("end", 0):
            raise RuntimeError(f"the error in {where}")
        return "done"

    handlers = Handlers[Any](middleware=[Swallowing()])

    if plain:

        @handlers.handles(Task, max_attempts=1)
        def in_thread(attempt: SyncAttempt[Task]) -> str:
            if attempt.job.number:
                with attempt.complete():
                    body(attempt, "complete")
            return body(attempt, "end")
    else:

        @handlers.handles(Task, max_attempts=1)
        async def handler(attempt: Attempt[Task]) -> str:
            if attempt.job.number:
                async with attempt.complete():
                    body(attempt, "complete")
            return body(attempt, "end")

    async with working(setting, [Task], handlers) as client:
        assert await outcome(client, Task(number=0)) == "instead of the error in end"
        assert (await failed(client, Task(number=1)))["message"] == "the error in complete"


class Replacing(Middleware):
    async def wrap_handler(self, attempt: Any, call_next: Call) -> Any:
        result = await call_next()
        return object() if attempt.job.number else f"{result}, replaced"


async def test_what_the_outermost_layer_returns_is_the_result(setting: Setting, plain: bool) -> None:
    handlers = Handlers[Any](middleware=[Replacing()])
    register(handlers, plain, lambda attempt, where: "done", max_attempts=1)
    async with working(setting, [Task], handlers) as client:
        assert await outcome(client, Task()) == "done, replaced"
        assert (await failed(client, Task(number=1)))["code"] == "INVALID_OUTPUT"
        assert await ledger(client) == ["prepared", "completed"]


class Twice(Middleware):
    """Calls a handler again when it has failed, or even if it has not."""

    async def wrap_handler(self, attempt: Any, call_next: Call) -> Any:
        try:
            first = await call_next()
        except RuntimeError:
            first = "failed"
        return f"{first}, {await call_next()}"


async def test_a_handler_without_phases_may_be_called_twice(setting: Setting, plain: bool) -> None:
    handlers, calls = Handlers[Any](middleware=[Twice()]), list[int]()

    def body() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError
        return "done"

    if plain:

        @handlers.handles(Task)
        def in_thread(attempt: SyncAttempt[Task]) -> str:
            return body()
    else:

        @handlers.handles(Task)
        async def handler(attempt: Attempt[Task]) -> str:
            return body()

    async with working(setting, [Task], handlers) as client:
        assert await outcome(client, Task()) == "failed, done"
        assert await outcome(client, Task()) == "done, done"


async def test_a_handler_with_phases_may_not(setting: Setting, plain: bool) -> None:
    handlers = Handlers[Any](middleware=[Twice()])
    register(handlers, plain, lambda attempt, where: "done", max_attempts=1)
    async with working(setting, [Task], handlers) as client:
        assert (await failed(client, Task()))["type"] == "PhaseError"
        assert await ledger(client) == []


class NotCalling(Middleware):
    async def wrap_handler(self, attempt: Any, call_next: Call) -> Any:
        return "answered by middleware"


async def test_middleware_may_answer_without_the_handler(setting: Setting, plain: bool) -> None:
    handlers = Handlers[Any](middleware=[NotCalling()])
    register(handlers, plain, lambda attempt, where: "never", max_attempts=1)
    async with working(setting, [Task], handlers) as client:
        assert await outcome(client, Task()) == "answered by middleware"
        assert await ledger(client) == []
