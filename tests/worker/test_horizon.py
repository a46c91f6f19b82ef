"""Which of the jobs that are claimed ahead may begin, without a database."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from queuert.worker.policy import horizon
from queuert.worker.policy.horizon import LEAST, LOW, MOST, MOST_PER_SLOT, ClaimedAhead, Ordinals


class Stage:
    """What the jobs wait for. Each move is stored when the test says so."""

    def __init__(self, slots: int = 1) -> None:
        self.ordinals = Ordinals()
        self.moves: list[int] = []
        self.answers: asyncio.Queue[bool | Exception] = asyncio.Queue()
        self.tasks: list[asyncio.Task[None]] = []
        self.moved = 0
        self.claims: list[Any] = []
        self.ahead = ClaimedAhead(self.ordinals, slots, self._store, self._spawn, self._on_moved)

    async def _store(self, ordinal: int) -> bool:
        self.moves.append(ordinal)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def _on_moved(self) -> None:
        self.moved += 1

    def claim(self, number: int, at_once: int = 0) -> None:
        first = self.ordinals.take(number)
        for place in range(number):
            ordinal = None if place < at_once else first + place
            claim: Any = SimpleNamespace(claimed=SimpleNamespace(ordinal=ordinal), claimed_at=0.0, is_lost=False)
            self.claims.append(claim)
            self.ahead.add(claim)
        self.ahead.look_ahead()

    def begin(self, most: int = 10**6) -> int:
        """How many begin, up to this number."""
        begun = 0
        while begun < most and self.ahead.next() is not None:
            begun += 1
        self.ahead.look_ahead()
        return begun

    async def answer(self, answer: bool | Exception = True) -> None:
        self.answers.put_nowait(answer)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_what_begins_at_once_needs_no_move() -> None:
    stage = Stage()
    stage.claim(5, at_once=5)
    assert stage.begin() == 5
    assert not stage.tasks


async def test_nothing_begins_before_the_move_is_stored() -> None:
    stage = Stage()
    stage.claim(100, at_once=LEAST // LOW)
    await asyncio.sleep(0)
    assert stage.moves == [LEAST]
    assert stage.begin() == LEAST // LOW
    assert stage.ordinals.horizon == 0
    await stage.answer()
    assert (stage.ordinals.horizon, stage.moved) == (LEAST, 1)
    assert stage.begin() == LEAST - LEAST // LOW


async def test_a_move_is_sent_before_the_last_covered_one_begins() -> None:
    stage = Stage()
    stage.claim(100, at_once=LEAST)
    before = LEAST - LEAST // LOW - 1
    assert stage.begin(before) == before
    assert not stage.tasks
    assert stage.begin(1) == 1
    await asyncio.sleep(0)
    assert LEAST < stage.moves[0] <= LEAST + MOST
    assert stage.begin(1) == 1
    await stage.answer()
    assert stage.begin(LEAST) == LEAST


@pytest.mark.parametrize("slots", [1, 10, 100])
async def test_never_more_than_the_limit(slots: int) -> None:
    """The number of bystanders, however quickly handlers begin."""
    stage = Stage(slots)
    stage.claim(10_000)
    most = 0
    while len(stage.ahead.claims) > 1000:
        await stage.answer()
        covered = stage.begin()
        most = max(most, covered)
    assert most == MOST + MOST_PER_SLOT * max(0, slots - 10)


async def test_a_move_that_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(horizon, "RETRY_AFTER", 0)
    stage = Stage()
    stage.claim(20)
    await stage.answer(ConnectionResetError("no database"))
    await stage.answer(False)
    assert (stage.begin(), stage.ordinals.horizon) == (0, 0)
    await stage.answer()
    assert stage.begin() > 0
    assert len([record for record in caplog.records if "trying again" in record.getMessage()]) == 1


async def test_when_all_are_given_up_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horizon, "RETRY_AFTER", 0)
    stage = Stage()
    stage.claim(20)
    await asyncio.sleep(0)
    assert len(stage.ahead.give_up()) == 20
    await stage.answer(False)
    assert [task.done() for task in stage.tasks] == [True]
    for claim in stage.claims:
        stage.ahead.has_left(claim)
    stage.claim(20)
    await stage.answer()
    assert stage.moves[-1] > 20


async def test_no_move_past_what_was_given_back() -> None:
    """Until that is stored: if the worker is killed before, these jobs must be above the horizon."""
    stage = Stage()
    stage.claim(LEAST + 2, at_once=LEAST)
    given = stage.ahead.give_up()
    stage.claim(20)
    for claim in given:
        await asyncio.sleep(0)
        assert not stage.moves
        stage.ahead.has_left(claim)
    await asyncio.sleep(0)
    assert stage.moves == [LEAST + 2 + LEAST]
    await stage.answer()
    assert stage.begin() == LEAST


async def test_what_could_have_begun_is_not_waited_for() -> None:
    """Its attempt counts anyway."""
    stage = Stage()
    stage.claim(LEAST, at_once=LEAST)
    stage.ahead.give_up()
    stage.claim(20)
    await asyncio.sleep(0)
    assert stage.moves == [2 * LEAST]
    await stage.answer()


async def test_no_move_for_what_is_lost() -> None:
    """It does not begin: it is only taken out."""
    stage = Stage()
    stage.claim(LEAST + 3, at_once=LEAST)
    for claim in stage.claims[LEAST : LEAST + 2]:
        claim.is_lost = True
    assert stage.begin() == LEAST + 2
    await asyncio.sleep(0)
    assert stage.moves == [LEAST + 3]
    await stage.answer()


async def test_ordinals_are_never_used_twice() -> None:
    ordinals = Ordinals()
    assert [ordinals.take(10), ordinals.take(1), ordinals.take(5)] == [1, 11, 12]


@pytest.mark.parametrize(("waiting", "free", "expected"), [(0, 0, LEAST), (0, 20, 20), (3, 0, LEAST - 3), (100, 5, 0)])
async def test_how_many_need_no_ordinal(waiting: int, free: int, expected: int) -> None:
    stage = Stage()
    stage.claim(waiting)
    assert stage.ahead.at_once(free) == expected
    await asyncio.sleep(0)
    for task in stage.tasks:
        task.cancel()
