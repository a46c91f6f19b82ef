"""Span trees, exactly: names, kinds, parents, links and errors."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from opentelemetry import trace
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import SOON, patiently
from tests.behaviour.working import begin
from tests.observability.otel import Telemetry
from tests.support.jobs import JOBS, After, Charge, Close, Greet, Rate, Receipt, Report, Reserve, Send

from queuert import Attempt, Client, Handlers, JobError, Observer, SyncAttempt, Worker
from queuert.features.observing.otel.tracing import read, written

handlers: Handlers[Any] = Handlers()


@handlers.handles(Greet)
async def greet(attempt: Attempt[Greet, Any]) -> str:
    return "Hello"


@handlers.handles(Reserve)
async def reserve(attempt: Attempt[Reserve, Any]) -> Charge:
    async with attempt.prepare():
        pass
    async with attempt.complete():
        return Charge(order_id=1, amount=1)  # type: ignore[arg-type]


@handlers.handles(Charge)
def charge(attempt: SyncAttempt[Charge, Any]) -> Send:
    with attempt.prepare("atomic"):
        pass
    with attempt.complete():
        return Send(order_id=1, payment_id="p")


@handlers.handles(Send)
async def send(attempt: Attempt[Send, Any]) -> Receipt:
    async with attempt.complete() as tx:
        await attempt.client.start(tx, Greet())
        return Receipt("p")


@handlers.handles(Rate)
async def rate(attempt: Attempt[Rate, Any]) -> float:
    return 1.0


@handlers.handles(After)
async def after(attempt: Attempt[After, Any]) -> None:
    return None


@handlers.handles(Close)
async def close(attempt: Attempt[Close, Any]) -> int:
    return 1


@handlers.handles(Report)
async def report(attempt: Attempt[Report, Any]) -> int:
    return 1


async def drained(client: Client[Any], registry: Handlers[Any] = handlers) -> None:
    await patiently(Worker(client, registry, backoff=SOON, poll_interval=0.02).drain())


def tree(text: str) -> str:
    return dedent(text).strip()


async def test_a_linear_chain(setting: Setting, telemetry: Telemetry) -> None:
    """Jobs are children of their chain and link to the one they continue. What a handler starts is in its attempt."""
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        chain = await begin(client, Reserve(order_id=1))
        await drained(client)

    assert telemetry.tree() == tree("""
        PRODUCER create chain reserve
          PRODUCER create job reserve
            CONSUMER attempt reserve
              INTERNAL prepare
              INTERNAL complete
          PRODUCER create job charge → create job reserve
            CONSUMER attempt charge
              INTERNAL prepare
              INTERNAL complete
          PRODUCER create job send → create job charge
            CONSUMER attempt send
              INTERNAL complete
                PRODUCER create chain greet
                  PRODUCER create job greet
                    CONSUMER attempt greet
                  CONSUMER complete chain greet
          CONSUMER complete chain reserve
    """)
    job = telemetry.span("attempt charge").attributes
    assert job is not None
    assert (
        dict(job).items()
        >= {
            "messaging.system": "queuert",
            "messaging.destination.name": "charge",
            "messaging.operation.type": "process",
            "messaging.message.conversation_id": chain.id,
            "queuert.chain.type": "reserve",
            "queuert.attempt.number": 1,
            "queuert.attempt.outcome": "completed",
        }.items()
    )
    first = telemetry.span("create job reserve").attributes
    assert first is not None
    assert (first["messaging.message.id"], first["messaging.operation.type"]) == (chain.id, "create")
    assert len({span.context.trace_id for span in telemetry.spans if span.context}) == 1


async def test_a_chain_joins_the_trace_it_is_started_in(setting: Setting, telemetry: Telemetry) -> None:
    tracer = telemetry.tracers.get_tracer("shop")
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        with tracer.start_as_current_span("request"):
            await begin(client, Greet())
        await drained(client)

    assert telemetry.tree() == tree("""
        INTERNAL request
          PRODUCER create chain greet
            PRODUCER create job greet
              CONSUMER attempt greet
            CONSUMER complete chain greet
    """)


async def test_branches(setting: Setting, telemetry: Telemetry) -> None:
    """Two chains that one transaction starts stand side by side."""
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        async with client.transaction() as tx:
            await client.start_many(tx, [Greet(), Rate()])
        await drained(client)

    assert telemetry.tree() == tree("""
        PRODUCER create chain greet
          PRODUCER create job greet
            CONSUMER attempt greet
          CONSUMER complete chain greet
        PRODUCER create chain rate
          PRODUCER create job rate
            CONSUMER attempt rate
          CONSUMER complete chain rate
    """)


async def test_fan_in(setting: Setting, telemetry: Telemetry) -> None:
    """A job awaits each of its blockers, with a link to that chain; when all are there, each is resolved."""
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        async with client.transaction() as tx:
            order = await client.start(tx, Reserve(order_id=1))
            rates = await client.start_many(tx, [Rate()])
            await client.start(tx, Close(day="today", order=order, rates=rates))
            async with client.take_over(tx, order, Reserve) as current:
                await current.settle(Receipt("p"))
        await drained(client)

    assert telemetry.tree() == tree("""
        PRODUCER create chain reserve
          PRODUCER create job reserve
            CONSUMER complete job reserve
          CONSUMER complete chain reserve
        PRODUCER create chain rate
          PRODUCER create job rate
            CONSUMER attempt rate
          CONSUMER complete chain rate
        PRODUCER create chain close
          PRODUCER create job close
            PRODUCER await blocker reserve → create chain reserve
              CONSUMER resolve blocker reserve
            PRODUCER await blocker rate → create chain rate
              CONSUMER resolve blocker rate → create chain rate
            CONSUMER attempt close
          CONSUMER complete chain close
    """)


async def test_a_blocker_of_the_same_call(setting: Setting, telemetry: Telemetry) -> None:
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client, client.transaction() as tx:
        greeting = await client.start(tx, Greet())
        await client.start(tx, After(greeting=greeting))
    assert "PRODUCER await blocker greet → create chain greet" in telemetry.tree()


async def test_dependents_that_are_freed_later(setting: Setting, telemetry: Telemetry) -> None:
    """Not with the completion, but in a step after it: their spans are the same."""
    registry: Handlers[Any] = Handlers()

    @registry.handles(Greet)
    async def greet(attempt: Attempt[Greet, Any]) -> str:
        return "Hello"

    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        client.sessions.storage.operations.unblocked_at_once = 1
        async with client.transaction() as tx:
            greeting = await client.start(tx, Greet())
            await client.start_many(tx, [After(greeting=greeting) for _ in range(4)])
        await drained(client, registry)
    assert telemetry.tree().count("CONSUMER resolve blocker greet → create chain greet") == 4


async def test_retries_link_to_the_trace(setting: Setting, telemetry: Telemetry) -> None:
    registry: Handlers[Any] = Handlers()

    @registry.handles(Greet, max_attempts=3)
    async def second_time_lucky(attempt: Attempt[Greet, Any]) -> str:
        async with attempt.complete():
            if attempt.number < 2:
                raise JobError("BAD_GREETING", "no")
            return "Hello"

    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        chain = await begin(client, Greet())
        async with Worker(client, registry, backoff=SOON, poll_interval=0.02):
            await client.wait(chain, timeout=45)

    assert telemetry.tree() == tree("""
        PRODUCER create chain greet
          PRODUCER create job greet
            CONSUMER attempt greet !JobError
              INTERNAL complete !JobError
          CONSUMER complete chain greet
        CONSUMER attempt greet → create job greet
          INTERNAL complete
    """)


async def test_a_chain_that_fails(setting: Setting, telemetry: Telemetry) -> None:
    registry: Handlers[Any] = Handlers()

    @registry.handles(Greet, max_attempts=1)
    async def fail(attempt: Attempt[Greet, Any]) -> str:
        raise JobError("BAD_GREETING", "no")

    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        await begin(client, Greet())
        await drained(client, registry)

    assert telemetry.tree() == tree("""
        PRODUCER create chain greet
          PRODUCER create job greet
            CONSUMER attempt greet !JobError
          CONSUMER complete chain greet !BAD_GREETING
    """)
    ended = telemetry.span("complete chain greet").attributes
    assert ended is not None
    assert ended["queuert.chain.status"] == "failed"


async def test_completion_without_a_worker(setting: Setting, telemetry: Telemetry) -> None:
    """Its own span, in the chain's trace, with a link to where it was done."""
    tracer = telemetry.tracers.get_tracer("shop")
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        chain = await begin(client, Reserve(order_id=1))
        with tracer.start_as_current_span("approval"):
            async with client.transaction() as tx, client.take_over(tx, chain) as current:
                await current.settle(Charge(order_id=1, amount=1))  # type: ignore[arg-type]
                await current.settle(Send(order_id=1, payment_id="p"))
        await drained(client)

    assert telemetry.tree() == tree("""
        PRODUCER create chain reserve
          PRODUCER create job reserve
            CONSUMER complete job reserve → approval
          PRODUCER create job charge → create job reserve
            CONSUMER complete job charge → approval
          PRODUCER create job send → create job charge
            CONSUMER attempt send
              INTERNAL complete
                PRODUCER create chain greet
                  PRODUCER create job greet
                    CONSUMER attempt greet
                  CONSUMER complete chain greet
          CONSUMER complete chain reserve
        INTERNAL approval
    """)


