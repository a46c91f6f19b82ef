"""Jobs that wait for chains: they run when all of them are complete, and not before."""

from __future__ import annotations

from typing import Any

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.counting import counted
from tests.behaviour.steps import Gate, eventually, job
from tests.behaviour.working import begin, failure, output, working

from queuert import Attempt, Chain, ChainNotCompleted, EntryJob, Handlers, Job, SyncAttempt

pytestmark = pytest.mark.channels


class Part(EntryJob[int, "Part"], name="part"):
    number: int
    more: int = 0


class Sum(EntryJob[int], name="sum"):
    parts: list[Chain[Part]]


class Pair(EntryJob[int, "Total"], name="pair"):
    left: Chain[Part]
    right: Chain[Part]


class Total(Job[int], name="total"):
    base: int
    parts: list[Chain[Part]]
    first: Chain[Part]


class Outer(EntryJob[int], name="outer"):
    sums: list[Chain[Sum]]


class Either(EntryJob[int], name="either"):
    one: Chain[Part] | Chain[Word]
    many: list[Chain[Part] | Chain[Word]]


class Word(EntryJob[str], name="word"):
    text: str


JOBS = [Part, Sum, Pair, Outer]


def arithmetic(handlers: Handlers[Any]) -> list[tuple[str, int]]:
    """Handlers for all of them; what ran is listed."""
    ran: list[tuple[str, int]] = []

    @handlers.handles(Part)
    async def part(attempt: Attempt[Part]) -> Part | int:
        job = attempt.job
        ran.append(("part", job.number))
        return Part(number=job.number, more=job.more - 1) if job.more else job.number

    @handlers.handles(Sum)
    async def summing(attempt: Attempt[Sum]) -> int:
        total = sum(part.output for part in attempt.job.parts)
        ran.append(("sum", total))
        return total

    @handlers.handles(Outer)
    def outer(attempt: SyncAttempt[Outer]) -> int:
        return sum(each.output for each in attempt.job.sums)

    @handlers.handles(Total)
    async def total(attempt: Attempt[Total]) -> int:
        job = attempt.job
        return job.base + job.first.output + sum(part.output for part in job.parts)

    return ran


async def test_blockers_of_several_types(setting: Setting) -> None:
    handlers, seen = Handlers[Any](), list[Any]()
    arithmetic(handlers)

    @handlers.handles(Word)
    async def word(attempt: Attempt[Word]) -> str:
        return attempt.job.text

    @handlers.handles(Either)
    async def either(attempt: Attempt[Either]) -> int:
        job = attempt.job
        seen.extend((chain.chain_type, chain.output) for chain in (job.one, *job.many))
        return len(seen)

    async with working(setting, [*JOBS, Either], handlers, concurrency=3) as client:
        async with client.transaction() as tx:
            word_chain = await client.start(tx, Word(text="a"))
            part_chain = await client.start(tx, Part(number=1, more=1))
            chain = await client.start(tx, Either(one=word_chain, many=[part_chain, word_chain]))
        assert await output(client, chain) == 3
        assert seen == [("word", "a"), ("part", 1), ("word", "a")]
        record = await client.get_job(chain.id, Either)
        assert record is not None
        assert (record.job.one, record.job.many) == (word_chain, [part_chain, word_chain])
        assert record.job.one.chain_type == "word"


async def test_fan_in_of_fifty(setting: Setting) -> None:
    handlers = Handlers[Any]()
    ran = arithmetic(handlers)
    async with working(setting, JOBS, handlers, concurrency=7) as client:
        async with client.transaction() as tx:
            parts = await client.start_many(tx, [Part(number=number, more=number % 2) for number in range(50)])
            chain = await client.start(tx, Sum(parts=parts))
            assert chain.status == "blocked"
        assert await output(client, chain) == sum(range(50))
        assert [each for each in ran if each[0] == "sum"] == [("sum", sum(range(50)))]
        assert ran[-1][0] == "sum"


async def test_fan_out_one_chain_frees_all_that_wait_for_it(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Part)
    async def part(attempt: Attempt[Part]) -> int:
        await gate()
        return attempt.job.number

    @handlers.handles(Sum)
    async def summing(attempt: Attempt[Sum]) -> int:
        return sum(part.output for part in attempt.job.parts)

    async with working(setting, JOBS, handlers, concurrency=3) as client:
        async with client.transaction() as tx:
            one = await client.start(tx, Part(number=21))
            waiting = await client.start_many(tx, [Sum(parts=[one]) for _ in range(20)])
        await gate.arrival()
        assert {(await job(client, chain)).status for chain in waiting} == {"blocked"}
        gate.open()
        assert [await output(client, chain) for chain in waiting] == [21] * 20


async def test_chains_that_wait_for_chains_that_wait(setting: Setting) -> None:
    handlers = Handlers[Any]()
    arithmetic(handlers)
    async with working(setting, JOBS, handlers, concurrency=4) as client:
        async with client.transaction() as tx:
            sums: list[Chain[Sum]] = []
            for row in range(4):
                parts = await client.start_many(tx, [Part(number=10 * row + each, more=1) for each in range(4)])
                sums.append(await client.start(tx, Sum(parts=parts)))
            chain = await client.start(tx, Outer(sums=sums))
        assert await output(client, chain) == sum(10 * row + each for row in range(4) for each in range(4))


