"""The suite itself: cases, the runner, the report and the pytest plugin."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.harnesses import InProcessHarness, async_memory
from tests.conformance.test_adapters import pydantic_harness

from queuert.adapters.memory import sync_memory_state
from queuert.errors import InvalidArgument
from queuert.jobs.codecs.codec import PydanticCodec
from queuert_conformance import (
    CodecHarness,
    ConformanceFailed,
    StateHarness,
    check,
    checks,
    equal,
    run_codec_conformance,
    run_notify_conformance,
    run_state_conformance,
    run_state_conformance_sync,
    skip,
)
from queuert_conformance.case import Suite
from queuert_conformance.checks import CheckFailed, Skipped, only, present, raises, same_json
from queuert_conformance.codec.harness import CODEC
from queuert_conformance.notify.channel import NOTIFY, Ear
from queuert_conformance.runner import run_suite
from queuert_conformance.state.driver import SyncStateDriver, drive
from queuert_conformance.state.store import STATE

ROOT = Path(__file__).resolve().parents[2]


# Cases


@pytest.mark.parametrize("suite", [STATE, NOTIFY, CODEC], ids=lambda suite: suite.name)
def test_every_case_states_its_rule_in_a_sentence(suite: Suite[Any]) -> None:
    for case in suite:
        assert case.rule.endswith("."), case.name
        assert "\n" not in (case.body.__doc__ or "").strip(), case.name


def test_the_suite_is_large() -> None:
    assert len(STATE) > 290
    assert len(NOTIFY) > 20


def test_a_case_needs_a_rule_and_a_name_of_its_own() -> None:
    suite: Suite[None] = Suite("own")

    async def silent(_: None) -> None:
        return

    async def twice(_: None) -> None:
        """It says so."""

    with pytest.raises(InvalidArgument, match=r"test_suite\.silent has no docstring"):
        suite.case(silent)
    suite.case(twice)
    with pytest.raises(InvalidArgument, match=r"two cases named test_suite\.twice"):
        suite.case(twice)


def test_cases_are_chosen_by_operation_name_or_pattern() -> None:
    names = {case.name for case in STATE.select(["renew", "claim.a_job_is_claimed_once", "*.empty_call"])}

    assert {"renew.leases_are_extended", "claim.a_job_is_claimed_once", "reap.empty_call"} < names
    assert not any(name.startswith("claim_order") for name in names)
    assert len(STATE.select(None)) == len(STATE)


def test_what_a_driver_can_get_wrong_can_be_chosen() -> None:
    chosen = STATE.select("@driver")

    assert {case.name for case in STATE.select("transactions")} < {case.name for case in chosen}
    assert len(chosen) < len(STATE) / 2
    assert not any(case.name.startswith("claim_order") for case in chosen)


def test_a_choice_that_matches_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no state case is named 'clam'"):
        STATE.select(["renew", "clam"])


# Checks


def test_checks_say_what_was_expected() -> None:
    with pytest.raises(CheckFailed, match="so it must be"):
        check(0, "so it must be")
    with pytest.raises(CheckFailed, match=r"number: expected 2, got 1"):
        equal(1, 2, "number")
    with pytest.raises(CheckFailed, match=r"text: expected None, got b'1'"):
        same_json(b"1", None, "text")
    with pytest.raises(CheckFailed, match=r"job: expected one, got None"):
        present(None, "job")
    with pytest.raises(CheckFailed, match=r"jobs: expected exactly one, got \[\]"):
        only([], "jobs")
    with pytest.raises(CheckFailed, match=r"characters\)"):
        equal("x" * 5000, "y", "long")
    same_json(b'{"a": 1, "b":2}', b'{"b":2,"a":1}', "order and spaces")


def test_raises_wants_the_error_and_no_other() -> None:
    with raises(KeyError, "a missing key") as caught:
        raise KeyError("k")
    assert caught.error.args == ("k",)
    with (
        pytest.raises(CheckFailed, match="a missing key: expected KeyError, nothing was raised"),
        raises(KeyError, "a missing key"),
    ):
        pass
    with pytest.raises(ZeroDivisionError), raises(KeyError, "a missing key"):
        raise ZeroDivisionError


async def test_an_ear_notices_silence_and_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuert_conformance.notify.channel._HEAR_SECONDS", 0.01)
    ear = Ear()
    with pytest.raises(CheckFailed, match="expected to receive"):
        await ear.hears("a")
    ear("b")
    with pytest.raises(CheckFailed, match="expected to receive nothing"):
        await ear.stays_silent()


# The runner


class Bench:
    """A harness that writes down what is done with it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.entered = asyncio.Event()

    @asynccontextmanager
    async def opened(self, _: object) -> AsyncGenerator[Bench, None]:
        self.log.append("open")
        self.entered.set()
        try:
            yield self
        finally:
            self.log.append("close")