async def test_deletion(setting: Setting, telemetry: Telemetry) -> None:
    tracer = telemetry.tracers.get_tracer("shop")
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        chain = await begin(client, Greet())
        with tracer.start_as_current_span("clean up"):
            async with client.transaction() as tx:
                await client.delete(tx, chain)

    assert telemetry.tree() == tree("""
        PRODUCER create chain greet
          PRODUCER create job greet
          INTERNAL delete chain greet → clean up
        INTERNAL clean up
    """)


async def test_cancellation(setting: Setting, telemetry: Telemetry) -> None:
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        chain = await begin(client, Greet())
        async with client.transaction() as tx:
            await client.cancel(tx, chain)
    ended = telemetry.span("complete chain greet").attributes
    assert ended is not None
    assert ended["queuert.chain.status"] == "cancelled"


async def test_a_rollback_leaves_no_span(setting: Setting, telemetry: Telemetry) -> None:
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as tx:
                chain = await client.start(tx, Greet())
                await client.start(tx, After(greeting=chain))
                await client.cancel(tx, chain)
                raise ZeroDivisionError
        async with client.transaction() as tx:
            await client.start(tx, Rate())
            with pytest.raises(ZeroDivisionError):
                async with client.savepoint(tx):
                    await client.start(tx, Greet())
                    raise ZeroDivisionError

    assert telemetry.tree() == "PRODUCER create chain rate\n  PRODUCER create job rate"


