"""Limits by key while processes are killed and stopped and connections are cut: never too many, and nothing is left.

Two triggers in the database write down when each claim begins and ends, in the transactions that do it. From that it is
computed how many jobs of a key ran at once at any moment, and how many began in any second.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.programs.limits_worker import AT_ONCE, JOBS, PER_SECOND, Call, Post, Sync
from tests.behaviour.test_storm import PROCESSES, Place, Workers, calm, place_for, storm

import queuert
from queuert import Client, StorageError
from queuert.records.limits import split_lane

SECONDS = float(os.environ.get("QUEUERT_STORM_SECONDS", "300"))
MOST = {"sync": AT_ONCE, "call": 5, "post": 1}

# A claim begins when it is stamped, after the lock of its lane. It ends in the transaction that deletes its row, and
# no other claim can begin in its place before that is committed.
POSTGRES = (
    "CREATE TABLE claim_ledger (token bigint, lane text, began timestamptz, ended timestamptz)",
    """CREATE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO claim_ledger VALUES (NEW.token, NEW.lane, NEW.started_at, NULL);
        ELSE
            INSERT INTO claim_ledger VALUES (OLD.token, OLD.lane, OLD.started_at, clock_timestamp());
        END IF;
        RETURN NULL;
    END $$""",
    "CREATE TRIGGER note_claim AFTER INSERT OR DELETE ON queuert_running FOR EACH ROW EXECUTE FUNCTION note_claim()",
)
LEDGER_OF_POSTGRES = """
    SELECT lane, extract(epoch FROM began)::float8, extract(epoch FROM max(ended))::float8
    FROM claim_ledger GROUP BY token, lane, began"""
# One writer at a time: the order of the rows is the order of time.
SQLITE = (
    "CREATE TABLE claim_ledger (place INTEGER PRIMARY KEY, token INTEGER, lane TEXT, began INTEGER, kind INTEGER)",
    "CREATE INDEX claim_ledger_token ON claim_ledger (token, kind)",
    """CREATE TRIGGER note_begin AFTER UPDATE OF token ON queuert_job
    WHEN NEW.token IS NOT NULL AND NEW.token IS NOT OLD.token BEGIN
        INSERT INTO claim_ledger (token, lane, began, kind) VALUES (NEW.token, NEW.lane, NEW.last_attempt_at, 1);
    END""",
    """CREATE TRIGGER note_end AFTER UPDATE OF token ON queuert_job
    WHEN OLD.token IS NOT NULL AND NEW.token IS NOT OLD.token BEGIN
        INSERT INTO claim_ledger (token, lane, kind) VALUES (OLD.token, OLD.lane, -1);
    END""",
    """CREATE TRIGGER note_deletion AFTER DELETE ON queuert_job WHEN OLD.token IS NOT NULL BEGIN
        INSERT INTO claim_ledger (token, lane, kind) VALUES (OLD.token, OLD.lane, -1);
    END""",
)
LEDGER_OF_SQLITE = """
    SELECT b.lane, b.place * 1.0,
        (SELECT min(e.place) * 1.0 FROM claim_ledger AS e WHERE e.token = b.token AND e.kind = -1)
    FROM claim_ledger AS b WHERE b.kind = 1"""
BEGINS_OF_SQLITE = "SELECT lane, began / 1000000.0 FROM claim_ledger WHERE kind = 1"

Claim = tuple[str, float, float | None]


async def produce(client: Client[Any], weather: random.Random, until: Callable[[], bool]) -> None:
    number = 0
    while not until():
        with suppress(StorageError, OSError):
            async with client.transaction() as tx:
                number += 1
                jobs: list[Any] = [
                    Sync(tenant=weather.randrange(4), weight=weather.choice((1.0, 3.0))) for _ in range(3)
                ]
                jobs += [Call(partner=weather.randrange(2)) for _ in range(3)]
                jobs += [Post(account=account, number=number) for account in range(2)]
                chains = await client.start_many(tx, jobs)
                if weather.random() < 0.2:
                    await client.cancel(tx, chains[0])
                if weather.random() < 0.1:
                    await client.set_limit(tx, Sync, key=0, concurrency=weather.choice((1, AT_ONCE)))
        await asyncio.sleep(0.1)


async def sample(place: Place, query: str, highest: Counter[str], until: Callable[[], bool]) -> None:
    while not until():
        with suppress(Exception):  # the server is being restarted
            for lane, number in await asyncio.to_thread(place.say, query):
                highest[lane] = max(highest[lane], number)
        await asyncio.sleep(0.02)


def at_once(claims: Sequence[Claim]) -> Counter[str]:
    """The most that ran at the same moment, of each lane."""
    events: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for lane, began, ended in claims:
        events[lane].append((began, 1))
        if ended is not None:
            events[lane].append((ended, -1))
    most: Counter[str] = Counter()
    for lane, of_lane in events.items():
        running = 0
        for _, change in sorted(of_lane):
            running += change
            most[lane] = max(most[lane], running)
    return most


def in_a_second(begins: Sequence[tuple[str, float]]) -> int:
    """The most that began within a second, of the lanes of `call`."""
    by_lane: dict[str, list[float]] = defaultdict(list)
    for lane, at in sorted(begins, key=lambda each: each[1]):
        if split_lane(lane)[0] == "call":
            by_lane[lane].append(at)
    # The figures are rounded to a microsecond: a window of exactly a second is left out.
    return max(
        (sum(at <= each < at + 0.999_99 for each in times[place : place + 2 * PER_SECOND])
         for times in by_lane.values() for place, at in enumerate(times)),
        default=0,
    )  # fmt: skip


@pytest.mark.parametrize("seconds", [1.5, pytest.param(SECONDS, marks=pytest.mark.soak)], ids=["short", "long"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.timeout(SECONDS + 600)
async def test_never_too_many_and_nothing_left(
    kind: str, seconds: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.randrange(10**9)
    weather = random.Random(seed)
    sampled: Counter[str] = Counter()
    is_sqlite = kind == "sqlite"
    running = "SELECT lane, count(*) FROM queuert_job WHERE status = 'running' GROUP BY lane" if is_sqlite else (
        "SELECT lane, count(*) FROM queuert_running GROUP BY lane"
    )  # fmt: skip
    async with place_for(kind, tmp_path) as place:
        async with queuert.connect(place.direct, jobs=JOBS, notify=None) as client:
            for statement in SQLITE if is_sqlite else POSTGRES:
                place.say(statement)
            place.say("CREATE TABLE posted (account INTEGER, number INTEGER)")
            workers = Workers(place.url, tmp_path / "workers.log", "limits_worker")
            try:
                for _ in range(PROCESSES):
                    await workers.start()
                end = time.monotonic() + seconds
                ended = asyncio.Event()
                sampling = asyncio.create_task(sample(place, running, sampled, ended.is_set))
                counts, _ = await asyncio.gather(
                    storm(place, workers, weather, lambda: time.monotonic() > end),
                    produce(client, weather, lambda: time.monotonic() > end),
                )
                left = await calm(client)
                ended.set()
                await sampling
                dead = workers.dead()
            finally:
                await workers.end()
            limits = (await client.list_limits(limit=1000)).items
            findings = [each for each in (await client.doctor(full=True)).findings if each.severity == "error"]
        claims: list[Claim] = place.say(LEDGER_OF_SQLITE if is_sqlite else LEDGER_OF_POSTGRES)
        begins = place.say(BEGINS_OF_SQLITE) if is_sqlite else [(lane, began) for lane, began, _ in claims]
        posted = place.say("SELECT account, number FROM posted ORDER BY rowid" if is_sqlite else (
            "SELECT account, number FROM posted ORDER BY xmin::text::bigint, ctid"
        ))  # fmt: skip
    computed, fastest = at_once(claims), in_a_second(begins)
    with capsys.disabled():
        faults = ", ".join(f"{number} × {fault}" for fault, number in sorted(counts.items()))
        most = f"most at once {_by_limit(computed)} by the ledger, {_by_limit(sampled)} sampled"
        text = f"{len(claims)} claims; {faults}; {most}; {fastest} begins in a second"
        print(f"\n{kind}, seed {seed}, {seconds:g} s: {text}")  # noqa: T201
    log = (tmp_path / "workers.log").read_text()[-5000:]
    assert (left, dead) == ([], 0), log
    for numbers in (computed, sampled):
        assert all(number <= MOST[split_lane(lane)[0]] for lane, number in numbers.items()), numbers
    assert fastest <= PER_SECOND
    assert [each for each in limits if each.running or each.waiting] == []
    assert findings == []
    assert all(ended is not None for _, _, ended in claims)
    for account in range(2):
        order = [number for of, number in posted if of == account]
        assert order == sorted(set(order)), f"account {account} is not in order"


def _by_limit(most: Counter[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for lane, number in most.items():
        name = split_lane(lane)[0]
        found[name] = max(number, found.get(name, 0))
    return dict(sorted(found.items()))
