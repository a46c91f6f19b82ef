"""`Cron`, `Every` and `After`: their ticks, and what they refuse."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from queuert import After, Cron, Every, InvalidArgument, InvalidSchedule, QueuertError, Tick
from queuert.features.schedules.times import Times, from_data

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)
MINUTES = timedelta(minutes=1)


def moments(ticks: list[Tick]) -> list[str]:
    return [tick.at.strftime("%m-%d %H:%M") for tick in ticks]


# ---- cron ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 3 * * *", ["11-18 03:00", "11-19 03:00"]),
        ("0 3 * * mon-fri", ["11-18 03:00", "11-19 03:00"]),
        ("0 3 * * MON", ["11-23 03:00", "11-30 03:00"]),
        ("0 3 * * 7", ["11-22 03:00", "11-29 03:00"]),
        ("0 3 1 jan,DEC *", ["12-01 03:00", "01-01 03:00"]),
        ("*/20 12 * * *", ["11-17 12:20", "11-17 12:40"]),
        ("10-30/10 * * * *", ["11-17 12:10", "11-17 12:20"]),
        ("0 0 L * *", ["11-30 00:00", "12-31 00:00"]),
        ("0 0 * * fri#2", ["12-11 00:00", "01-08 00:00"]),
        ("0 0 13 * fri", ["11-20 00:00", "11-27 00:00"]),
        ("0 0 29 2 *", ["02-29 00:00", "02-29 00:00"]),
        ("@hourly", ["11-17 13:00", "11-17 14:00"]),
        ("@daily", ["11-18 00:00", "11-19 00:00"]),
        ("@Midnight", ["11-18 00:00", "11-19 00:00"]),
        ("@weekly", ["11-22 00:00", "11-29 00:00"]),
        ("@monthly", ["12-01 00:00", "01-01 00:00"]),
        ("@yearly", ["01-01 00:00", "01-01 00:00"]),
        ("@annually", ["01-01 00:00", "01-01 00:00"]),
    ],
)
def test_cron_expressions(expression: str, expected: list[str]) -> None:
    assert moments(Cron(expression).ticks(NOON, 2)) == expected


def test_a_tick_has_the_moment_in_utc_and_in_the_zone() -> None:
    (tick,) = Cron("30 14 * * *", tz="Asia/Kolkata").ticks(after=NOON, count=1, name="report")

    assert tick.at == datetime(2026, 11, 18, 9, tzinfo=UTC)
    assert tick.at.tzinfo is UTC
    assert tick.local.isoformat() == "2026-11-18T14:30:00+05:30"
    assert tick.schedule == "report"
    assert tick.due == tick.at


def test_after_is_not_a_tick_but_anything_before_it_is() -> None:
    cron = Cron("0 12 * * *")
    at = [cron.next(NOON + timedelta(microseconds=offset)) for offset in (-1, 0, 1)]
    assert [tick.at.day for tick in at if tick] == [17, 18, 18]


def test_after_may_be_in_any_zone() -> None:
    cron = Cron("0 3 * * *", tz="America/New_York")
    elsewhere = NOON.astimezone(timezone(timedelta(hours=9)))
    assert cron.next(elsewhere) == cron.next(NOON)


def test_spaces_do_not_make_another_schedule() -> None:
    assert Cron("  0  3 * *\t* ") == Cron("0 3 * * *")
    assert hash(Cron("0 3 * * *")) == hash(Cron("0 3 * * *"))
    assert Cron("0 3 * * *") != Cron("0 3 * * *", tz="Europe/Berlin")


# The examples of the documentation, by name: test_daylight_saving.py has all others.


def test_a_skipped_time_fires_at_the_first_minute_after_it() -> None:
    ticks = Cron("30 2 * * *", tz="America/New_York").ticks(datetime(2026, 3, 7, tzinfo=UTC), 3)
    assert [tick.local.isoformat() for tick in ticks] == [
        "2026-03-07T02:30:00-05:00",
        "2026-03-08T03:00:00-04:00",
        "2026-03-09T02:30:00-04:00",
    ]


def test_several_skipped_times_are_one_tick() -> None:
    ticks = Cron("0,30 2,3 * * *", tz="America/New_York").ticks(datetime(2026, 3, 8, tzinfo=UTC), 2)
    assert [tick.local.isoformat() for tick in ticks] == ["2026-03-08T03:00:00-04:00", "2026-03-08T03:30:00-04:00"]


def test_a_repeated_time_fires_the_first_time() -> None:
    ticks = Cron("30 1 * * *", tz="America/New_York").ticks(datetime(2026, 11, 1, tzinfo=UTC), 2)
    assert [tick.local.isoformat() for tick in ticks] == ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"]


def test_after_the_second_pass_of_a_repeated_hour_nothing_is_in_the_past() -> None:
    within = datetime(2026, 11, 1, 6, 10, tzinfo=UTC)
    tick = Cron("50 1 * * *", tz="America/New_York").next(within)
    assert tick is not None
    assert tick.local.isoformat() == "2026-11-02T01:50:00-05:00"


def test_a_star_in_the_hour_follows_real_time() -> None:
    cron = Cron("0 * * * *", tz="America/New_York")
    repeated = cron.ticks(datetime(2026, 11, 1, 4, 30, tzinfo=UTC), 3)
    skipped = cron.ticks(datetime(2026, 3, 8, 5, 30, tzinfo=UTC), 3)
    assert [tick.local.strftime("%H:%M %z") for tick in repeated] == ["01:00 -0400", "01:00 -0500", "02:00 -0500"]
    assert [tick.local.strftime("%H:%M %z") for tick in skipped] == ["01:00 -0500", "03:00 -0400", "04:00 -0400"]


def test_clocks_that_change_by_half_an_hour() -> None:
    """On Lord Howe Island, clocks go from 02:00 back to 01:30."""
    ticks = Cron("40 * * * *", tz="Australia/Lord_Howe").ticks(datetime(2026, 4, 4, 14, 0, tzinfo=UTC), 3)
    assert [tick.local.strftime("%H:%M %z") for tick in ticks] == ["01:40 +1100", "01:40 +1030", "02:40 +1030"]


# ---- every and after -------------------------------------------------------------------------------------------------


def test_every_has_the_same_ticks_whenever_it_is_asked() -> None:
    every = Every(7 * MINUTES)
    all_of_them = [tick.at for tick in every.ticks(NOON, 10)]
    assert all_of_them[0] == datetime(2026, 11, 17, 12, 4, tzinfo=UTC)
    for second in range(0, 900, 13):
        after = NOON + timedelta(seconds=second)
        assert every.ticks(after, 1)[0].at == next(at for at in all_of_them if at > after)


def test_every_is_anchored_to_its_start() -> None:
    every = Every(timedelta(hours=5), start=NOON, tz="Europe/Berlin")
    ticks = every.ticks(datetime(2020, 1, 1, tzinfo=UTC), 3)
    assert moments(ticks) == ["11-17 12:00", "11-17 17:00", "11-17 22:00"]
    assert ticks[0].local.isoformat() == "2026-11-17T13:00:00+01:00"


def test_every_works_before_1970() -> None:
    assert (
        Every(timedelta(days=1))
        .ticks(datetime(1950, 5, 5, 12, tzinfo=UTC), 1)[0]
        .at.isoformat()
        .startswith("1950-05-06T00:00:00")
    )


def test_after_counts_from_the_end_of_the_last_run() -> None:
    tick = After(5 * MINUTES).next(NOON, name="sync")
    assert tick == Tick(NOON + 5 * MINUTES, NOON + 5 * MINUTES, "sync")


def test_after_waits_for_its_start_and_stops_at_its_end() -> None:
    after = After(5 * MINUTES, start=NOON, end=NOON + 10 * MINUTES)
    ends = [NOON - 60 * MINUTES, NOON, NOON + 4 * MINUTES, NOON + 5 * MINUTES]
    ticks = [after.next(end) for end in ends]
    assert [tick.at.minute if tick else None for tick in ticks] == [0, 5, 9, None]


def test_the_ticks_of_after_are_not_known() -> None:
    with pytest.raises(InvalidArgument, match="not known in advance"):
        After(MINUTES).ticks(NOON, 3)


# ---- start, end, jitter, looking back --------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [Cron("0 * * * *"), Every(timedelta(hours=1))], ids=str)
def test_start_is_a_tick_and_end_is_not(times: Cron | Every) -> None:
    bounded = from_data({**times.to_data(), "start": NOON.isoformat(), "end": "2026-11-17T15:00:00+00:00"})
    assert not isinstance(bounded, After)
    assert moments(bounded.ticks(NOON - timedelta(days=9), 9)) == ["11-17 12:00", "11-17 13:00", "11-17 14:00"]
    assert bounded.next(datetime(2026, 11, 17, 14, tzinfo=UTC)) is None


def test_jitter_is_decided_by_the_name_and_moves_due_only() -> None:
    cron = Cron("0 * * * *", jitter=10 * MINUTES)
    one, two = cron.ticks(NOON, 2, name="a")
    assert one.at == NOON + 60 * MINUTES
    assert one.due - one.at == two.due - two.at
    assert cron.next(NOON, name="a") == one
    delays = [tick.due - tick.at for number in range(200) if (tick := cron.next(NOON, name=f"tenant-{number}"))]
    assert all(timedelta() <= delay < 10 * MINUTES for delay in delays)
    assert len(set(delays)) > 190
    assert min(delays) < MINUTES
    assert max(delays) > 9 * MINUTES


def test_jitter_is_the_same_in_every_version() -> None:
    tick = Every(timedelta(hours=1), jitter=timedelta(hours=1)).next(NOON, name="nightly")
    assert tick is not None
    assert tick.jitter == timedelta(seconds=593.887)


@pytest.mark.parametrize(
    "times", [Cron("*/7 * * * *", tz="Europe/Berlin"), Cron("0 3 * * mon"), Every(timedelta(seconds=90))], ids=str
)
@pytest.mark.parametrize("count", [1, 2, 50])
def test_looking_back(times: Cron | Every, count: int) -> None:
    after = NOON - timedelta(days=15)
    found = times.last_ticks(NOON, count, after=after)

    assert len(found) == (min(count, 2) if "mon" in str(times) else count)
    assert found == times.ticks(found[0].at - timedelta(microseconds=1), len(found))
    following = times.next(found[-1].at)
    assert following is not None
    assert found[-1].at <= NOON < following.at


def test_looking_back_counts_the_tick_of_the_moment_itself_but_not_of_the_other_end() -> None:
    hourly = Cron("@hourly")
    assert moments(hourly.last_ticks(NOON, 9, after=NOON - timedelta(hours=2))) == ["11-17 11:00", "11-17 12:00"]
    assert hourly.last_ticks(NOON, 9, after=NOON) == []
    assert hourly.last_ticks(NOON, 9, after=NOON + MINUTES) == []


def test_looking_back_over_a_long_outage_reads_few_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    original = Every.next

    def counted(self: Every, after: datetime, *, name: str = "") -> Tick | None:
        nonlocal read
        read += 1
        return original(self, after, name=name)

    monkeypatch.setattr(Every, "next", counted)
    (last,) = Every(timedelta(seconds=10)).last_ticks(NOON, 1, after=datetime(2000, 1, 1, tzinfo=UTC))
    assert last.at == NOON
    assert read < 20


def test_ticks_end_with_the_calendar() -> None:
    after = datetime(9990, 6, 1, tzinfo=UTC)
    assert len(Cron("0 0 1 1 *", tz="Asia/Tokyo").ticks(after, 1000)) == 9
    assert len(Every(timedelta(days=4000)).ticks(after, 1000)) < 3
    assert After(timedelta(days=999_999_999)).next(after) is None


# ---- the stored form -------------------------------------------------------------------------------------------------

STORED: list[tuple[Times, dict[str, Any], str]] = [
    (Cron("0 3 * * *"), {"kind": "cron", "expression": "0 3 * * *"}, "0 3 * * *"),
    (
        Cron("@daily", tz="Europe/Berlin", jitter=90 * MINUTES, start=NOON, end=datetime(2027, 1, 1, tzinfo=UTC)),
        {
            "kind": "cron",
            "start": "2026-11-17T12:00:00+00:00",
            "end": "2027-01-01T00:00:00+00:00",
            "tz": "Europe/Berlin",
            "jitter": 5400.0,
            "expression": "@daily",
        },
        "@daily Europe/Berlin from 2026-11-17T12:00:00+00:00 until 2027-01-01T00:00:00+00:00 with jitter 1:30:00",
    ),
    (Every(5 * MINUTES), {"kind": "every", "interval": 300.0}, "every 0:05:00"),
    (Every(timedelta(microseconds=1_000_001)), {"kind": "every", "interval": 1.000001}, "every 0:00:01.000001"),
    (After(5 * MINUTES), {"kind": "after", "delay": 300.0}, "0:05:00 after the last run"),
]


@pytest.mark.parametrize(("times", "data", "text"), STORED, ids=[text for _, _, text in STORED])
def test_stored_form(times: Times, data: dict[str, Any], text: str) -> None:
    assert times.to_data() == data
    assert from_data(json.loads(json.dumps(times.to_data()))) == times
    assert str(times) == text


def test_moments_are_stored_in_utc() -> None:
    start = datetime(2026, 11, 17, 13, tzinfo=ZoneInfo("Europe/Berlin"))
    assert Cron("@daily", start=start) == Cron("@daily", start=NOON)
    assert Cron("@daily", start=start).to_data()["start"] == "2026-11-17T12:00:00+00:00"


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"kind": "moon"},
        {"kind": "cron"},
        {"kind": "cron", "expression": None},
        {"kind": "cron", "expression": "0 0 30 2 *"},
        {"kind": "cron", "expression": "@daily", "tz": "Mars/Olympus"},
        {"kind": "cron", "expression": "@daily", "color": "red"},
        {"kind": "cron", "expression": "@daily", "start": "yesterday"},
        {"kind": "every", "interval": "x"},
        {"kind": "every", "interval": 0},
        {"kind": "every", "interval": 1e300},
        {"kind": "every", "interval": "nan"},
        {"kind": "after"},
    ],
    ids=str,
)
def test_a_stored_form_that_cannot_be_used(data: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchedule):
        from_data(data)


# ---- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "needs 5 fields"),
        ("0 3 * *", "needs 5 fields"),
        ("* * * * * *", "has 6 fields.*use Every"),
        ("0 0 12 * * ? *", "needs 5 fields"),
        ("60 * * * *", "'60' is not a valid minute"),
        ("* 24 * * *", "'24' is not a valid hour"),
        ("* * 0 * *", "'0' is not a valid day of the month"),
        ("* * 32 * *", "'32' is not a valid day of the month"),
        ("* * * 13 *", "'13' is not a valid month"),
        ("* * * * 8", "'8' is not a valid day of the week"),
        ("* * * * caturday", "'caturday' is not a valid day of the week"),
        ("0 0 * * fri-sun", "must go upwards"),
        ("0 0 ? * mon", "'\\?' is not a valid day of the month"),
        ("H H * * *", "'H' is not a valid minute"),
        ("-1 * * * *", "'-1' is not a valid minute"),
        ("1,,2 * * * *", "'1,,2' is not a valid minute"),
        ("*/0 * * * *", "'\\*/0' is not a valid minute"),
        ("*/90 * * * *", "step of '\\*/90' is too large.*use Every"),
        ("0 */24 * * *", "step of '\\*/24' is too large"),
        ("*/² * * * *", "is not a valid minute"),
        ("٣ * * * *", "is not a valid minute"),
        ("1#2 * * * *", "is not a valid minute"),
        ("* * * * 1#6", "is not a valid day of the week"),
        ("* * * * L", "is not a valid day of the week"),
        ("0 0 " + "9" * 5000 + " * *", "at most 500 characters"),
        ("0 0 " + "9" * 400 + " * *", "is not a valid day of the month"),
        ("0 0 30 2 *", "never fires"),
        ("0 0 31 2,4,6,9,11 *", "never fires"),
        ("0 0 */30 2 mon#5", "never fires"),
        ("@reboot", "'@reboot' is not a cron expression: the names are @yearly"),
        ("@every 5m", "use Every"),
        ("@", "is not a cron expression"),
        ("@daily 3", "is not a cron expression"),
        (None, "must be a string"),
        (300, "must be a string"),
    ],
)
def test_a_bad_cron_expression(expression: Any, message: str) -> None:
    with pytest.raises(InvalidSchedule, match=f"(?s){message}") as raised:
        Cron(expression)
    assert isinstance(raised.value, QueuertError)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    "tz",
    [
        *(
            "Mars/Olympus",
            "",
            "America",
            "/etc/passwd",
            "../zoneinfo/UTC",
            "right/UTC",
            "localtime",
            "CET\0",
            "x" * 5000,
        ),
        *(3, None, ZoneInfo("Europe/Berlin"), UTC),
    ],
    ids=lambda tz: repr(tz)[:20],
)
@pytest.mark.parametrize("kind", ["cron", "every"])
def test_an_unknown_zone(tz: Any, kind: str) -> None:
    with pytest.raises(InvalidSchedule, match="time zone"):
        Cron("@daily", tz=tz) if kind == "cron" else Every(MINUTES, tz=tz)


@pytest.mark.parametrize(
    "interval", [timedelta(), timedelta(seconds=-5), timedelta(microseconds=999), 5, 5.0, None, "5m"]
)
@pytest.mark.parametrize("kind", [Every, After])
def test_a_bad_interval(kind: type[Every | After], interval: Any) -> None:
    with pytest.raises(InvalidSchedule, match=r"must be (a timedelta|1 millisecond or more)"):
        kind(interval)


@pytest.mark.parametrize("jitter", [timedelta(seconds=-1), 5, None])
def test_a_bad_jitter(jitter: Any) -> None:
    with pytest.raises(InvalidSchedule, match="jitter"):
        Cron("@daily", jitter=jitter)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"start": NOON.replace(tzinfo=None)}, "start must have a time zone"),
        ({"end": NOON.replace(tzinfo=None)}, "end must have a time zone"),
        ({"start": "2026-11-17"}, "start must be a datetime"),
        ({"end": NOON.date()}, "end must be a datetime"),
        ({"start": datetime.min.replace(tzinfo=UTC)}, "in the years 1900 to 9998"),
        ({"end": datetime.max.replace(tzinfo=UTC)}, "in the years 1900 to 9998"),
        ({"start": NOON, "end": NOON}, "never fires"),
        ({"start": NOON, "end": NOON - MINUTES}, "never fires"),
    ],
)
@pytest.mark.parametrize("kind", ["cron", "every", "after"])
def test_bad_bounds(bounds: dict[str, Any], message: str, kind: str) -> None:
    with pytest.raises(InvalidSchedule, match=message):
        if kind == "cron":
            Cron("@daily", **bounds)
        elif kind == "every":
            Every(MINUTES, **bounds)
        else:
            After(MINUTES, **bounds)


def test_no_tick_between_start_and_end() -> None:
    with pytest.raises(InvalidSchedule, match="no tick between its start and its end"):
        Cron("0 3 * * *", start=NOON, end=NOON + timedelta(hours=2))


@pytest.mark.parametrize("times", [Cron("@daily"), Every(MINUTES), After(MINUTES)], ids=str)
def test_a_moment_without_a_zone(times: Times) -> None:
    with pytest.raises(InvalidArgument, match="after must have a time zone"):
        times.next(NOON.replace(tzinfo=None))


@pytest.mark.parametrize("count", [0, -1, 1.5, True, None])
def test_a_bad_count(count: Any) -> None:
    with pytest.raises(InvalidArgument, match="count must be 1 or more"):
        Cron("@daily").ticks(NOON, count)


def test_without_cronsim_the_error_tells_what_to_install() -> None:
    program = """
import sys
sys.modules["cronsim"] = None
from datetime import timedelta
from queuert import Cron, DriverMissing, Every
Every(timedelta(minutes=5))
try:
    Cron("@daily")
except DriverMissing as error:
    print(error)
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 'pip install "queuert[schedules]"' in finished.stdout


def test_without_tzdata_utc_works_and_the_error_tells_what_to_install() -> None:
    program = """
import sys, zoneinfo
sys.modules["tzdata"] = None
zoneinfo.reset_tzpath([])
from queuert import Cron, InvalidSchedule
Cron("@daily")
try:
    Cron("@daily", tz="Europe/Berlin")
except InvalidSchedule as error:
    print(error)
"""
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "install the package tzdata" in finished.stdout
