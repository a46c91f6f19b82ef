"""Several observers, one that raises, and none at all."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import SOON, patiently
from tests.behaviour.working import begin
from tests.observability.recorder import Recorder
from tests.support.jobs import JOBS, Greet

import queuert
from queuert import Attempt, Handlers, InvalidArgument, Observer, Worker
from queuert.engine.events import observations, observers, watched
from queuert.worker.attempts import observed

handlers: Handlers[Any] = Handlers()


@handlers.handles(Greet)
async def greet(attempt: Attempt[Greet, Any]) -> str:
    return "Hello"


class Broken(Observer):
    def __init__(self) -> None:
        self.calls = 0

    def job_created(self, **_: Any) -> None:
        self.calls += 1
        raise ValueError("cannot count")

    def attempt_started(self, **_: Any) -> None:
        raise (ValueError if self.calls % 2 else KeyError)("cannot count")


class Partial(Observer):
    def __init__(self) -> None:
        self.created: list[str] = []

    def chain_created(self, *, chain_id: str, **_: Any) -> None:
        self.created.append(chain_id)


async def test_everybody_is_told_and_one_that_raises_is_logged_once_per_kind(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    broken, before, after, partial = Broken(), Recorder(), Recorder(), Partial()
    async with setting.connect(JOBS, observers=[before, broken, after, partial]) as client:
        chains = [await begin(client, Greet(who=str(number))) for number in range(3)]
        await patiently(Worker(client, handlers, backoff=SOON, poll_interval=0.02).drain())
        assert [await client.wait(chain) for chain in chains] == ["Hello"] * 3

    assert broken.calls == 3
    assert before.told == after.told
    assert len(after.of("attempt_completed")) == 3
    assert partial.created == [chain.id for chain in chains]
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.name for record in errors] == ["queuert.observers"] * 2
    assert [record.__dict__["event_name"] for record in errors] == ["job_created", "attempt_started"]
    assert {record.__dict__["observer"] for record in errors} == {"Broken"}


async def test_the_sync_client_tells_too(sqlite: Setting, recorder: Recorder) -> None:
    with queuert.connect_sync(sqlite.url, jobs=JOBS, observers=[recorder]) as client:
        with client.transaction() as tx:
            chain = client.start(tx, Greet())
        assert recorder.names() == ["chain_created", "job_created"]
        with client.transaction() as tx, client.take_over(tx, chain, Greet) as current:
            current.settle("Hello")

    assert recorder.names()[2:] == ["job_completed", "chain_completed"]


@pytest.mark.parametrize("wrong", [[object()], Observer(), ["logging"]])
def test_what_is_no_observer_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"list of queuert\.Observer"):
        queuert.connect("memory://", jobs=JOBS, observers=wrong)


async def test_with_no_observer_none_of_this_is_called(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every function of the modules that tell observers is made to fail."""

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("called, with nobody to tell")

    async with setting.connect(JOBS) as client:
        for module in (observations, observed, watched, observers):
            for owner in [each for each in vars(module).values() if isinstance(each, type)]:
                if owner.__module__ == module.__name__:
                    for name in [name for name, value in vars(owner).items() if callable(value)]:
                        monkeypatch.setattr(owner, name, fail)
        chain = await begin(client, Greet())
        async with Worker(client, handlers):
            assert await client.wait(chain, timeout=45) == "Hello"
        async with client.transaction() as tx:
            await client.delete(tx, chain)


def test_opentelemetry_is_imported_only_when_it_is_used() -> None:
    script = "import sys, queuert, queuert.logging; print('opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "False\n"