def suite_of_each_kind() -> Suite[Bench]:
    suite: Suite[Bench] = Suite("sample")

    @suite.case
    async def good(bench: Bench) -> None:
        """Good things pass."""
        bench.log.append("good")

    @suite.case
    async def bad(bench: Bench) -> None:
        """Bad things fail."""
        equal(1, 2, "the number")

    @suite.case
    async def absent(bench: Bench) -> None:
        """What is absent is skipped."""
        skip("there is no such thing")

    @suite.case
    async def endless(bench: Bench) -> None:
        """What waits for ever fails."""
        await asyncio.Event().wait()

    return suite


async def test_every_case_has_an_outcome_and_none_spoils_the_next() -> None:
    bench = Bench()

    report = await run_suite(suite_of_each_kind(), lambda: bench, bench.opened, None, timeout=0.05)

    assert [outcome.result for outcome in report.outcomes] == ["passed", "failed", "skipped", "failed"]
    assert bench.log == ["open", "good", "close"] + ["open", "close"] * 3


async def test_the_report_names_failures_rules_and_skips() -> None:
    bench = Bench()
    report = await run_suite(suite_of_each_kind(), lambda: bench, bench.opened, None, timeout=0.05)

    text = str(report)

    assert text.startswith("sample conformance: 2 failed, 1 passed, 1 skipped")
    assert "FAILED test_suite.bad\n  rule: Bad things fail.\n  what: CheckFailed: the number: expected 2, got 1" in text
    assert 'equal(1, 2, "the number")' in text
    assert "SKIPPED test_suite.absent: there is no such thing" in text
    assert "did not end within 0.05 s" in text
    assert text.endswith("  FAILED test_suite.bad\n  FAILED test_suite.endless")
    with pytest.raises(ConformanceFailed) as failed:
        report.raise_if_failed()
    assert failed.value.report is report
    assert str(failed.value) == text


async def test_a_report_without_failures_raises_nothing() -> None:
    bench = Bench()
    report = await run_suite(suite_of_each_kind(), lambda: bench, bench.opened, "*.good", timeout=60)

    report.raise_if_failed()

    assert str(report).startswith("sample conformance: 0 failed, 1 passed, 0 skipped")
    assert report.outcomes[0].traceback == ""


async def test_an_error_of_the_adapter_is_an_outcome() -> None:
    def broken() -> Bench:
        raise OSError("no server")

    report = await run_suite(suite_of_each_kind(), broken, Bench().opened, "*.good", timeout=60)

    assert isinstance(report.failed[0].error, OSError)


async def test_an_error_of_dispose_is_an_outcome() -> None:
    class Leaky(StateHarness):
        async def dispose(self) -> None:
            raise OSError("cannot let go")

    report = await run_state_conformance(lambda: Leaky(async_memory().adapter), only="create.empty_call")

    assert isinstance(report.failed[0].error, OSError)


async def test_a_cancelled_run_stops() -> None:
    bench = Bench()
    run = asyncio.create_task(run_suite(suite_of_each_kind(), lambda: bench, bench.opened, "*.endless", 60))
    await bench.entered.wait()

    run.cancel()

    with pytest.raises(asyncio.CancelledError):
        await run
    assert bench.log == ["open", "close"]


async def test_harnesses_may_be_made_by_async_functions() -> None:
    async def made() -> StateHarness:
        return async_memory()

    report = await run_state_conformance(made, only="create.empty_call")

    assert len(report.passed) == 1


async def test_what_a_harness_does_not_offer_is_skipped_with_the_reason() -> None:
    class Plain(StateHarness):
        single_writer = True

    chosen = ["concurrency.a_job_ends_once", "transactions.a_poisoned_transaction_rolls_back"]
    report = await run_state_conformance(lambda: Plain(sync_memory_state()), only=chosen)

    assert {outcome.reason for outcome in report.skipped} == {
        "the harness has no second()",
        "the harness has no poison()",
    }


