"""Chains and stored jobs as users read them."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from tests.jobs import shop
from tests.jobs.shop import ChargeCard, Receipt, ReserveStock

from queuert.base.statuses import STATUSES, Status
from queuert.errors import ChainNotCompleted, JobTypeValidationError, UnknownJobType
from queuert.jobs import Chain, JobRecord, Registry
from queuert.records.model import BlockerRow, ChainRow, JobRow

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)
ERROR = b'{"code":"TIMEOUT","message":"too slow"}'


def stored(**changes: Any) -> JobRow:
    values: dict[str, Any] = {
        "id": "a",
        "type_name": "reserve-stock",
        "chain_id": "a",
        "chain_type": "reserve-stock",
        "chain_index": 0,
        "input": b'{"order_id":7}',
        "output": None,
        "status": "pending",
        "priority": 100,
        "created_at": MOMENT,
        "scheduled_at": MOMENT,
        "completed_at": None,
        "completed_by": None,
        "continued_to": None,
        "attempt": 0,
        "last_attempt_at": None,
        "last_error": None,
        "leased_by": None,
        "leased_until": None,
        "token": None,
        "deadline": None,
        "dedup_key": None,
        "blockers_left": 0,
        "trace_context": None,
        "chain_trace_context": None,
    }
    return JobRow(**(values | changes))


@pytest.fixture
def registry() -> Registry:
    return Registry([shop])


class TestChain:
    def test_just_started(self, registry: Registry) -> None:
        chain = registry.new_chain("a", "reserve-stock", "blocked")

        assert (chain.id, chain.chain_type, chain.status) == ("a", "reserve-stock", "blocked")
        assert (chain.current_job_id, chain.current_job_type) == ("a", "reserve-stock")
        assert chain.deduplicated is False
        assert chain.last_error is None
        assert repr(chain) == "<Chain reserve-stock a: blocked>"

    def test_from_storage(self, registry: Registry) -> None:
        first = stored(status="completed", continued_to="b")
        current = stored(
            id="b", type_name="charge-card", chain_index=1, status="failed", completed_at=MOMENT, last_error=ERROR
        )

        chain = registry.chain_from_row(ChainRow(first, current), deduplicated=True)

        assert (chain.id, chain.chain_type, chain.status) == ("a", "reserve-stock", "failed")
        assert (chain.current_job_id, chain.current_job_type) == ("b", "charge-card")
        assert (chain.created_at, chain.completed_at) == (MOMENT, MOMENT)
        assert chain.deduplicated
        assert chain.last_error == {"code": "TIMEOUT", "message": "too slow"}
        assert repr(chain) == "<Chain reserve-stock a: failed, deduplicated>"

    def test_the_output_is_typed_and_read_once(self, registry: Registry) -> None:
        row = stored(status="completed", output=b'{"payment_id":"p"}')

        chain: Chain[ReserveStock] = registry.chain_from_row(ChainRow(row, row))

        assert chain.output == Receipt("p")
        assert chain.output is chain.output

    @pytest.mark.parametrize("status", [status for status in STATUSES if status != "completed"])
    def test_without_completion_there_is_no_output(self, registry: Registry, status: Status) -> None:
        chain = registry.new_chain("a", "reserve-stock", status)

        with pytest.raises(ChainNotCompleted) as caught:
            _ = chain.output
        assert (caught.value.chain_id, caught.value.status) == ("a", status)

    def test_of_which_only_the_id_is_known(self, registry: Registry) -> None:
        chain = registry.bare_chain("a", "reserve-stock")

        assert chain.status is None
        assert repr(chain) == "<Chain reserve-stock a: status unknown>"
        with pytest.raises(ChainNotCompleted, match="unknown"):
            _ = chain.output

    def test_from_a_blocker(self, registry: Registry) -> None:
        chain = registry.chain_from_blocker(BlockerRow("r", "fetch-rate", "completed", b'"2.5"'))

        assert chain.output == Decimal("2.5")
        assert chain.current_job_id is None

    def test_of_an_unregistered_type_the_output_is_plain_json(self, registry: Registry) -> None:
        row = stored(type_name="gone", status="completed", output=b'{"payment_id":"p"}')

        assert registry.chain_from_row(ChainRow(row, row)).output == {"payment_id": "p"}
        assert registry.chain_from_blocker(BlockerRow("x", "gone", "completed", b"[1]")).output == [1]
        assert registry.new_chain("x", "gone", "pending").chain_type == "gone"

    def test_a_completed_chain_without_stored_output_resolved_to_none(self) -> None:
        assert Chain[Any]("a", "gone", "completed").output is None

    def test_an_output_that_does_not_fit_is_an_error_when_it_is_read(self, registry: Registry) -> None:
        row = stored(status="completed", output=b"7")

        chain = registry.chain_from_row(ChainRow(row, row))

        with pytest.raises(JobTypeValidationError) as caught:
            _ = chain.output
        assert caught.value.code == "invalid_output"

    def test_is_the_same_chain_if_the_id_is(self, registry: Registry) -> None:
        one = registry.new_chain("a", "reserve-stock", "pending")

        assert one == registry.bare_chain("a", "reserve-stock")
        assert one != registry.bare_chain("b", "reserve-stock")
        assert one != "a"
        assert len({one, registry.bare_chain("a", "reserve-stock")}) == 1


class TestJobRecord:
    def test_shows_what_is_stored(self, registry: Registry) -> None:
        row = stored(status="running", attempt=2, leased_by="w", leased_until=MOMENT, last_error=ERROR, dedup_key="k")

        record: JobRecord[ReserveStock] = registry.record(row)

        shown = set(JobRow.__struct_fields__) - {
            *("input", "output", "last_error", "token", "blockers_left", "trace_context", "chain_trace_context"),
            *("type_name", "attempt", "lane"),
        }
        for name in shown:
            assert getattr(record, name) == getattr(row, name)
        assert (record.job_type, record.attempt_number) == (row.type_name, row.attempt)
        assert record.last_error == {"code": "TIMEOUT", "message": "too slow"}
        assert record.input == {"order_id": 7}
        assert record.job == ReserveStock(order_id=7)
        assert record.output is None
        assert repr(record) == "<JobRecord reserve-stock a: running, attempt 2>"

    def test_the_output_is_typed(self, registry: Registry) -> None:
        record: JobRecord[ReserveStock] = registry.record(
            stored(status="completed", output=b'{"payment_id":"p"}', completed_by="w", completed_at=MOMENT)
        )

        assert record.output == Receipt("p")
        assert record.last_error is None

    def test_of_an_unregistered_type_can_be_read_but_for_the_job(self, registry: Registry) -> None:
        record = registry.record(stored(type_name="gone", input=b"[1]", output=b'{"a":null}'))

        assert record.input == [1]
        assert record.output == {"a": None}
        with pytest.raises(UnknownJobType) as caught:
            _ = record.job
        assert caught.value.job_type == "gone"

    def test_whose_input_does_not_fit_can_be_read_but_for_the_job(self, registry: Registry) -> None:
        record = registry.record(stored(type_name="charge-card", input=b'{"order_id":"x"}'))

        assert record.input == {"order_id": "x"}
        with pytest.raises(JobTypeValidationError) as caught:
            _ = record.job
        assert caught.value.code == "invalid_input"
        assert caught.value.details["field"] == "order_id"

    def test_the_job_of_a_later_type(self, registry: Registry) -> None:
        record: JobRecord[ChargeCard] = registry.record(
            stored(type_name="charge-card", input=b'{"order_id":1,"amount":"9.50"}')
        )

        assert record.job.amount == Decimal("9.50")

    def test_is_equal_to_a_record_of_the_same_moment(self, registry: Registry) -> None:
        one = registry.record(stored())

        assert one == registry.record(stored())
        assert hash(one) == hash(registry.record(stored()))
        assert one != registry.record(stored(attempt=1))
        assert one != "a"
