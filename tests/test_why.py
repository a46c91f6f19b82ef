"""From what is known of a job to an answer that a tired person understands."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from queuert.base.times import clock
from queuert.features.why.finding import explain
from queuert.records.circumstances import BlockingRow, Circumstances, DueJob, RunningGroup
from queuert.records.model import ChainRow, JobRow
from queuert.records.pauses import Pause, PauseTarget
from queuert.records.workers import LastHandled, WorkerAbout, WorkerQueue, WorkerRow, WorkerType
from queuert.why import (
    BeingUnblocked,
    Ended,
    FailedBefore,
    InLine,
    NotDue,
    NoWorker,
    Paused,
    QueueFull,
    Reason,
    Running,
    SlotsBusy,
    Why,
)

NOW = datetime(2026, 11, 17, 3, 0, 0, tzinfo=UTC)
JOB = JobRow(
    "job-1", "charge", "chain-1", "order", 1, b"{}", None, "pending", 100, NOW, NOW, None, None, None, 0, None, None,
    None, None, None, None, None, 0, None, None,
)  # fmt: skip
FIRST = replace(JOB, id="chain-1", type_name="order", chain_index=0, status="completed")
ABOUT = WorkerAbout(host="web-1", release="r1", slots=2, queues=(WorkerQueue("default", (WorkerType("charge"),)),))


def worker(worker_id: str = "one", *, about: WorkerAbout | None = ABOUT, **fields: Any) -> WorkerRow:
    fields.setdefault("state", "alive")
    return WorkerRow(worker_id, NOW, NOW, about=about, **fields)


def why(job: JobRow = JOB, **facts: Any) -> Why:
    chain = ChainRow(FIRST, job)
    empty: dict[str, Any] = {
        "now": NOW, "chain": chain, "blockers": [], "workers": [worker()], "others_alive": 0, "running": [], "due": [],
        "last_handled": None, "pauses": [],
    }  # fmt: skip
    return explain(Circumstances(**{**empty, **facts}))


def kinds(found: Why) -> list[type[Reason]]:
    return [type(reason) for reason in found.reasons]


def test_nothing_is_in_the_way() -> None:
    found = why()
    assert found.reasons == ()
    assert str(found) == (
        "job job-1 (charge) of chain chain-1 (order) is pending\n"
        "  nothing is in its way: a worker takes it within moments"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "03:00:00 UTC (0 s ago)"),
        (-59.4, "02:59:00 UTC (59 s ago)"),
        (119, "03:01:59 UTC (in 1 min 59 s)"),
        (-7199, "01:00:01 UTC (1 h 59 min ago)"),
        (7200, "05:00:00 UTC (in 2 h)"),
        (-86400, "2026-11-16 03:00:00 UTC (1 d ago)"),
        (30 * 86400, "2026-12-17 03:00:00 UTC (in 30 d)"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert clock(NOW + timedelta(seconds=seconds), NOW) == text


def test_several_reasons_are_numbered() -> None:
    found = why(
        replace(JOB, status="blocked", blockers_left=30),
        workers=[],
        blockers=[BlockingRow("chain-2", "rate", "failed"), BlockingRow("chain-3", "rate", "pending")],
        last_handled=LastHandled("charge", NOW - timedelta(hours=5), "web-9", None),
        others_alive=3,
    )
    assert str(found) == "\n".join((
        "job job-1 (charge) of chain chain-1 (order) is blocked",
        "  1. it waits for ever: a chain that it waits for has ended without an output: chain-2 (rate, failed), "
        "chain-3 (rate, pending), and 28 more",
        "     → client.retry(tx, …) the chain that failed; or client.cancel(tx, …, cascade=True); or complete this job "
        "with client.take_over",
        "  2. no worker that is alive has a handler for 'charge'; the last one was seen at 2026-11-16 22:00:00 UTC "
        "(5 h ago), host web-9; 3 other workers alive",
        "     → start a worker that has a handler for 'charge' and serves its queue",
    ))  # fmt: skip


def test_it_is_being_unblocked() -> None:
    assert kinds(why(replace(JOB, status="blocked", blockers_left=1))) == [BeingUnblocked]


def test_workers_that_may_be_cut_off() -> None:
    late = worker("late", state="unknown", about=replace(ABOUT, host="web-2"))
    gone = LastHandled("charge", NOW - timedelta(hours=5), "web-9", None)
    found = why(workers=[late, worker("dead", state="dead")], last_handled=gone)
    assert kinds(found) == [NoWorker]
    (reason,) = found.reasons
    assert isinstance(reason, NoWorker)
    assert (reason.uncertain, reason.last_seen, reason.host) == (("late",), NOW, "web-2")
    assert "not heard of lately: late" in str(reason)


@pytest.mark.parametrize("job", [JOB, replace(JOB, status="blocked")])
def test_a_worker_that_does_not_tell_may_take_it(job: JobRow) -> None:
    """Whatever the others cannot."""
    full = RunningGroup("charge", "one", 2, "x", NOW)
    found = why(job, workers=[worker(), worker("old", about=None)], running=[full])
    assert kinds(found) == ([] if job is JOB else [BeingUnblocked])


def test_a_queue_that_is_paused_by_its_cap() -> None:
    paused = replace(ABOUT, queues=(WorkerQueue("mail", (WorkerType("charge"),), max_concurrency=0),))
    found = why(workers=[worker(about=paused)])
    assert kinds(found) == [QueueFull]
    assert "max_concurrency=0, which pauses it" in str(found)


def test_a_cap_counts_by_the_stored_queue() -> None:
    """And by type only where none is stored."""
    queue = WorkerQueue("mail", (WorkerType("charge"),), max_concurrency=2, members=("charge",))
    workers = [worker(about=replace(ABOUT, queues=(queue,)))]
    elsewhere = RunningGroup("charge", "two", 5, "x", NOW, "other")
    assert why(workers=workers, running=[elsewhere]).reasons == ()
    here = RunningGroup("unheard-of", "two", 1, "y", NOW, "mail")
    older = RunningGroup("charge", "two", 1, "z", NOW - timedelta(hours=1))
    found = why(workers=workers, running=[elsewhere, here, older])
    assert kinds(found) == [QueueFull]
    assert "2 of 2 jobs are running; the oldest is z (charge)" in str(found)


def test_one_of_several_workers_is_enough() -> None:
    busy = RunningGroup("charge", "one", 2, "x", NOW)
    assert why(workers=[worker(), worker("two")], running=[busy]).reasons == ()


def test_far_down_the_line() -> None:
    """Only the first of those that are due were read."""
    due = [DueJob("charge", 1, NOW, f"due-{number:03}") for number in range(100)]
    assert kinds(why(due=due)) == [InLine]
    assert why(due=due, workers=[worker(about=replace(ABOUT, slots=101))]).reasons == ()


def test_errors_are_cut() -> None:
    error = b'{"code":"BOOM","message":"' + b"x " * 500 + b'"}'
    job = replace(JOB, attempt=3, last_error=error, scheduled_at=NOW + timedelta(minutes=5))
    found = why(job)
    assert kinds(found) == [FailedBefore]
    assert "it failed 3 times; the next attempt is due at 03:05:00 UTC (in 5 min)" in str(found)
    assert "BOOM: x x" in str(found)
    assert max(map(len, str(found).splitlines())) < 350


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "expired"])
def test_it_has_ended(status: Any) -> None:
    found = why(replace(JOB, status=status, completed_at=NOW, last_error=b'{"code":"BOOM"}'))
    assert kinds(found) == [Ended]
    assert f"it has ended: {status} at 03:00:00 UTC" in str(found)
    assert ("BOOM" in str(found)) == (status == "failed")


MAIL = replace(ABOUT, queues=(WorkerQueue("mail", (WorkerType("charge"),)),))
OF_QUEUE = Pause(PauseTarget("queue", "default"), NOW - timedelta(minutes=5))


@pytest.mark.parametrize(
    ("pause", "text", "remedy"),
    [
        (
            Pause(PauseTarget("type", "charge"), NOW, NOW + timedelta(hours=2), "PSP\ndown", "on-call"),
            "its type 'charge' has been paused since 03:00:00 UTC (0 s ago) by on-call, "
            "until 05:00:00 UTC (in 2 h): PSP down",
            "it ends by itself then; client.resume(tx, 'charge') ends it now",
        ),
        (
            OF_QUEUE,
            "its queue 'default' has been paused since 02:55:00 UTC (5 min ago)",
            "client.resume(tx, Queue('default')) ends it now",
        ),
        (
            Pause(PauseTarget("everything"), NOW),
            "everything has been paused since 03:00:00 UTC (0 s ago)",
            "client.resume(tx, EVERYTHING) ends it now",
        ),
    ],
)
def test_paused(pause: Pause, text: str, remedy: str) -> None:
    (reason,) = why(pauses=[pause]).in_the_way
    assert (str(reason), reason.remedy) == (text, remedy)


def test_what_is_paused_elsewhere() -> None:
    others = [Pause(PauseTarget("type", "order"), NOW), Pause(PauseTarget("queue", "mail"), NOW)]
    assert why(pauses=others).reasons == ()


def test_the_librarys_own_types_go_on() -> None:
    about = replace(ABOUT, queues=(WorkerQueue("default", (WorkerType("queuert.own"),)),))
    everything = Pause(PauseTarget("everything"), NOW)
    assert why(replace(JOB, type_name="queuert.own"), workers=[worker(about=about)], pauses=[everything]).reasons == ()


def test_a_paused_queue_matters_only_if_no_other_worker_takes_it() -> None:
    assert why(workers=[worker(), worker("two", about=MAIL)], pauses=[OF_QUEUE]).reasons == ()
    full = RunningGroup("charge", "two", 2, "x", NOW)
    found = why(workers=[worker(), worker("two", about=MAIL)], pauses=[OF_QUEUE], running=[full])
    assert kinds(found) == [Paused, SlotsBusy]


def test_a_pause_comes_before_what_else_is_in_the_way() -> None:
    """Also before the time has come, and when the workers are gone."""
    later = replace(JOB, scheduled_at=NOW + timedelta(hours=1))
    assert kinds(why(later, pauses=[OF_QUEUE])) == [NotDue, Paused]
    assert kinds(why(workers=[worker(state="dead")], pauses=[OF_QUEUE])) == [Paused, NoWorker]
    full = RunningGroup("charge", "one", 2, "x", NOW)
    assert kinds(why(pauses=[OF_QUEUE], running=[full])) == [Paused, SlotsBusy]


def test_a_running_job_is_not_paused() -> None:
    running = replace(JOB, status="running", leased_by="one", leased_until=NOW + timedelta(minutes=1))
    assert kinds(why(running, pauses=[OF_QUEUE])) == [Running]


def test_other_types_that_are_paused_are_not_in_line() -> None:
    about = replace(ABOUT, slots=1, queues=(WorkerQueue("default", (WorkerType("charge"), WorkerType("rate"))),))
    due = [DueJob("charge", 100, NOW, "job-1"), DueJob("rate", 1, NOW, "other")]
    assert kinds(why(workers=[worker(about=about)], due=due)) == [InLine]
    paused = Pause(PauseTarget("type", "rate"), NOW)
    assert why(workers=[worker(about=about)], due=due, pauses=[paused]).reasons == ()
