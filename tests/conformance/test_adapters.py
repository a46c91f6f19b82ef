"""The suites over every adapter and provider of this package."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pydantic
from tests.conformance.driver_tests import add_soak_tests, add_transaction_tests
from tests.conformance.harnesses import (
    InProcessHarness,
    NoNotifyHarness,
    SqliteHubHarness,
    aiosqlite_harness,
    async_memory,
    async_sqlite,
    sync_memory,
    sync_sqlite,
)

from queuert.jobs.codecs.codec import PydanticCodec
from queuert_conformance import CodecHarness
from queuert_conformance.pytest_plugin import codec_tests, notify_tests, state_tests


class Address(pydantic.BaseModel):
    street: str
    zip_code: str | None = pydantic.Field(alias="zip")


class Order(pydantic.BaseModel):
    number: int
    total: Decimal
    day: date
    at: datetime
    reference: UUID
    to: Address
    lines: list[tuple[str, int]] = []
    notes: dict[str, str | None] = {}


class StrictPoint(pydantic.BaseModel, strict=True, frozen=True):
    at: datetime
    x: float


MOMENT = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def pydantic_harness() -> CodecHarness:
    order = Order(
        number=7,
        total=Decimal("12.30"),
        day=date(2030, 1, 2),
        at=MOMENT,
        reference=UUID(int=7),
        to=Address(street="Zoë 🚲 Straße", zip="1010"),
        lines=[("a", 1), ("b", 2)],
        notes={"x": None, "": "ö"},
    )
    samples = [(Order, order), (Address, Address(street="", zip=None)), (StrictPoint, StrictPoint(at=MOMENT, x=0.5))]
    return CodecHarness(PydanticCodec(), samples, [(Address, {"street": 5}), (Address, None), (Order, {})])


test_async_memory = state_tests(async_memory)
test_async_sqlite = state_tests(async_sqlite)
# These run the operations and the statements of the two above, with the same module of Python.
add_transaction_tests(globals(), sync_sqlite=sync_sqlite, aiosqlite=aiosqlite_harness)
add_soak_tests(globals(), all_sync_memory=sync_memory)

test_in_process = notify_tests(InProcessHarness)
test_sqlite_hub = notify_tests(SqliteHubHarness)
test_no_notify = notify_tests(NoNotifyHarness)

test_pydantic = codec_tests(pydantic_harness)
