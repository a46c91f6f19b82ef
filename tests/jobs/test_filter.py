"""Filters: what they accept, and their text, which is read back as it was written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.jobs import Charge, Greet
from tests.support.naming import short

from queuert import Chain, Filter, InvalidArgument
from queuert.base.statuses import STATUSES
from queuert.jobs.filter_text import NAMES

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
words = st.one_of(
    texts, st.sampled_from(["a b", 'a"b', "a\\b", "a,b", ":", "..", "\\", '"', "\u3000", "since:2h", "\n"])
)
lists = st.one_of(st.none(), st.lists(words, min_size=1, max_size=3))
moments = st.one_of(
    st.none(),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30))])).filter(
        lambda moment: 2 < moment.year < 9998
    ),
)
ranges = st.one_of(st.none(), st.tuples(moments, moments))
filters = st.builds(
    Filter,
    status=st.one_of(st.none(), st.lists(st.sampled_from(STATUSES), min_size=1)),
    type=lists,
    chain_type=lists,
    queue=lists,
    error=lists,
    created=ranges,
    ended=ranges,
    chain=lists,
    job=lists,
    key=lists,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(filters)
def test_the_text_of_a_filter_is_read_back(one: Filter) -> None:
    assert Filter.parse(str(one)) == one
    assert str(Filter.parse(str(one))) == str(one)
    assert hash(Filter.parse(str(one))) == hash(one)


@given(st.text())
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        found = Filter.parse(text, now=NOW)
    except InvalidArgument:
        return
    assert Filter.parse(str(found)) == found


def test_the_text_that_operators_write() -> None:
    found = Filter.parse("status:failed type:charge-card error:TIMEOUT since:2h", now=NOW)
    wanted = Filter(
        status="failed", type="charge-card", error="TIMEOUT", ended=(datetime(2026, 11, 17, 10, tzinfo=UTC), None)
    )
    assert found == wanted
    assert str(found) == "status:failed type:charge-card error:TIMEOUT ended:2026-11-17T10:00:00Z.."


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("  \n ", {}),
        ("status:failed,expired", {"status": ["expired", "failed"]}),
        ("type:a type:b,a", {"type": ["a", "b"]}),
        ("chain-type:a queue:mail", {"chain_type": "a", "queue": "mail"}),
        ('key:"a b","c\\"d"', {"key": ["a b", 'c"d']}),
        ("key:a:b", {"key": "a:b"}),
        ("since:90s", {"created": (NOW - timedelta(seconds=90), None)}),
        (
            "since:1d12h status:failed,running",
            {"status": ["failed", "running"], "created": (NOW - timedelta(hours=36), None)},
        ),
        (
            "status:completed since:2026-11-16T00:00+01:00",
            {"status": "completed", "ended": (datetime(2026, 11, 15, 23, tzinfo=UTC), None)},
        ),
        ("created:1w..1h", {"created": (NOW - timedelta(weeks=1), NOW - timedelta(hours=1))}),
        ("ended:..15m", {"ended": (None, NOW - timedelta(minutes=15))}),
        ("chain:1 job:2", {"chain": "1", "job": "2"}),
    ],
    ids=short,
)  # fmt: skip
def test_what_is_read(text: str, wanted: dict[str, Any]) -> None:
    assert Filter.parse(text, now=NOW) == Filter(**wanted)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour:red", "no word 'colour': it has chain, chain-type, created, ended, error, job, key, queue, since, "),
        ("failed", "words like status:failed, got 'failed'"),
        ("status:", "status: has no value"),
        ("status: failed", "status: has no value"),
        ("status:done", "status must be one of blocked, pending"),
        ('key:"open', "double quotes"),
        ('key:a"b', "double quotes"),
        ("key:a,", "double quotes"),
        ("since:yesterday", "neither a time with its zone"),
        ("since:2026-01-01", "since: '2026-01-01' is neither a time with its zone"),
        ("since:2h since:3h", "one value for since"),
        ("since:2h,3h", "one value for since"),
        ("created:2h", "takes a range like"),
        ("created:..", "takes a range like"),
        ("created:2h.. created:3h..", "one value for created"),
        ("created:2h.. since:3h", "since means created here"),
        ("ended:2h.. status:failed since:3h", "since means ended here"),
        ("since:999999999w", "neither a time"),
        ("since:99999999d", "neither a time"),
        ('key:""', "must not be empty"),
        ("key:\0", "NUL"),
    ],
    ids=short,
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=".*".join(message.split(".*"))):
        Filter.parse(text, now=NOW)


def test_the_known_words_are_the_fields() -> None:
    fields = {name.replace("_", "-") for name in Filter.__slots__}
    assert fields == {*NAMES} - {"since"}


def test_values_are_names_and_ids() -> None:
    chain: Chain[Any] = Chain("c", "greet")
    assert Filter(type=Greet, chain_type=[Charge, Greet]) == Filter(type="greet", chain_type=("greet", "charge"))
    assert Filter(chain=chain) == Filter(chain=["c", chain]) == Filter(chain="c")
    assert Filter(created=(None, None)) == Filter()
    assert Filter(created=(NOW.astimezone(timezone(timedelta(hours=5))), None)).created == (NOW, None)
    assert repr(Filter(status="failed")).startswith("Filter(status=('failed',), type=None")


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "done"}, {"status": []}, {"status": 1}, {"type": 7}, {"type": ""}, {"type": []}, {"queue": [None]},
        {"error": b"x"}, {"key": "\ud800"}, {"key": "x" * 1001}, {"chain": [7]}, {"job": Greet}, {"created": NOW},
        {"created": (NOW,)}, {"created": (NOW, "x")}, {"ended": (datetime(2026, 1, 1), None)},  # noqa: DTZ001
    ],
    ids=short,
)  # fmt: skip
def test_wrong_values_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Filter(**wrong)


def test_only_text_is_parsed() -> None:
    wrong: Any = 7
    with pytest.raises(InvalidArgument, match="parsed from text"):
        Filter.parse(wrong)


def test_a_filter_does_not_change() -> None:
    one: Any = Filter(status="failed")
    with pytest.raises(AttributeError):
        one.status = None