async def test_a_deduplicated_start(setting: Setting, telemetry: Telemetry) -> None:
    """It has its span, which names the chain that was found and links to it; no job was stored, and has no span."""
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        chain = await begin(client, Greet(), dedup="one")
        async with client.transaction() as tx:
            await client.start_many(tx, [Greet().set(dedup="one"), Greet().set(dedup="two"), Greet().set(dedup="two")])

    assert telemetry.tree() == tree("""
        PRODUCER create chain greet
          PRODUCER create job greet
        PRODUCER create chain greet → create chain greet
        PRODUCER create chain greet
          PRODUCER create job greet
        PRODUCER create chain greet → create chain greet
    """)
    one, two = [span.attributes for span in telemetry.spans if span.links]
    assert one is not None
    assert two is not None
    assert (one["queuert.chain.deduplicated"], two["queuert.chain.deduplicated"]) == (True, True)
    assert (
        one["messaging.message.id"]
        == one["messaging.message.conversation_id"]
        == chain.id
        != two["messaging.message.id"]
    )
    for span in telemetry.spans:
        assert span.links or "queuert.chain.deduplicated" not in (span.attributes or {})


async def test_a_deduplicated_start_that_is_rolled_back(setting: Setting, telemetry: Telemetry) -> None:
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        await begin(client, Greet(), dedup="one")
        telemetry.exporter.clear()
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as tx:
                await client.start(tx, Greet(), dedup="one")
                raise ZeroDivisionError

    assert telemetry.tree() == ""


