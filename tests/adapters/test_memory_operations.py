"""What the memory adapter decides where the port leaves room, and what its indexes must get right."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.adapters.memory_support import ALL, START, Memory, new_job, next_job, queue

from queuert.base.arguments import Duration
from queuert.errors import BlockerNotFound, InvalidArgument, InvalidCursor, JobIdExists, JobTypeMismatch
from queuert.records.dedup import Dedup
from queuert.records.listings import ChainFilter, JobFilter, PageRequest
from queuert.records.model import BlockerRef, BlockerRow, ClaimRequest, Lease, Settlement, TypeLimit, Unblocked, When


class TestCreate:
    def test_a_key_is_looked_at_before_the_id(self) -> None:
        memory = Memory()
        memory.create(new_job("a", dedup=Dedup("k")))
        (made,) = memory.do(memory.ops.create_jobs([new_job("a", dedup=Dedup("k"))]))
        assert made.existing is not None
        assert (made.job_id, made.chain_id, made.status, made.ready) == ("a", "a", "pending", False)
        with pytest.raises(JobIdExists):
            memory.create(new_job("a", dedup=Dedup("other")))

    def test_a_window_of_any_length(self) -> None:
        memory = Memory()
        memory.create(new_job("a", dedup=Dedup("k")))
        memory.pass_time(10)
        cases: list[tuple[Duration, bool]] = [
            (1e12, True),
            (10.000001, True),
            (10, False),
            (timedelta(seconds=9), False),
        ]
        for window, found in cases:
            with memory.rolled_back() as tx:
                key = Dedup("k", scope="any", window=window)
                (made,) = memory.do(memory.ops.create_jobs([new_job("b", dedup=key)]), tx)
                assert (made.existing is not None) == found

    def test_blockers_are_checked(self) -> None:
        memory = Memory()
        memory.create(new_job("a"))
        (first,) = memory.claim().jobs
        memory.complete(first, continuation=next_job(first.job, "a2"))
        with pytest.raises(BlockerNotFound):
            memory.create(new_job("b", waits_for=["a2"]))  # a job, but no chain
        with pytest.raises(BlockerNotFound):
            memory.create(new_job("b", waits_for=["b"]))
        with pytest.raises(JobTypeMismatch) as caught:
            memory.create(new_job("b", waits_for=["a"], chain_type="other"))
        assert (caught.value.job_id, caught.value.expected, caught.value.actual) == ("a", "other", "t")

    def test_a_moment_beyond_the_calendar_is_refused(self) -> None:
        memory = Memory()
        with pytest.raises(InvalidArgument, match="9999"):
            memory.create(new_job("a", schedule=When(after=1e15)))


class TestClaim:
    def test_order_across_queues_priorities_times_and_ids(self) -> None:
        memory = Memory()
        memory.create(new_job("b", "t"), new_job("a", "u"), new_job("c", "u", priority=1))
        memory.create(new_job("d", "v", priority=-9), new_job("0", "t", schedule=When(after=1)))
        memory.pass_time(2)
        queues = queue("v", priority=2), queue("t", priority=1), queue("u", priority=1)
        assert memory.claimed_ids(*queues) == ["c", "a", "b", "0", "d"]

    def test_future_jobs_are_claimed_when_due_and_stay_unclaimed_if_the_clock_goes_back(self) -> None:
        memory = Memory()
        memory.create(new_job("b", priority=1, schedule=When(after=10)), new_job("c", schedule=When(after=5)))
        assert memory.claimed_ids() == []
        assert memory.do(memory.ops.next_available_in(["t", "nothing"])).next_in == 5.0
        memory.pass_time(20)
        assert memory.do(memory.ops.next_available_in(["t"])).next_in == 0.0
        memory.pass_time(-20)
        assert memory.do(memory.ops.next_available_in(["t"])).next_in == 5.0
        assert memory.claimed_ids() == []
        memory.pass_time(20)
        assert memory.claimed_ids() == ["b", "c"]
        assert memory.do(memory.ops.next_available_in(["t"])).next_in is None

    def test_stale_entries_are_passed_over(self) -> None:
        memory = Memory()
        memory.create(*(new_job(job_id) for job_id in "abcdef"))
        memory.create(new_job("g", schedule=When(after=10)), new_job("h", schedule=When(after=11)))
        memory.end("a", "cancelled")
        memory.do(memory.ops.delete_chains(["b"], cascade=False))
        (claimed,) = memory.claim(limit=1).jobs
        later = Settlement(job_id="c", token=claimed.job.token, status="pending", schedule=When(after=60))
        memory.do(memory.ops.settle([later]))
        memory.end("g", "cancelled")
        assert memory.do(memory.ops.next_available_in(["t"])).next_in == 0.0
        memory.do(memory.ops.trigger(["h"]))
        assert memory.claimed_ids() == ["d", "e", "f", "h"]
        assert memory.do(memory.ops.next_available_in(["t"])).next_in == 60.0

    def test_more_is_about_the_limit_alone(self) -> None:
        memory = Memory()
        memory.create(*(new_job(job_id) for job_id in "abcd"))
        with memory.rolled_back() as tx:
            assert memory.claim(limit=4, tx=tx).more is False
        with memory.rolled_back() as tx:
            assert memory.claim(limit=3, tx=tx).more is True
        with memory.rolled_back() as tx:
            assert memory.claim(queue(TypeLimit("t", 3, 60.0)), limit=3, tx=tx).more is False
        with memory.rolled_back() as tx:
            assert memory.claim(queue("t", max_concurrency=3), limit=3, tx=tx).more is False
        with memory.rolled_back() as tx:
            assert memory.claim(queue("t", max_concurrency=4), limit=3, tx=tx).more is True
        assert memory.claim(limit=0).more is True

    def test_a_type_that_is_asked_for_twice_is_claimed_once(self) -> None:
        memory = Memory()
        memory.create(*(new_job(job_id) for job_id in "abc"))
        queues = queue(TypeLimit("t", 1, 60.0)), queue("t"), queue("t", priority=1)
        assert memory.claimed_ids(*queues) == ["a", "b", "c"]

    def test_caps_count_what_runs(self) -> None:
        memory = Memory()
        memory.create(*(new_job(job_id) for job_id in "abcd"), new_job("x", "u"))
        assert memory.claimed_ids(queue("u")) == ["x"]
        capped = ClaimRequest("w", 10, (queue("t"),), cluster_cap=3)
        assert [c.job.id for c in memory.do(memory.ops.claim(capped)).jobs] == ["a", "b"]
        assert memory.do(memory.ops.claim(capped)).jobs == []
        memory.do(memory.ops.delete_chains(["x"], cascade=False))
        assert [c.job.id for c in memory.do(memory.ops.claim(capped)).jobs] == ["c"]

    def test_blockers_come_with_the_claim(self) -> None:
        memory = Memory()
        memory.create(new_job("a", "u"), new_job("b", "u"))
        memory.create(new_job("c", waits_for=["b", "a", "b"], chain_type="u"))
        memory.do(
            memory.ops.settle([Settlement(job_id=each, token=None, status="completed", output=b"1") for each in "ab"])
        )
        (claimed,) = memory.claim().jobs
        assert claimed.blockers == (
            BlockerRow("b", "u", "completed", b"1"),
            BlockerRow("a", "u", "completed", b"1"),
        )


class TestLeases:
    def test_reaping_goes_by_the_end_of_the_lease(self) -> None:
        memory = Memory()
        memory.create(*(new_job(job_id) for job_id in "abcd"))
        tokens = {c.job.id: c.job.token or 0 for c in memory.claim().jobs}
        leases = [Lease("a", tokens["a"], 3), Lease("b", tokens["b"], 1), Lease("c", tokens["c"], 2), Lease("d", 0, 9)]
        assert memory.do(memory.ops.renew(leases)) == ["d"]
        memory.pass_time(3)
        reaped = memory.do(memory.ops.reap(["t", "t", "nothing"], ["c"], 1, b'{"code": "x"}'))
        assert [(row.id, row.status, row.last_error) for row in reaped] == [("b", "pending", b'{"code": "x"}')]
        assert [row.id for row in memory.do(memory.ops.reap(["t"], ["c"], 9, b"{}"))] == ["a"]
        assert memory.do(memory.ops.renew([Lease("a", tokens["a"], 3)])) == ["a"]
        assert memory.do(memory.ops.reap(["u"], [], 9, b"{}")) == []


class TestSettle:
    def test_one_batch_ends_jobs_first_then_frees_dependents_then_continues(self) -> None:
        memory = Memory()
        memory.create(new_job("a"), new_job("b"), new_job("c", waits_for=["a"]), new_job("d", waits_for=["a", "b"]))
        blocked_by_a = (BlockerRef("a", "t"),)
        row = memory.job("b")
        assert row is not None
        settled = memory.do(
            memory.ops.settle(
                [
                    Settlement(job_id="a", token=None, status="completed"),
                    Settlement(job_id="a", token=None, status="cancelled"),
                    Settlement(
                        job_id="b",
                        token=None,
                        status="completed",
                        continuation=next_job(row, "b2", blockers=blocked_by_a),
                    ),
                ]
            )
        )
        assert settled.applied == [True, False, True]
        assert settled.unblocked == [Unblocked("c", "t", True)]
        assert [made and made.status for made in settled.created] == [None, None, "pending"]
        rows = memory.do(memory.ops.get_jobs(["b2", "d"]))
        assert [row and (row.status, row.blockers_left) for row in rows] == [("pending", 0), ("blocked", 1)]

    def test_a_job_cancelled_in_the_batch_that_would_free_it_stays_cancelled(self) -> None:
        memory = Memory()
        memory.create(new_job("a"), new_job("c", waits_for=["a"]))
        ends = [
            Settlement(job_id="a", token=None, status="completed"),
            Settlement(job_id="c", token=None, status="cancelled"),
        ]
        assert memory.do(memory.ops.settle(ends)).unblocked == []
        assert memory.status("c") == "cancelled"

    def test_two_blockers_in_one_batch_free_a_job_once(self) -> None:
        memory = Memory()
        memory.create(new_job("a"), new_job("b"))
        memory.create(new_job("c", waits_for=["a", "b"], schedule=When(after=1)))
        settled = memory.do(
            memory.ops.settle([Settlement(job_id=each, token=None, status="completed") for each in "ab"])
        )
        assert settled.unblocked == [Unblocked("c", "t", False)]

    def test_putting_back_needs_a_token(self) -> None:
        memory = Memory()
        memory.create(new_job("a"), new_job("b"))
        with pytest.raises(InvalidArgument, match="token"):
            memory.do(
                memory.ops.settle(
                    [
                        Settlement(job_id="a", token=None, status="completed"),
                        Settlement(job_id="b", token=None, status="pending"),
                    ]
                )
            )
        assert memory.status("a") == "pending"

    def test_a_job_named_twice_is_answered_twice(self) -> None:
        memory = Memory()
        memory.create(new_job("a"))
        memory.end("a", "failed")
        first, second, unknown = memory.do(memory.ops.retry(["a", "a", "x"]))
        assert first is not None
        assert first == second
        assert unknown is None
        assert memory.do(memory.ops.trigger(["a", "a", "x"])) == [first, first, None]


class TestDelete:
    def test_cascade_follows_blockers_of_every_job_of_a_chain(self) -> None:
        memory = Memory()
        memory.create(new_job("a"), new_job("b", waits_for=["a"]), new_job("c"), new_job("z", dedup=Dedup("k")))
        row = memory.job("z")
        assert row is not None
        following = next_job(row, "z2", blockers=(BlockerRef("b", "t"), BlockerRef("c", "t")))
        memory.do(memory.ops.settle([Settlement(job_id="z", token=None, status="completed", continuation=following)]))
        refused = memory.do(memory.ops.delete_chains(["c", "a"], cascade=True))
        assert (refused.chains, refused.waiting) == ([], {"a": ["b"], "c": ["z2"]})
        deleted = memory.do(memory.ops.delete_chains(["x", "z", "z"], cascade=True))
        assert [chain.first.id for chain in deleted.chains] == ["z", "a", "b", "c"]
        assert deleted.chains[0].current.id == "z2"
        assert memory.do(memory.ops.list_jobs(JobFilter(), ALL)).rows == []
        tables = memory.store.committed
        assert (tables.jobs, tables.blockers, tables.keys, tables.pending) == ({}, {}, {}, [])

    def test_jobs_that_have_ended_lose_the_edge_only(self) -> None:
        memory = Memory()
        memory.create(new_job("a"), new_job("b"), new_job("c", waits_for=["a", "b"]))
        memory.end("c", "cancelled")
        assert [chain.first.id for chain in memory.do(memory.ops.delete_chains(["a"], cascade=False)).chains] == ["a"]
        (blockers,) = memory.do(memory.ops.job_blockers(["c"]))
        assert [blocker.chain_id for blocker in blockers] == ["b"]

    def test_the_id_of_a_later_job_is_no_chain(self) -> None:
        memory = Memory()
        memory.create(new_job("a"))
        (claimed,) = memory.claim().jobs
        memory.complete(claimed, continuation=next_job(claimed.job, "a2"))
        assert memory.do(memory.ops.delete_chains(["a2"], cascade=False)).chains == []
        assert memory.do(memory.ops.get_chains(["a2"])) == [None]
        assert memory.do(memory.ops.list_chain_jobs("a2", ALL)) == []


class TestListing:
    @pytest.fixture
    def memory(self) -> Memory:
        memory = Memory()
        for job_id in "caedb":
            memory.create(new_job(job_id, "t" if job_id < "d" else "u"))
            memory.pass_time(1)
        memory.create(new_job("f", waits_for=["a"]))
        memory.end("b")
        (claimed,) = memory.claim(limit=1).jobs
        assert claimed.job.id == "c"
        memory.complete(claimed, continuation=next_job(claimed.job, "x"))
        return memory

    def test_pages_of_jobs(self, memory: Memory) -> None:
        def ids(page: PageRequest, **where: object) -> list[str]:
            return [row.id for row in memory.do(memory.ops.list_jobs(JobFilter(**where), page)).rows]  # type: ignore[arg-type]

        assert ids(PageRequest(3)) == ["a", "b", "c"]
        assert ids(PageRequest(3, "c")) == ["d", "e", "f"]
        assert ids(PageRequest(3, "bb", "desc")) == ["b", "a"]
        assert ids(PageRequest(2, None, "desc")) == ["x", "f"]
        assert ids(ALL, job_ids=("f", "a", "a", "nothing")) == ["a", "f"]
        assert ids(ALL, types=("u",)) == ["d", "e"]
        assert ids(ALL, statuses=("completed",)) == ["b", "c"]
        assert ids(
            ALL, created_from=START + timedelta(microseconds=1), created_before=START + timedelta(seconds=3)
        ) == ["a", "e"]

    def test_chains_by_status_are_sorted_by_their_current_job(self, memory: Memory) -> None:
        def ids(page: PageRequest, **where: object) -> list[str]:
            return [row.first.id for row in memory.do(memory.ops.list_chains(ChainFilter(**where), page)).rows]  # type: ignore[arg-type]

        assert ids(ALL) == ["a", "b", "c", "d", "e", "f"]
        assert ids(ALL, statuses=("pending",)) == ["a", "d", "e", "c"]
        assert ids(PageRequest(2, "e"), statuses=("pending",)) == ["c"]
        assert ids(ALL, statuses=("completed",)) == ["b"]
        assert ids(ALL, chain_ids=("c", "x"), statuses=("pending",)) == ["c"]
        assert ids(ALL, root_only=True) == ["b", "c", "d", "e", "f"]

    def test_jobs_of_a_chain(self, memory: Memory) -> None:
        def ids(page: PageRequest) -> list[str]:
            return [row.id for row in memory.do(memory.ops.list_chain_jobs("c", page))]

        assert ids(ALL) == ["c", "x"]
        assert ids(PageRequest(1)) == ["c"]
        assert ids(PageRequest(9, "0")) == ["x"]
        assert ids(PageRequest(9, "1", "desc")) == ["c"]
        with pytest.raises(InvalidCursor):
            ids(PageRequest(1, "x"))

    def test_stats_leave_out_what_needs_nobody(self, memory: Memory) -> None:
        memory.end("d", "failed")
        memory.end("e", "cancelled")
        stats = memory.do(memory.ops.stats())
        assert [(s.job_type, s.blocked, s.pending, s.running, s.failed) for s in stats] == [
            ("t", 1, 2, 0, 0),
            ("u", 0, 0, 0, 1),
        ]
        assert [s.oldest_ready_age for s in stats] == [4.0, None]


def test_empty_arguments_need_no_command() -> None:
    ops = Memory().ops
    programs = [
        ops.create_jobs([]),
        ops.get_jobs([]),
        ops.get_chains([]),
        ops.claim(ClaimRequest("w", 1, ())),
        ops.renew([]),
        ops.settle([]),
        ops.reap([], [], 1, b"{}"),
        ops.next_available_in([]),
        ops.trigger([]),
        ops.retry([]),
        ops.delete_chains([], cascade=True),
        ops.job_blockers([]),
    ]
    for program in programs:
        with pytest.raises(StopIteration):
            next(program)
