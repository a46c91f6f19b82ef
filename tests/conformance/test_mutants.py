"""The suite finds what it is there to find: each wrong adapter fails the case that states its rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.conformance import mutants
from tests.conformance.mutants import harness_of

from queuert.adapters.in_process import InProcessHub, InProcessNotify
from queuert.adapters.memory import MemoryOperations
from queuert.ports.notify import Callback, Dispose, Topic
from queuert_conformance import (
    CodecHarness,
    NotifyHarness,
    Report,
    run_codec_conformance_sync,
    run_notify_conformance_sync,
    run_state_conformance_sync,
)


def assert_only_failure(report: Report, case: str) -> None:
    assert [outcome.name for outcome in report.failed] == [case], str(report)


@pytest.mark.parametrize(
    ("mutant", "case"),
    [
        (mutants.IgnoresTokens, "fencing.after_a_reclaim"),
        (mutants.HoldsWhateverThereIs, "fencing.after_a_reclaim"),
        (mutants.IgnoresPriority, "claim_order.lower_priorities_first"),
        (mutants.IgnoresTypeLimits, "claim_order.the_limit_of_a_type"),
        (mutants.IgnoresQueueCaps, "claim_caps.a_queue_has_room_for_so_many"),
        (mutants.IgnoresQueueCaps, "concurrency.a_cap_is_exact"),
        (mutants.CountsTypesNotQueues, "claim_caps.a_cap_counts_the_queue"),
        (mutants.MakesItsOwnTokens, "fencing.tokens_are_the_caller_s"),
        (mutants.ForgetsPausedQueues, "pauses.what_is_available"),
        (mutants.PrunesByTheWalkAlone, "prune.what_appears_behind_the_walk"),
        (mutants.PrunesByTheWalkAlone, "prune_needed.needed_until_later"),
        (mutants.PrunesWithoutPolicies, "prune.what_is_due_is_deleted"),
        (mutants.KeepsWhatIsDiscarded, "prune.a_settlement_that_deletes"),
        (mutants.IgnoresTheClusterCap, "claim_caps.the_cluster_cap_counts_everything"),
        (mutants.NeverMore, "claim_order.the_limit_of_the_request"),
        (mutants.NeverExpired, "claim.past_deadlines_are_marked"),
        (mutants.ForgetsBlockerOutputs, "claim.blockers_come_with_the_job"),
        (mutants.AlwaysCreates, "dedup.an_open_chain_is_found"),
        (mutants.AlwaysCreates, "concurrency.a_key_is_taken_once_and_found"),
        (mutants.IgnoresExclude, "dedup.excluded_chains_do_not_match"),
        (mutants.NeverBlocks, "blockers.an_open_blocker_blocks"),
        (mutants.AnswersInIdOrder, "create.ids_need_not_ascend"),
        (mutants.LosesTheWakeUp, "unblock.completion_frees_the_dependent"),
        (mutants.LosesTheWakeUp, "concurrency_blockers.started_while_its_blocker_completes"),
        (mutants.DoesNotReportTheFreed, "unblock.many_dependents"),
        (mutants.FreesABatchTwice, "unblock_many.a_step_counts_each_job_once"),
        (mutants.FreesJobsThatCameLater, "unblock_many.a_job_started_meanwhile_sees_the_chain_completed"),
        (mutants.FreesEveryoneAtOnce, "unblock_many.the_first_thousand_are_freed_at_once"),
        (mutants.ForgetsTheRest, "unblock_many.steps_free_the_rest_in_id_order"),
        (mutants.LimitsByHand, "unblock_many.without_a_worker_all_are_freed_at_once"),
        (mutants.CountsAttemptsGivenBack, "put_back.giving_back"),
        (mutants.CountsUncountedRuns, "put_back.an_uncounted_run_keeps_the_error"),
        (mutants.GivesBackAsRun, "put_back.giving_back_leaves_no_trace_of_a_run"),
        (mutants.ForgetsRetriedRuns, "claim.a_retried_job_has_run_before"),
        (mutants.ForgetsTheDead, "registry.where_a_type_was_handled_by_the_dead"),
        (mutants.CountsLateWorkers, "registry.types_of_a_late_worker"),
        (mutants.KeepsWhatWasToldFirst, "registry.telling_again"),
        (mutants.ExplainsByIds, "explaining.of_a_due_job_that_waits_behind_others"),
        (mutants.NullIsNoOutput, "values.null_is_an_output"),
        (mutants.RetriesAtOnce, "put_back.putting_back"),
        (mutants.NeverLosesALease, "renew.lost_claims_are_named"),
        (mutants.ReapsIgnoredJobs, "reap.ignored_jobs_are_kept"),
        (mutants.ReapsWithoutALimit, "reap.oldest_leases_first"),
        (mutants.CountsWhatNeverBegan, "horizon.above_the_horizon_nothing_began"),
        (mutants.MovesTheHorizonBack, "horizon.the_horizon_moves_forward"),
        (mutants.AlwaysCascades, "delete_cascade.without_it_blockers_stay"),
        (mutants.CancelsOneLevel, "cancel.a_cascade_goes_upward_at_every_depth"),
        (mutants.DeletesWhatOthersNeed, "delete.a_chain_that_is_waited_for_stays"),
        (mutants.PagesFromTheStart, "listing.pages_follow_each_other"),
        (mutants.AlwaysAscending, "listing.jobs_come_in_id_order"),
        (mutants.NeverSleeps, "next_available.the_earliest_decides"),
        (mutants.ForgetsFailures, "stats.open_and_failed_jobs_are_counted"),
        (mutants.FindsNoEnd, "examining.pages_compare_the_same_rows"),
        (mutants.CountsTheFreedToo, "examining.jobs_that_are_still_to_be_freed_are_not_damaged"),
        (mutants.RepairsAnything, "examining.nothing_is_repaired_that_is_not_damaged"),
        (mutants.KeepsSavepoints, "transactions.a_savepoint_that_fails_is_undone"),
        (mutants.ForgetsTheFirstCommand, "transactions.a_transaction_begins_with_a_command"),
        (mutants.NeverRollsBack, "transactions.a_block_that_fails_rolls_back"),
    ],
)
def test_a_wrong_state_adapter_fails(mutant: type[Any], case: str) -> None:
    assert_only_failure(run_state_conformance_sync(harness_of(mutant), only=case), case)


def test_a_right_state_adapter_passes_the_same_way() -> None:
    report = run_state_conformance_sync(harness_of(MemoryOperations), only=["fencing", "dedup", "dedup_writes"])

    assert len(report.passed) > 30
    assert not report.failed


class NeverDisposes(InProcessNotify):
    async def listen(self, topic: Topic, callback: Callback) -> Dispose:
        dispose_of_it = await super().listen(topic, callback)
        if topic != "job_scheduled":
            return dispose_of_it

        async def dispose() -> None:
            return

        return dispose


class BudgetsReplaceEachOther(InProcessNotify):
    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self.hub._hints.update(counts)


class NeverCloses(InProcessNotify):
    async def close(self) -> None:
        return


class SwallowsTheLast(InProcessNotify):
    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        swallows = topic == "chain_ended" and len(values) > 1
        await super().publish(topic, values[:-1] if swallows else values)


class Repeats(InProcessNotify):
    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        await super().publish(topic, [*values, *values] if topic == "ownership_lost" else values)


@pytest.mark.parametrize(
    ("mutant", "case"),
    [
        (NeverDisposes, "publish.a_disposed_listener_hears_no_more"),
        (BudgetsReplaceEachOther, "hints.budgets_add_up"),
        (NeverCloses, "closing.later_calls_are_refused"),
        (SwallowsTheLast, "publish.several_values_of_one_call"),
        (Repeats, "publish.a_listener_hears"),
    ],
)
def test_a_wrong_notify_adapter_fails(
    mutant: type[InProcessNotify], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuert_conformance.notify.channel._HEAR_SECONDS", 0.2)

    report = run_notify_conformance_sync(lambda: NotifyHarness(mutant(InProcessHub())), only=case)

    assert_only_failure(report, case)


class ComplexCodec:
    """Right: complex numbers as two floats."""

    def supports(self, type_: type[Any], /) -> bool:
        return type_ is complex

    def encode(self, value: Any, /) -> Any:
        return [value.real, value.imag]

    def decode(self, type_: type[Any], data: Any, /) -> Any:
        real, imag = data
        return complex(real, imag)


class SupportsEverything(ComplexCodec):
    def supports(self, type_: type[Any], /) -> bool:
        return True


class EncodesTuples(ComplexCodec):
    def encode(self, value: Any, /) -> Any:
        return {"parts": (value.real, value.imag)}

    def decode(self, type_: type[Any], data: Any, /) -> Any:
        return complex(*data["parts"])


class LosesThePart(ComplexCodec):
    def encode(self, value: Any, /) -> Any:
        return [value.real, 0.0]


class TakesAnything(ComplexCodec):
    def decode(self, type_: type[Any], data: Any, /) -> Any:
        return complex(*data) if isinstance(data, list) and len(data) == 2 else 0j


class UsesUpTheData(ComplexCodec):
    def decode(self, type_: type[Any], data: Any, /) -> Any:
        imag = data.pop()
        data.append(0.0)
        return complex(data[0], imag)


class IntegerKeys(ComplexCodec):
    def encode(self, value: Any, /) -> Any:
        return {0: value.real, 1: value.imag}

    def decode(self, type_: type[Any], data: Any, /) -> Any:
        return complex(data[0], data[1])


@pytest.mark.parametrize(
    ("codec", "case"),
    [
        (SupportsEverything, "values.plain_types_are_left_alone"),
        (EncodesTuples, "values.encoded_values_are_json"),
        (IntegerKeys, "values.encoded_values_are_json"),
        (LosesThePart, "values.values_come_back"),
        (TakesAnything, "values.misfits_are_refused"),
        (UsesUpTheData, "values.decoding_changes_nothing"),
    ],
)
def test_a_wrong_codec_fails(codec: type[ComplexCodec], case: str) -> None:
    def harness() -> CodecHarness:
        return CodecHarness(codec(), [(complex, complex(1, 2))], [(complex, [1.0])])

    assert_only_failure(run_codec_conformance_sync(harness, only=case), case)


def test_a_right_codec_passes_and_says_what_it_could_not_check() -> None:
    report = run_codec_conformance_sync(lambda: CodecHarness(ComplexCodec(), [(complex, complex(1, 2))]))

    assert not report.failed, str(report)
    assert [(outcome.name, outcome.reason) for outcome in report.skipped] == [
        ("values.misfits_are_refused", "the harness has no misfits")
    ]