async def test_a_blocker_that_is_complete_already_does_not_block(setting: Setting) -> None:
    handlers = Handlers[Any]()
    arithmetic(handlers)
    async with working(setting, JOBS, handlers) as client:
        part = await begin(client, Part(number=5))
        await output(client, part)
        chain = await begin(client, Sum(parts=[part, part]))
        assert chain.status == "pending"
        assert await output(client, chain) == 10


async def test_no_blockers_at_all(setting: Setting) -> None:
    handlers = Handlers[Any]()
    arithmetic(handlers)
    async with working(setting, JOBS, handlers) as client:
        assert await output(client, await begin(client, Sum(parts=[]))) == 0


async def test_a_continuation_may_wait_for_chains_started_in_complete(setting: Setting) -> None:
    handlers = Handlers[Any]()
    arithmetic(handlers)

    @handlers.handles(Pair)
    async def pair(attempt: Attempt[Pair]) -> Total:
        job = attempt.job
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "paired")
            parts = await attempt.client.start_many(tx, [Part(number=number, more=2) for number in range(10)])
            return Total(base=job.left.output * job.right.output, parts=parts, first=job.left)

    async with working(setting, JOBS, handlers, concurrency=3) as client:
        async with client.transaction() as tx:
            left, right = await client.start_many(tx, [Part(number=6), Part(number=7)])
            chain = await client.start(tx, Pair(left=left, right=right))
        assert await output(client, chain) == 42 + 6 + 45
        assert await ledger(client) == ["paired"]


async def test_a_failed_blocker_leaves_its_dependents_blocked_until_it_is_retried(setting: Setting) -> None:
    handlers, healthy = Handlers[Any](), list[bool]()

    @handlers.handles(Part, max_attempts=1)
    async def part(attempt: Attempt[Part]) -> int:
        if not healthy:
            raise RuntimeError("not today")
        return attempt.job.number

    @handlers.handles(Sum)
    async def summing(attempt: Attempt[Sum]) -> int:
        return sum(part.output for part in attempt.job.parts)

    async with working(setting, JOBS, handlers) as client:
        async with client.transaction() as tx:
            one = await client.start(tx, Part(number=3))
            chain = await client.start(tx, Sum(parts=[one]))
        assert (await failure(client, one))["message"] == "not today"
        assert (await job(client, chain)).status == "blocked"
        blockers = await client.get_blockers(chain.id)
        assert blockers is not None
        (blocker,) = blockers
        assert (blocker.id, blocker.status) == (one.id, "failed")
        with pytest.raises(ChainNotCompleted):
            _ = blocker.output
        healthy.append(True)
        async with client.transaction() as tx:
            await client.retry(tx, one)
        assert await output(client, chain) == 3


async def test_cancelling_with_cascade_cancels_those_that_wait(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()
    ran = arithmetic(Handlers[Any]())

    @handlers.handles(Part)
    async def part(attempt: Attempt[Part]) -> int:
        await gate()
        return attempt.job.number

    @handlers.handles(Sum)
    async def summing(attempt: Attempt[Sum]) -> int:
        ran.append(("sum", 0))
        return 0

    async with working(setting, JOBS, handlers) as client:
        async with client.transaction() as tx:
            one = await client.start(tx, Part(number=1))
            middle = await client.start(tx, Sum(parts=[one]))
            last = await client.start(tx, Outer(sums=[middle]))
        await gate.arrival()
        async with client.transaction() as tx:
            cancelled = await client.cancel(tx, one, cascade=True)
        assert {chain.id for chain in cancelled} == {one.id, middle.id, last.id}
        gate.open()
        await eventually(lambda: _none_running(client))
        assert [(await job(client, chain)).status for chain in (one, middle, last)] == ["cancelled"] * 3
        assert ran == []


async def test_a_cascade_costs_the_same_however_many_wait(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements, BEGIN and COMMIT included: for one chain, and for 200 on three levels."""
    client, statements = counted(setting, JOBS, monkeypatch)

    async def cancel(chain: Chain[Any]) -> tuple[int, int]:
        before = statements.number
        async with client.transaction() as tx:
            cancelled = await client.cancel(tx, chain, cascade=True)
        return len(cancelled), statements.number - before

    async with client:
        async with client.transaction() as tx:
            alone = await client.start(tx, Part(number=1))
            one = await client.start(tx, Part(number=1))
            middle = [await client.start(tx, Sum(parts=[one])) for _ in range(99)]
            await client.start_many(tx, [Outer(sums=[each]) for each in [*middle, middle[0]]])
        first = await cancel(alone)
        assert await cancel(one) == (200, first[1])
        if setting.state != "sqlite":
            assert first == (1, 3)  # BEGIN, the cancellation, COMMIT


async def _none_running(client: Any) -> bool:
    return not (await client.list_jobs(status="running")).items


async def test_a_blocked_job_runs_at_its_time_and_not_before_its_blockers(setting: Setting) -> None:
    handlers = Handlers[Any]()
    ran = arithmetic(handlers)
    async with working(setting, JOBS, handlers) as client:
        async with client.transaction() as tx:
            one = await client.start(tx, Part(number=1, more=5))
            chain = await client.start(tx, Sum(parts=[one]).set(priority=-5, after=0.05))
        assert await output(client, chain) == 1
        assert [name for name, _ in ran] == ["part"] * 6 + ["sum"]