async def test_a_blocker_that_had_completed_before(setting: Setting, telemetry: Telemetry) -> None:
    """The job never waits; its blocker is resolved as others are. This is true for a continuation, too."""
    registry: Handlers[Any] = Handlers()

    @registry.handles(Close)
    async def close(attempt: Attempt[Close, Any]) -> Report:
        return Report(day="today", rate=attempt.job.rates[0])

    @registry.handles(Report)
    async def report(attempt: Attempt[Report, Any]) -> int:
        return 1

    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        async with client.transaction() as tx:
            order, (rate,) = await client.start(tx, Reserve(order_id=1)), await client.start_many(tx, [Rate()])
            async with client.take_over(tx, order, Reserve) as current:
                await current.settle(Receipt("p"))
            async with client.take_over(tx, rate, Rate) as other:
                await other.settle(1.0)
        async with client.transaction() as tx:
            await client.start(tx, Close(day="today", order=order, rates=[rate]))
        await drained(client, registry)

    _, _, rest = telemetry.tree().partition("PRODUCER create chain close\n")
    assert "PRODUCER create chain close\n" + rest == tree("""
        PRODUCER create chain close
          PRODUCER create job close
            PRODUCER await blocker reserve → create chain reserve
              CONSUMER resolve blocker reserve → create chain reserve
            PRODUCER await blocker rate → create chain rate
              CONSUMER resolve blocker rate → create chain rate
            CONSUMER attempt close
          PRODUCER create job report → create job close
            PRODUCER await blocker rate → create chain rate
              CONSUMER resolve blocker rate → create chain rate
            CONSUMER attempt report
          CONSUMER complete chain close
    """)


async def test_what_a_handler_traces_is_inside_its_attempt(setting: Setting, telemetry: Telemetry) -> None:
    tracer, registry = telemetry.tracers.get_tracer("shop"), Handlers[Any]()

    @registry.handles(Reserve)
    async def in_task(attempt: Attempt[Reserve, Any]) -> Charge:
        with tracer.start_as_current_span("look"):
            pass
        async with attempt.complete():
            with tracer.start_as_current_span("write"):
                pass
            return Charge(order_id=1, amount=1)  # type: ignore[arg-type]

    @registry.handles(Charge)
    def in_thread(attempt: SyncAttempt[Charge, Any]) -> Send:
        with attempt.complete(), tracer.start_as_current_span("write in thread"):
            return Send(order_id=1, payment_id="p")

    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        await begin(client, Reserve(order_id=1))
        await drained(client, registry)
        assert not trace.get_current_span().get_span_context().is_valid

    assert telemetry.tree() == tree("""
        PRODUCER create chain reserve
          PRODUCER create job reserve
            CONSUMER attempt reserve
              INTERNAL look
              INTERNAL complete
                INTERNAL write
          PRODUCER create job charge → create job reserve
            CONSUMER attempt charge
              INTERNAL complete
                INTERNAL write in thread
          PRODUCER create job send → create job charge
    """)


async def test_chains_from_before_tracing_have_roots_of_their_own(setting: Setting, telemetry: Telemetry) -> None:
    async with setting.connect(JOBS) as untraced:
        await begin(untraced, Reserve(order_id=1))
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        await drained(client)

    assert [line for line in telemetry.tree().splitlines() if line[0] != " "] == [
        "CONSUMER attempt reserve",
        "PRODUCER create job charge",
        "PRODUCER create job send → create job charge",
        "CONSUMER complete chain reserve",
    ]


class BrokenTracer:
    def __getattr__(self, name: str) -> Any:
        def fail(*args: Any, **facts: Any) -> None:
            raise RuntimeError(f"{name} is broken")

        return fail


async def test_a_tracer_that_fails_disturbs_nobody(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Observer):
        tracer: Any = BrokenTracer()

    async with setting.connect(JOBS, observers=[Broken()]) as client:
        chain = await begin(client, Reserve(order_id=1))
        waiting = await begin(client, Greet())
        async with client.transaction() as tx:
            await client.start(tx, After(greeting=waiting))
        await drained(client)
        assert await client.wait(chain) == Receipt("p")

    failed = [record.__dict__["event_name"] for record in caplog.records if record.name == "queuert.observers"]
    assert len(failed) == len(set(failed))
    assert {"start_creation", "start_attempt", "start_phase", "end_chain"} <= set(failed)


def test_contexts_are_stored_as_w3c_has_them() -> None:
    stored = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for text in (stored, f"{stored} vendor=value,other=2"):
        assert written(trace.get_current_span(read(text))) == text
    assert written(trace.INVALID_SPAN) is None
    for nonsense in ("", "nonsense", "00-0-0-00"):
        assert written(trace.get_current_span(read(nonsense))) is None
