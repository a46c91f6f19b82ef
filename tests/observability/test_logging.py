"""Log records: what is said, at which level, with which extras, and which job a handler's own records belong to."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import SOON, patiently
from tests.behaviour.working import begin
from tests.support.jobs import JOBS, Greet

from queuert import Attempt, Chain, Client, Handlers, JobError, SyncAttempt, Worker
from queuert.base import failure_log
from queuert.features.observing.logging import MESSAGES, EventLog, JobContext, add_job_context, job_context
from queuert.ports.observer import EVENTS

log = logging.getLogger("shop")


async def drained(client: Client[Any], handlers: Handlers[Any]) -> str:
    worker = Worker(client, handlers, backoff=SOON, poll_interval=0.02)
    await patiently(worker.drain())
    return worker.id


def registry(function: Any, **options: Any) -> Handlers[Any]:
    handlers: Handlers[Any] = Handlers()
    handlers.handles(Greet, **options)(function)
    return handlers


async def hello(attempt: Attempt[Greet, Any]) -> str:
    await asyncio.sleep(0)
    log.info("greeting %s", attempt.job.who)
    return "Hello"


def hello_in_thread(attempt: SyncAttempt[Greet, Any]) -> str:
    log.info("greeting %s", attempt.job.who)
    return "Hello"


async def fail(attempt: Attempt[Greet, Any]) -> str:
    raise JobError("BAD_GREETING", "no")


def said(caplog: pytest.LogCaptureFixture, *loggers: str) -> list[tuple[str, str, str]]:
    return [
        (record.name, record.levelname, record.__dict__.get("event_name", ""))
        for record in caplog.records
        if record.name in loggers
    ]


async def test_events_of_a_chain(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "queuert")
    async with setting.connect(JOBS, observers=[EventLog()]) as client:
        chain = await begin(client, Greet())
        worker = await drained(client, registry(hello))

    assert said(caplog, "queuert.chain", "queuert.job", "queuert.attempt") == [
        ("queuert.chain", "INFO", "chain_created"),
        ("queuert.job", "DEBUG", "job_created"),
        ("queuert.attempt", "DEBUG", "attempt_started"),
        ("queuert.attempt", "DEBUG", "attempt_ended"),
        ("queuert.job", "DEBUG", "job_completed"),
        ("queuert.chain", "INFO", "chain_completed"),
        ("queuert.attempt", "DEBUG", "attempt_completed"),
    ]
    ended = next(record for record in caplog.records if record.__dict__.get("event_name") == "attempt_ended")
    assert ended.getMessage().startswith(f"attempt 1 of job {chain.id} (greet) ended after 0.")
    extras = ("job_id", "job_type", "chain_id", "attempt_number", "worker_id")
    assert [ended.__dict__[name] for name in extras] == [chain.id, "greet", chain.id, 1, worker]
    assert ended.__dict__["duration"] >= 0
    lives = [record.getMessage() for record in caplog.records if record.name == "queuert.worker"]
    assert lives == [f"worker {worker} {word}" for word in ("started", "stopping", "stopped")]


@pytest.mark.parametrize("observers", [[], [EventLog()]], ids=["plain", "observed"])
async def test_a_failing_job_is_a_warning_and_is_logged_once(
    setting: Setting, caplog: pytest.LogCaptureFixture, observers: list[EventLog]
) -> None:
    async with setting.connect(JOBS, observers=observers) as client:
        chain = await begin(client, Greet())
        worker = await drained(client, registry(fail, max_attempts=1))

    failures = [record for record in caplog.records if "attempt 1" in record.getMessage()]
    (record,) = failures
    assert (record.name, record.levelname) == ("queuert.worker", "WARNING")
    assert record.exc_info is not None
    assert record.exc_info[0] is JobError
    assert record.__dict__.items() >= {
        "job_id": chain.id, "job_type": "greet", "chain_id": chain.id, "attempt_number": 1, "worker_id": worker,
        "error_code": "BAD_GREETING",
    }.items()  # fmt: skip
    assert record.__dict__["duration"] > 0
    assert max(record.levelno for record in caplog.records) == logging.WARNING


async def test_a_fault_of_the_library_is_an_error(sqlite: Setting, caplog: pytest.LogCaptureFixture) -> None:
    async with sqlite.connect(JOBS, observers=[EventLog()]) as client:

        class Broken:
            async def __aenter__(self) -> None:
                raise OSError("no database")

        client.sessions.storage.provider._inner.transaction = Broken
        with pytest.raises(OSError, match="no database"):
            await begin(client, Greet())

    (record,) = [record for record in caplog.records if record.name == "queuert.state"]
    assert record.levelname == "ERROR"
    assert record.getMessage() == "the database failed in transaction: OSError: no database"


def test_every_event_is_logged_by_somebody() -> None:
    by_the_worker = {"attempt_failed", "job_reaped", "schedule_failed"} | {
        name for name in EVENTS if name.startswith("worker_")
    }
    assert set(MESSAGES) == set(EVENTS) - by_the_worker


def test_every_message_can_be_formatted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "queuert")
    facts = {
        **dict.fromkeys(("chain_id", "chain_type", "job_id", "job_type", "operation", "error_code"), "x"),
        **dict.fromkeys(("schedule", "tick", "limit", "limit_key"), "x"),
        "error_type": "E",
        "error_message": "m",
        "attempt_number": 1,
        "duration": 0.5,
        "closed_for": 0.5,
    }
    events = EventLog()
    for event in MESSAGES:
        getattr(events, event)(**facts)

    assert len([record.getMessage() for record in caplog.records]) == len(MESSAGES)
    assert not [message for record in caplog.records if "%" in (message := record.getMessage())]


# A handler's own records


class Json(logging.Formatter):
    """What JSON formatters do: the message, and whatever else the record has."""

    PLAIN = frozenset(logging.makeLogRecord({}).__dict__)

    def format(self, record: logging.LogRecord) -> str:
        extras = {name: value for name, value in record.__dict__.items() if name not in self.PLAIN}
        return json.dumps({"message": record.getMessage(), **extras})


@pytest.fixture
def lines() -> Iterator[Any]:
    """Lines that a handler with our filter writes, and a function to choose its formatter."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(JobContext())
    loggers = [logging.getLogger("queuert"), log]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)

    def read(formatter: logging.Formatter) -> Any:
        handler.setFormatter(formatter)
        return lambda: stream.getvalue().splitlines()

    yield read
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def context_of(chain: Chain[Any], worker: str) -> dict[str, Any]:
    return {"job_id": chain.id, "job_type": "greet", "chain_id": chain.id, "attempt_number": 1, "worker_id": worker}


