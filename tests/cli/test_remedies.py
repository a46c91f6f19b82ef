"""What `queuert why` tells you to type."""

from __future__ import annotations

import asyncio
import shlex
from datetime import UTC, datetime

import pytest
from tests.cli.incidents import BLOCKED, FAILED, LATER, cause_incidents
from tests.cli.running import in_process

from queuert.operate.cli.remedies import command_for
from queuert.operate.pauses import target_of
from queuert.records.pauses import PauseTarget
from queuert.why import (
    BeingUnblocked,
    Blocked,
    BlockingChain,
    ClusterFull,
    Ended,
    Holder,
    LimitFull,
    NoWorker,
    OrderHeld,
    Paused,
    QueueFull,
    Reason,
    Running,
    SlotsBusy,
    Why,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
OLDEST = Holder("oldest", "a", "worker", NOW, NOW)


def command(reason: Reason) -> str | None:
    return command_for(Why("chain", "a", "job", "a", "pending", NOW, (reason,)), reason)


@pytest.mark.parametrize(
    "target",
    [
        PauseTarget("everything"),
        PauseTarget("type", "everything"),
        PauseTarget("type", "queue:mail"),
        PauseTarget("type", "a b; ls"),
        PauseTarget("type", "charge@2"),
        PauseTarget("queue", "mail"),
    ],
)
def test_a_pause_is_resumed_by_its_name(target: PauseTarget) -> None:
    words = shlex.split(command(Paused(target, NOW, None, None, None, NOW)) or "")
    assert words[:2] == ["queuert", "resume"]
    assert [target_of(each) for each in words[2:]] == [target]


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (Running("w", "alive", NOW, NOW, NOW), "queuert cancel chain"),
        (Running("w", "dead", NOW, NOW, NOW), None),
        (Ended("failed", NOW, None, NOW), "queuert retry chain"),
        (Ended("cancelled", NOW, None, NOW), None),
        (Blocked((BlockingChain("x", "b", "failed"), BlockingChain("y", "b", "pending")), 2), "queuert retry x"),
        (Blocked((BlockingChain("y", "b", "pending"),), 1), "queuert why y"),
        (Blocked((BlockingChain("y", "b", "cancelled"),), 1), "queuert why y"),
        (BeingUnblocked(), None),
        (QueueFull("q", 1, 1, OLDEST), "queuert why oldest"),
        (ClusterFull(0, 0, None), None),
        (SlotsBusy(1, 1, 1, False, OLDEST), "queuert why oldest"),
        (LimitFull("l", "k", 1, 1, ("z",)), "queuert why z"),
        (OrderHeld("l", "k", "h", "failed"), "queuert retry h"),
        (OrderHeld("l", "k", "h", "pending"), "queuert why h"),
        (NoWorker("a", None, None, None, (), 0, NOW), None),
    ],
)
def test_the_command_against_a_reason(reason: Reason, expected: str | None) -> None:
    assert command(reason) == expected


def test_the_commands_can_be_typed(url: str) -> None:
    asyncio.run(cause_incidents(url))
    shown = in_process("why", BLOCKED, "--url", url)
    assert f"  $ queuert retry {FAILED}" in shown.out
    shown = in_process("why", LATER, "--url", url)
    (line,) = [line for line in shown.lines if "$" in line]
    typed = shlex.split(line.partition("$ queuert ")[2])
    assert in_process(*typed, "--yes", "--url", url).code == 0
    assert "$" not in in_process("why", LATER, "--url", url).out