async def test_notify_and_codec_have_async_runners_too() -> None:
    assert not (await run_notify_conformance(InProcessHarness, only="hints")).failed
    assert not (await run_codec_conformance(pydantic_harness)).failed


def test_a_codec_needs_samples() -> None:
    with pytest.raises(InvalidArgument, match="at least one"):
        CodecHarness(PydanticCodec(), [])


def test_the_sync_entry_point_needs_no_loop() -> None:
    assert len(run_state_conformance_sync(async_memory, only="renew").passed) >= 8


# The driver of sync adapters


async def test_a_sync_driver_hands_on_results_and_errors_and_can_be_abandoned() -> None:
    driver = drive(sync_memory_state())
    assert isinstance(driver, SyncStateDriver)

    async def later() -> int:
        return 7

    assert await driver.call(later) == 7
    with pytest.raises(ZeroDivisionError):
        await driver.call(lambda: 1 // 0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await driver.call(lambda: __import__("time").sleep(0.05))
    await driver.close()
    driver.release()


def test_a_case_may_end_while_a_sync_call_hangs() -> None:
    """The thread answers a loop that is gone, or a caller that has given up: neither is an error."""
    driver = drive(sync_memory_state())

    async def abandon(fail: bool) -> None:
        call = asyncio.ensure_future(driver.call(lambda: __import__("time").sleep(0.02) or 1 // (not fail)))
        await asyncio.sleep(0)
        call.cancel()

    asyncio.run(abandon(fail=False))
    asyncio.run(abandon(fail=True))

    async def settle() -> None:
        await driver.close()

    asyncio.run(settle())
    driver.release()


# pytest, and optimised Python

PLUGIN_TESTS = """
import pytest
from queuert_conformance.pytest_plugin import codec_tests, notify_tests, state_tests
from tests.conformance import mutants
from tests.conformance.harnesses import InProcessHarness, NoNotifyHarness, sync_memory
from tests.conformance.test_adapters import pydantic_harness

@pytest.fixture
def own_harness():
    return sync_memory

test_state = state_tests("own_harness", only=["renew", "transactions.a_poisoned_transaction_rolls_back"])
test_notify = notify_tests(NoNotifyHarness, only="publish.a_listener_hears")
test_codec = codec_tests(pydantic_harness)
test_mutant = state_tests(mutants.harness_of(mutants.AlwaysCreates), only="dedup.an_open_chain_is_found")
"""


def test_the_plugin_makes_each_case_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(PLUGIN_TESTS)

    finished = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:asyncio", "-p", "no:cacheprovider", "-v", "-rs"),
            *("--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path / "test_own.py")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    out = finished.stdout
    assert "test_state[renew.leases_are_extended] PASSED" in out, out + finished.stderr
    assert "test_notify[publish.a_listener_hears] SKIPPED" in out
    assert "the harness has no poison()" in out
    assert "the adapter delivers nothing" in out
    assert "test_mutant[dedup.an_open_chain_is_found] FAILED" in out
    assert "conformance case dedup.an_open_chain_is_found: A second start under the key" in out
    assert "1 failed" in out


def test_optimised_python_finds_the_same() -> None:
    script = (
        "from queuert_conformance import run_state_conformance_sync\n"
        "from tests.conformance import mutants\n"
        "harness = mutants.harness_of(mutants.IgnoresPriority)\n"
        "report = run_state_conformance_sync(harness, only='claim_order.lower_priorities_first')\n"
        "raise SystemExit(0 if report.failed else 'nothing was found')\n"
    )

    finished = subprocess.run([sys.executable, "-O", "-c", script], cwd=ROOT, capture_output=True, text=True)

    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(("took", "outcome"), [(0.1, CheckFailed), (0.3, Skipped)])
def test_a_check_that_holds_for_a_time(monkeypatch: pytest.MonkeyPatch, took: float, outcome: type[Exception]) -> None:
    """A machine that took longer is no failure. What is right is right, however long it took."""
    moments = iter([1.0, 1.0 + took, 5.0])
    monkeypatch.setattr(checks, "monotonic", lambda: next(moments))
    with pytest.raises(outcome, match="the number: expected 2, got 1"), checks.sooner_than(0.2):
        equal(1, 2, "the number")
    with checks.sooner_than(0.2):
        equal(1, 1, "the number")
