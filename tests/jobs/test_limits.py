"""Limits as users declare them."""

from __future__ import annotations

from typing import Any

import pytest

import queuert
from queuert import EntryJob, InvalidArgument, InvalidJobType, JobTypeValidationError, Limit, Rate, RateLimited
from queuert.records.limits import LimitRule


def test_a_weight_is_a_number_a_field_or_a_function() -> None:
    assert Limit(concurrency=1, weight=3).rule == LimitRule(1, weight=3.0)
    assert Limit(concurrency=1, weight="plan").rule == LimitRule(1, weight=None)
    assert Limit(concurrency=1, weight=lambda job: 2).rule == LimitRule(1, weight=None)


@pytest.mark.parametrize("weight", [0, -1, 1001, True, None, float("nan"), [1]])
def test_a_weight_that_is_none(weight: Any) -> None:
    with pytest.raises(InvalidArgument, match="the name of a field or a function"):
        Limit(concurrency=1, weight=weight)


def test_a_weight_that_is_no_field() -> None:
    with pytest.raises(InvalidJobType, match="the weight of its limit is 'plan', which is not a field"):

        class Sync(EntryJob[None], name="sync", limit=Limit(concurrency=1, weight="plan")):
            tenant: int


class Index(EntryJob[None], name="index", limit=Limit(by="tenant", concurrency=1, weight="plan")):
    tenant: int
    plan: Any = 1.0


class Mail(EntryJob[None], name="mail", limit=Limit(concurrency=1, weight=lambda job: 1 / job.urgency)):
    urgency: int


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Index(tenant=1, plan=0), "limit 'index': weight must be a number from 0.001 to 1,000, got 0"),
        (Index(tenant=1, plan="high"), "got 'high'"),
        (Mail(urgency=0), "limit 'mail': ZeroDivisionError: division by zero"),
    ],
)
def test_a_job_whose_weight_is_wrong_is_not_stored(job: Any, message: str) -> None:
    with queuert.connect_sync("memory://", jobs=[Index, Mail]) as client:
        with pytest.raises(JobTypeValidationError) as caught, client.transaction() as tx:
            client.start(tx, job)
        assert message in str(caught.value)
        assert caught.value.code == "invalid_limit_weight"
        assert client.list_jobs().items == []


WRONG: list[dict[str, Any]] = [
    {"ordered": True},
    {"ordered": True, "concurrency": 2},
    {},
    {"concurrency": 0},
    {"rate": 5},
]
RATES: list[tuple[Any, Any]] = [(0, 1), (1, 0), (1.5, 1), (1, -1)]


def test_what_cannot_be_declared() -> None:
    for options in WRONG:
        with pytest.raises(InvalidArgument):
            Limit(**options)
    for number, per in RATES:
        with pytest.raises(InvalidArgument):
            Rate(number, per)
    for seconds in (0, -1):
        with pytest.raises(InvalidArgument):
            RateLimited(seconds)
