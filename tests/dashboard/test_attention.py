"""What a person should look at first."""

from __future__ import annotations

from datetime import UTC, datetime

from queuert.operate.attention import attention
from queuert.records.model import TypeStats
from queuert.records.pauses import Pause, PauseTarget
from queuert.records.workers import WorkerInfo, WorkerQueue, WorkerType


def test_what_needs_attention_is_ranked() -> None:
    now = datetime.now(UTC)
    alive = WorkerInfo(
        id="w", state="alive", known_by="lock", host="a", pid=1, version=None, release=None, slots=1, busy=0, held=0,
        queues=(WorkerQueue("default", (WorkerType("mail"),)),), cluster_cap=None, started_at=now, seen_at=now,
    )  # fmt: skip
    stats = [
        TypeStats("mail", pending=9000, oldest_ready_age=300.0),
        TypeStats("few", failed=2),
        TypeStats("many", failed=400),
        TypeStats("nobody", pending=50, oldest_ready_age=1.0),
        TypeStats("later", pending=7),
    ]
    pauses = [Pause(PauseTarget("type", "x"), now)]
    ranked = [each.text for each in attention(stats, [alive], pauses, [], now)]
    assert ranked == [
        "400 many failed",
        "no worker that is alive has a handler for nobody",
        "2 few failed",
        "mail has been ready for 5 min",
        "type x is paused",
    ]
    first, *others = attention(stats, [], pauses, [], now)
    assert (first.level, first.text, first.where) == ("bad", "no worker is alive, and 9,050 jobs wait", "workers")
    assert not any("has a handler" in each.text for each in others)
