"""Which ticks fire, and how a schedule goes on: the rules of overlap, catch-up, pauses and clocks, alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from queuert import After, Cron, Every
from queuert.base.times import MICROSECOND
from queuert.features.schedules.planning import (
    FIRED_AT_ONCE,
    LOOK_AGAIN,
    MOST_FAILING,
    RETRY,
    Chains,
    ReadSchedule,
    Work,
    counted_anew,
    failed,
    plan,
    resumed,
    stopped,
)
from queuert.features.schedules.stored import Definition, State, encode, state_of
from queuert.records.schedules import ScheduleRow, chain_id, read_chain_id

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
HOURLY = Every(HOUR)


def made(times: Any = HOURLY, at: datetime = NOON, state: dict[str, Any] | None = None, **options: Any) -> ScheduleRow:
    """A schedule that was made at this time."""
    values: dict[str, Any] = {"created_at": at, "horizon": at, **(state or {})}
    known = State(**values)
    definition = Definition(times=times.to_data(), type="step", **options)
    row = ScheduleRow(name="s", incarnation=7, version=1, definition=encode(definition), state=encode(known))
    return counted_anew(row, known, times, at)


def look(row: ScheduleRow, at: datetime, chains: Chains | None = None) -> Work:
    return plan(ReadSchedule(row), at, chains or {})


def step(row: ScheduleRow, at: datetime, chains: Chains | None = None) -> tuple[list[datetime], ScheduleRow]:
    """Fire what is due, as a worker does: the ticks, and the row afterwards."""
    work = look(row, at, chains)
    after = work.done([[work.chain_id(fire, 0)] for fire in work.fires])
    return [fire.tick.at for fire in work.fires], replace(after, version=row.version + 1)


def last(row: ScheduleRow) -> tuple[str, ...]:
    return state_of(row).last_chains


def open_chains(row: ScheduleRow) -> dict[str, datetime | None]:
    return dict.fromkeys(last(row))


def test_a_tick_fires_when_it_is_due_and_once() -> None:
    row = made(at=NOON + MINUTE)
    assert (row.next_at, row.due_at) == (NOON + HOUR, NOON + HOUR)
    assert step(row, NOON + 59 * MINUTE)[0] == []
    fired, row = step(row, NOON + HOUR)
    assert fired == [NOON + HOUR]
    assert (row.next_at, row.due_at) == (NOON + 2 * HOUR, NOON + 2 * HOUR)
    assert step(row, NOON + HOUR)[0] == []
    assert last(row) == (chain_id(7, NOON + HOUR, 0),)


def test_jitter_moves_the_firing_and_not_the_tick() -> None:
    times = Every(HOUR, jitter=30 * MINUTE)
    row = made(times)
    assert row.next_at == NOON + HOUR
    assert row.due_at is not None
    assert NOON + HOUR < row.due_at < NOON + HOUR + 30 * MINUTE
    assert step(row, row.due_at - SECOND)[0] == []
    fired, row = step(row, row.due_at)
    assert fired == [NOON + HOUR]
    assert row.next_at == NOON + 2 * HOUR


@pytest.mark.parametrize(
    ("options", "fires"),
    [
        ({"catch_up": "none"}, []),
        ({"catch_up": "last"}, [5]),
        ({"catch_up": "last", "within": 1800.0}, [5]),
        ({"catch_up": "last", "within": 1799.0}, []),
        ({"catch_up": "all"}, [1, 2, 3, 4, 5]),
        ({"catch_up": "all", "catch_up_max": 2}, [4, 5]),
        ({"catch_up": "all", "within": 2.5 * 3600}, [3, 4, 5]),
    ],
)
def test_what_is_caught_up_with(options: dict[str, Any], fires: list[int]) -> None:
    """Half past five, after an outage since noon. Whatever fires, the next tick is at six."""
    fired, row = step(made(**options), NOON + 5.5 * HOUR)
    assert fired == [NOON + number * HOUR for number in fires]
    assert row.next_at == NOON + 6 * HOUR
    assert step(row, NOON + 5.75 * HOUR)[0] == []


def test_without_catching_up_a_tick_may_be_a_minute_late() -> None:
    row = made(catch_up="none")
    assert step(row, NOON + HOUR + MINUTE)[0] == [NOON + HOUR]
    assert step(row, NOON + HOUR + MINUTE + SECOND)[0] == []


def test_many_missed_ticks_fire_in_parts_and_none_is_lost() -> None:
    row, fired, parts = made(Every(MINUTE), catch_up="all", catch_up_max=1000), list[datetime](), 0
    now = NOON + 130 * MINUTE
    while row.due_at is not None and row.due_at <= now:
        some, row = step(row, now)
        assert len(some) <= FIRED_AT_ONCE
        fired += some
        parts += 1
    assert fired == [NOON + number * MINUTE for number in range(1, 131)]
    assert parts == 3


def test_years_of_missed_ticks_cost_nothing() -> None:
    fired, row = step(made(Cron("* * * * *")), NOON + timedelta(days=10 * 365))
    assert len(fired) == 1
    assert row.next_at == fired[0] + MINUTE


@pytest.mark.parametrize("catch_up", ["last", "all"])
def test_a_clock_that_jumps_by_an_hour(catch_up: str) -> None:
    """Forwards, ticks fire early; back again, none of them is repeated; with "all", none is lost."""
    row, fired, now = made(Every(10 * MINUTE), catch_up=catch_up), list[datetime](), NOON
    for passed in [*range(0, 60, 5), 120, 125, *range(65, 200, 5)]:
        now = NOON + passed * MINUTE
        some, row = step(row, now)
        fired += some
    assert len(set(fired)) == len(fired)
    assert fired == sorted(fired)
    wanted = [NOON + number * 10 * MINUTE for number in range(1, 20)]
    if catch_up == "all":
        assert fired == wanted
    else:
        assert [each for each in fired if each <= NOON + HOUR or each > NOON + 2 * HOUR] == [
            each for each in wanted if each <= NOON + HOUR - MINUTE or each > NOON + 2 * HOUR
        ]


# Overlap


def test_overlap_is_allowed() -> None:
    _, row = step(made(), NOON + HOUR)
    assert step(row, NOON + 2 * HOUR, open_chains(row))[0] == [NOON + 2 * HOUR]


def test_overlap_skip() -> None:
    _, row = step(made(overlap="skip"), NOON + HOUR)
    work = look(row, NOON + 2 * HOUR, open_chains(row))
    assert [tick.at for tick in work.skipped] == [NOON + 2 * HOUR]
    fired, skipped = step(row, NOON + 2 * HOUR, open_chains(row))
    assert fired == []
    assert (state_of(skipped).skips, state_of(skipped).skipped_at) == (1, NOON + 2 * HOUR)
    assert last(skipped) == last(row)
    ended = dict.fromkeys(last(row), NOON)
    assert step(skipped, NOON + 3 * HOUR, ended)[0] == [NOON + 3 * HOUR]
    assert step(skipped, NOON + 3 * HOUR, {})[0] == [NOON + 3 * HOUR], "one that is deleted has ended"


def test_of_several_missed_ticks_that_must_not_overlap_the_first_fires() -> None:
    row = made(overlap="skip", catch_up="all")
    work = look(row, NOON + 3 * HOUR)
    assert [fire.tick.at for fire in work.fires] == [NOON + HOUR]
    assert [tick.at for tick in work.skipped] == [NOON + 2 * HOUR, NOON + 3 * HOUR]


def test_overlap_queue_keeps_one() -> None:
    _, row = step(made(overlap="queue"), NOON + HOUR)
    running = open_chains(row)
    fired, row = step(row, NOON + 2 * HOUR, running)
    assert (fired, state_of(row).queued) == ([], NOON + 2 * HOUR)
    assert row.due_at == NOON + 2 * HOUR + LOOK_AGAIN[0]
    fired, row = step(row, NOON + 3 * HOUR, running)
    assert (fired, state_of(row).queued, state_of(row).skips) == ([], NOON + 2 * HOUR, 1)
    fired, row = step(row, NOON + 3.5 * HOUR, dict.fromkeys(running, NOON))
    assert fired == [NOON + 2 * HOUR]
    assert (state_of(row).queued, state_of(row).waiting_since) == (None, None)
    assert (row.next_at, row.due_at) == (NOON + 4 * HOUR, NOON + 4 * HOUR)


def test_overlap_queue_after_an_outage() -> None:
    row = made(overlap="queue", catch_up="all")
    fired, row = step(row, NOON + 3 * HOUR)
    state = state_of(row)
    assert (fired, state.queued, state.skips) == ([NOON + HOUR], NOON + 2 * HOUR, 1)
    assert state.waiting_since is not None


def test_overlap_cancel_is_recorded() -> None:
    _, row = step(made(overlap="cancel"), NOON + HOUR)
    before = last(row)
    fired, row = step(row, NOON + 2 * HOUR, open_chains(row))
    assert fired == [NOON + 2 * HOUR]
    assert state_of(row).cancelling == before
    assert row.due_at == NOON + 2 * HOUR, "it is looked at again at once"
    _, row = step(made(overlap="cancel"), NOON + HOUR)
    _, row = step(row, NOON + 2 * HOUR, dict.fromkeys(last(row), NOON))
    assert state_of(row).cancelling == ()


def test_of_several_missed_ticks_that_cancel_each_other_the_last_fires() -> None:
    assert step(made(overlap="cancel", catch_up="all"), NOON + 3 * HOUR)[0] == [NOON + 3 * HOUR]


# After


def test_after_counts_from_the_end_of_the_last_run() -> None:
    row = made(After(HOUR))
    assert row.due_at == NOON
    fired, row = step(row, NOON + SECOND)
    assert len(fired) == 1
    assert (row.next_at, row.due_at) == (None, NOON + SECOND + LOOK_AGAIN[0])
    fired, row = step(row, NOON + 6 * SECOND, open_chains(row))
    assert (fired, row.next_at) == ([], None)
    fired, row = step(row, NOON + 2 * HOUR, dict.fromkeys(last(row), NOON + 1.5 * HOUR))
    assert (fired, row.next_at, row.due_at) == ([], NOON + 2.5 * HOUR, NOON + 2.5 * HOUR)
    assert step(row, NOON + 2.5 * HOUR)[0] == [NOON + 2.5 * HOUR]


def test_after_goes_on_if_its_chain_was_deleted() -> None:
    _, row = step(made(After(HOUR)), NOON)
    fired, row = step(row, NOON + HOUR, {})
    assert (fired, row.next_at) == ([], NOON + 2 * HOUR)


def test_after_goes_on_if_its_function_made_nothing() -> None:
    work = look(made(After(HOUR)), NOON)
    row = work.done([[]])
    assert row.next_at == row.due_at == NOON + HOUR


def test_after_with_a_clock_that_is_set_back_has_no_tick_twice() -> None:
    fired, row = step(made(After(MINUTE)), NOON)
    _, row = step(row, NOON - HOUR, dict.fromkeys(last(row), NOON - HOUR))
    again, row = step(row, NOON - HOUR + MINUTE)
    assert len(again) == 1
    assert again[0] > fired[0]


def test_the_longer_it_waits_the_later_it_looks() -> None:
    _, row = step(made(After(MINUTE)), NOON)
    running = open_chains(row)
    _, row = step(row, NOON + 5 * MINUTE, running)
    assert row.due_at == NOON + 5.5 * MINUTE
    _, row = step(row, NOON + 5 * HOUR, running)
    assert row.due_at == NOON + 5 * HOUR + LOOK_AGAIN[1]


# Pauses, triggers, backfills, failures, ends


def test_a_pause_ends_by_itself_and_nothing_of_it_fires() -> None:
    until = NOON + 2.5 * HOUR
    row = made(state={"paused_at": NOON, "paused_until": until}, catch_up="all")
    fired, row = step(row, NOON + 2 * HOUR)
    assert (fired, row.due_at) == ([], until)
    fired, row = step(row, NOON + 3.5 * HOUR)
    assert fired == [NOON + 3 * HOUR]
    assert state_of(row).paused_at is None


def test_what_is_triggered_fires_also_in_a_pause() -> None:
    at = NOON + 17 * SECOND
    row = made(state={"paused_at": NOON, "triggers": (at,)})
    assert row.due_at == NOON
    work = look(row, NOON)
    assert [(fire.tick.at, fire.triggered) for fire in work.fires] == [(at, True)]
    row = work.done([["chain"]])
    assert (state_of(row).triggers, row.due_at, last(row)) == ((), None, ())


def test_a_backfill_fires_in_parts_and_leaves_the_ticks_alone() -> None:
    start = NOON - 60 * HOUR
    row = made(state={"backfills": ((start, NOON - HOUR),)})
    first, row = step(row, NOON)
    assert row.due_at == NOON
    second, row = step(row, NOON)
    assert first + second == [start + number * HOUR for number in range(59)]
    assert len(first) == FIRED_AT_ONCE
    assert (row.next_at, row.due_at, last(row)) == (NOON + HOUR, NOON + HOUR, ())


def test_failures_are_tried_again_later_each_time() -> None:
    row, delays = made(), list[timedelta]()
    for _ in range(9):
        row = failed(row, state_of(row), NOON + HOUR, "ValueError: no")
        assert row.due_at is not None
        delays.append(row.due_at - NOON - HOUR)
    assert delays[:3] == [RETRY[0], 2 * RETRY[0], 4 * RETRY[0]]
    assert delays[-1] == RETRY[1]
    assert (state_of(row).errors, state_of(row).error) == (9, "ValueError: no")
    fired, row = step(row, NOON + HOUR + MINUTE)
    assert fired == [NOON + HOUR]
    assert (state_of(row).errors, state_of(row).error) == (0, None)


def fail(row: ScheduleRow, at: datetime, *bad: datetime) -> tuple[list[datetime], ScheduleRow]:
    """Fire what is due, but for these ticks, for which the function fails."""
    work = look(row, at)
    errors = {place: "ValueError: no" for place, fire in enumerate(work.fires) if fire.tick.at in bad}
    after = work.done([[] if place in errors else ["chain"] for place in range(len(work.fires))], errors)
    fired = [fire.tick.at for place, fire in enumerate(work.fires) if place not in errors]
    return fired, replace(after, version=row.version + 1)


def test_a_tick_of_a_backfill_that_fails_waits_alone() -> None:
    bad, other = NOON - 3 * HOUR, NOON - 2 * HOUR
    row = made(state={"backfills": ((bad, NOON - 1.5 * HOUR),)})
    fired, row = fail(row, NOON, bad)
    assert (fired, row.due_at) == ([other], NOON + RETRY[0])
    (failing,) = state_of(row).failing
    assert (failing.at, failing.error, failing.errors, failing.retry_at) == (bad, "ValueError: no", 1, row.due_at)
    row = replace(row, state=encode(replace(state_of(row), triggers=(NOON + SECOND,))))
    fired, row = fail(row, NOON + SECOND, bad)
    assert (fired, row.due_at) == ([NOON + SECOND], NOON + RETRY[0]), "what is triggered does not wait for it"
    fired, row = fail(row, NOON + HOUR, bad)
    assert (fired, row.due_at) == ([NOON + HOUR], NOON + HOUR + 2 * RETRY[0]), "and ordinary ticks do not"
    assert state_of(row).failing[0].errors == 2
    fired, row = fail(row, NOON + HOUR + MINUTE)
    assert (fired, row.due_at) == ([bad], NOON + 2 * HOUR)
    assert (state_of(row).failing, state_of(row).backfills) == ((), ())


def test_an_ordinary_tick_that_fails_keeps_nothing_else_from_firing() -> None:
    row = made(state={"backfills": ((NOON - HOUR, NOON),), "triggers": (NOON,)})
    fired, row = fail(row, NOON + HOUR, NOON + HOUR)
    assert fired == [NOON, NOON - HOUR]
    assert (row.next_at, row.due_at) == (NOON + HOUR, NOON + HOUR + RETRY[0])
    assert (state_of(row).errors, state_of(row).error, state_of(row).failing) == (1, "ValueError: no", ())
    fired, row = fail(row, NOON + HOUR + MINUTE)
    assert (fired, state_of(row).errors) == ([NOON + HOUR], 0)


def test_ticks_that_all_fire_fail_each_for_itself() -> None:
    """Ordinary ones too, if none is left out and the order does not matter."""
    row, bad = made(catch_up="all"), NOON + 2 * HOUR
    fired, row = fail(row, NOON + 3 * HOUR, bad)
    assert (fired, row.next_at) == ([NOON + HOUR, NOON + 3 * HOUR], NOON + 4 * HOUR)
    assert [each.at for each in state_of(row).failing] == [bad]
    assert state_of(row).last_tick == NOON + 3 * HOUR
    fired, row = fail(row, NOON + 3 * HOUR + MINUTE)
    assert (fired, state_of(row).failing, state_of(row).last_tick) == ([bad], (), NOON + 3 * HOUR)
    row = made(catch_up="all", overlap="queue")
    fired, row = fail(row, NOON + 3 * HOUR, NOON + HOUR)
    assert (fired, row.next_at, state_of(row).errors) == ([], NOON + HOUR, 1), "here the order matters"


def test_a_function_that_fails_for_all_ticks_is_not_called_for_all() -> None:
    start = NOON - 200 * HOUR
    row, calls = made(state={"backfills": ((start, NOON),)}), 0
    for _ in range(10):
        bad = {fire.tick.at for fire in look(row, NOON).fires}
        calls += len(bad)
        _, row = fail(row, NOON, *bad)
    assert calls == len(state_of(row).failing) == MOST_FAILING
    assert row.due_at == NOON + RETRY[0]
    fired, row = fail(row, NOON + MINUTE)
    assert len(fired) == FIRED_AT_ONCE
    while (at := row.due_at) is not None and at <= NOON + MINUTE:
        more, row = fail(row, NOON + MINUTE)
        fired += more
    assert sorted(fired) == [start + number * HOUR for number in range(200)]


def test_what_is_left_when_a_function_has_failed() -> None:
    """A worker calls it no more in this look."""
    row = made(state={"triggers": (NOON,), "backfills": ((NOON - 3 * HOUR, NOON),)})
    work = look(row, NOON + HOUR)
    assert len(work.fires) == 5
    first = work.cut(2, 1)
    assert [fire.tick.at for fire in first.fires] == [NOON, NOON - 3 * HOUR, NOON + HOUR]
    row = first.done([[], [], []])
    assert (state_of(row).backfills, row.due_at) == (((NOON - 3 * HOUR + MICROSECOND, NOON),), NOON + HOUR)
    alone = work.alone()
    assert [fire.tick.at for fire in alone.fires] == [NOON]
    row = alone.done([[]])
    assert (row.next_at, row.due_at) == (NOON + HOUR, NOON + HOUR), "the others are looked at again"


# What was due before a pause


@pytest.mark.parametrize("by_itself", [True, False])
def test_what_was_due_before_a_pause_fires_after_it(by_itself: bool) -> None:
    """No worker ran. Ticks from 13:00 on; paused at 15:30, until 18:00 and a bit."""
    begin, end = NOON + 3.5 * HOUR, NOON + 6 * HOUR + MINUTE
    row = made(catch_up="all")
    state = replace(state_of(row), paused_at=begin, paused_until=end if by_itself else None)
    row = stopped(row, state, begin)
    assert step(row, NOON + 4 * HOUR)[0] == []
    if not by_itself:
        row = counted_anew(row, resumed(state, HOURLY, end, "s"), HOURLY, end)
        assert (row.next_at, row.due_at) == (NOON + HOUR, NOON + HOUR)
    fired, row = step(row, NOON + 8 * HOUR)
    assert [(at - NOON) // HOUR for at in fired] == [1, 2, 3, 7, 8]
    assert (state_of(row).gaps, row.next_at) == ((), NOON + 9 * HOUR)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [3]),
        ({"catch_up": "none"}, []),
        ({"catch_up": "all", "catch_up_max": 2}, [2, 3]),
        ({"overlap": "skip", "catch_up": "all"}, [1]),
    ],
)
def test_the_rules_count_for_what_was_due_before_a_pause(options: dict[str, Any], expected: list[int]) -> None:
    row = made(**options)
    state = replace(state_of(row), paused_at=NOON + 3.5 * HOUR)
    at = NOON + 5.5 * HOUR
    row = counted_anew(row, resumed(state, HOURLY, at, "s"), HOURLY, at)
    fired, row = step(row, at)
    assert [(each - NOON) // HOUR for each in fired] == expected
    assert row.next_at == NOON + 6 * HOUR


def test_two_pauses_after_each_other() -> None:
    """And a tick that is late by its jitter, so that it was due in the pause, does not fire."""
    times = Every(HOUR, jitter=30 * MINUTE)
    row = made(times, catch_up="all")
    jitter = look(row, NOON + 2 * HOUR).fires[0].tick.jitter
    assert jitter > SECOND
    for begin, end in (
        (NOON + 2 * HOUR + jitter / 2, NOON + 3.5 * HOUR),
        (NOON + 4 * HOUR + jitter, NOON + 5.5 * HOUR),
    ):
        state = replace(state_of(row), paused_at=begin)
        row = counted_anew(row, resumed(state, times, end, "s"), times, end)
    first, row = step(row, NOON + 8 * HOUR)
    assert [(at - NOON) // HOUR for at in first] == [1, 4, 6, 7]


def test_a_schedule_that_has_ended() -> None:
    row = made(Every(HOUR, end=NOON + 1.5 * HOUR))
    fired, row = step(row, NOON + 5 * HOUR)
    assert (fired, row.next_at, row.due_at) == ([NOON + HOUR], None, None)


@pytest.mark.parametrize("triggered", [False, True])
def test_an_id_says_which_schedule_and_which_tick(triggered: bool) -> None:
    at = NOON + timedelta(milliseconds=123)
    text = chain_id(2**60 - 1, at, 999, triggered=triggered)
    assert text[14] == "8"
    assert read_chain_id(text) == (2**60 - 1, at, 999, triggered)
    assert read_chain_id("0190a5b0-0000-7000-8000-000000000000") is None
    assert read_chain_id("no uuid") is None
    assert read_chain_id("ffffffff-ffff-8000-8000-000000000000") is None, "its time would be after the year 9999"


def test_ids_are_sorted_by_time() -> None:
    ids = [chain_id(number, NOON + number * SECOND, 0) for number in range(20)]
    assert ids == sorted(ids)