@pytest.mark.parametrize("handler", [hello, hello_in_thread])
async def test_records_of_handlers_have_their_job_in_json(setting: Setting, lines: Any, handler: Any) -> None:
    read = lines(Json())
    async with setting.connect(JOBS, observers=[EventLog()]) as client:
        chain = await begin(client, Greet(who="you"))
        worker = await drained(client, registry(handler))
    log.info("after")

    records = [json.loads(line) for line in read()]
    assert next(each for each in records if each["message"] == "greeting you") == {
        "message": "greeting you",
        **context_of(chain, worker),
    }
    assert {name: records[-1][name] for name in context_of(chain, worker)} == dict.fromkeys(
        context_of(chain, worker)
    ), "outside of a job"
    completed = next(each for each in records if each.get("event_name") == "chain_completed")
    assert (completed["chain_id"], completed["job_id"]) == (chain.id, None)


async def test_records_of_handlers_in_a_format_string(sqlite: Setting, lines: Any) -> None:
    read = lines(logging.Formatter("%(job_type)s %(attempt_number)s %(message)s"))
    async with sqlite.connect(JOBS) as client:
        await begin(client, Greet(who="you"))
        await drained(client, registry(hello))

    assert "greet 1 greeting you" in read()
    assert any(line.startswith("None None worker") for line in read())


async def test_jobs_that_run_at_a_time_do_not_mix(sqlite: Setting) -> None:
    seen: dict[str, Any] = {}
    both = asyncio.Barrier(2)

    async def meet(attempt: Attempt[Greet, Any]) -> str:
        await both.wait()
        seen[attempt.job_id] = (await asyncio.create_task(context()), await asyncio.to_thread(job_context))
        return "Hello"

    async def context() -> dict[str, Any]:
        return job_context()

    async with sqlite.connect(JOBS) as client:
        chains = [await begin(client, Greet()) for _ in range(2)]
        worker = Worker(client, registry(meet), concurrency=2, poll_interval=0.02)
        await patiently(worker.drain())

    assert seen == {chain.id: (context_of(chain, worker.id),) * 2 for chain in chains}
    assert job_context() == {}


async def test_structlog_renders_our_records_and_knows_the_job(setting: Setting, lines: Any) -> None:
    shared: list[Any] = [structlog.stdlib.ExtraAdder(), add_job_context]
    render: list[Any] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.JSONRenderer(),
    ]
    read = lines(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=render))
    own = structlog.wrap_logger(
        log,
        processors=[add_job_context, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
    )

    async def structured(attempt: Attempt[Greet, Any]) -> str:
        await own.ainfo("greeting", who=attempt.job.who)
        return "Hello"

    async with setting.connect(JOBS, observers=[EventLog()]) as client:
        chain = await begin(client, Greet(who="you"))
        worker = await drained(client, registry(structured))

    records = [json.loads(line) for line in read()]
    greeting = next(each for each in records if each["event"] == "greeting")
    assert greeting == {"event": "greeting", "who": "you", **context_of(chain, worker)}
    ours = next(each for each in records if each["event"].startswith(f"attempt 1 of job {chain.id}"))
    assert ours.items() >= context_of(chain, worker).items()


def test_an_error_that_repeats_is_logged_once_with_a_count(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(failure_log, "monotonic", lambda: now[0])
    log = EventLog()
    for _ in range(500):
        log.notify_error(operation="job_scheduled", error_type="OSError", error_message="gone")
    log.notify_error(operation="chain_ended", error_type="OSError", error_message="gone")
    now[0] += failure_log.INTERVAL
    log.notify_error(operation="job_scheduled", error_type="OSError", error_message="gone")
    assert [(vars(record)["operation"], vars(record)["repeated"]) for record in caplog.records] == [
        ("job_scheduled", 0),
        ("chain_ended", 0),
        ("job_scheduled", 499),
    ]
    assert caplog.records[2].getMessage() == (
        "the notification channel failed in job_scheduled: OSError: gone (and 499 times more since the last report)"
    )
