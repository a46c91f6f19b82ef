"""Values that cannot be used get an error that says what to do, and nothing is written or announced."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from tests.support.jobs import Greet, Rate
from tests.support.naming import short
from tests.support.worlds import World, start

from queuert import Debounce, Throttle
from queuert.base.arguments import MAX_KEY_LENGTH, MAX_NAME_LENGTH
from queuert.client.client import Client
from queuert.errors import (
    InvalidArgument,
    InvalidJobType,
    JobTypeValidationError,
    TransactionRequired,
)
from queuert.jobs import Chain, EntryJob
from queuert.records.dedup import Dedup


class Any_(EntryJob[None], name="any"):
    value: Any


class Money(EntryJob[None], name="money"):
    amount: Decimal | None
    rate: float | None = None


NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001
EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))

BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"at": NAIVE}, r"at must have a time zone.*datetime\.now\(timezone\.utc\)"),
    ({"at": "tomorrow"}, "at must be a datetime, got str"),
    ({"at": datetime(2030, 1, 1, tzinfo=UTC).date()}, "at must be a datetime, got date"),
    ({"after": -1}, "after must be finite and not below 0"),
    ({"after": timedelta(seconds=-1)}, "after must be finite and not below 0"),
    ({"after": float("nan")}, "after must be finite"),
    ({"after": float("inf")}, "after must be finite"),
    ({"after": "5"}, "after must be a timedelta or seconds, got str"),
    ({"after": True}, "after must be a timedelta or seconds, got bool"),
    ({"after": 1e12}, "later than the year 9998"),
    ({"after": 1e300}, "later than the year 9998"),
    ({"after": timedelta.max}, "later than the year 9998"),
    ({"at": datetime.max.replace(tzinfo=UTC), "after": 1}, "not both"),
    ({"deadline": NAIVE}, "deadline must have a time zone"),
    ({"deadline": -1}, "deadline must be finite and not below 0"),
    ({"deadline": 1e12}, "later than the year 9998"),
    ({"deadline": "soon"}, "deadline must be a datetime, a timedelta or seconds"),
    ({"deadline": True}, "deadline must be"),
    ({"priority": "high"}, "priority must be an integer, got str"),
    ({"priority": 1.5}, "priority must be an integer, got float"),
    ({"priority": True}, "priority must be an integer, got bool"),
    ({"priority": 2**31}, "priority must be between -2147483648 and 2147483647"),
    ({"priority": -(2**31) - 1}, "priority must be between"),
    ({"dedup": ""}, "deduplication key must not be empty"),
    ({"dedup": "x" * (MAX_KEY_LENGTH + 1)}, "1000 characters at most, got 1001"),
    ({"dedup": "a\0b"}, "must not contain NUL"),
    ({"dedup": "\ud800"}, "not valid Unicode"),
    ({"dedup": 7}, "dedup must be a key"),
    ({"id": 7}, "id must be a string, got int"),
    ({"id": UUID(int=7)}, "id must be a string, got UUID"),
    ({"id": "\ud800"}, "not a UUID"),
    ({"name": "x"}, r"start\(\) has no keyword name"),
    ({"delay": 5}, r"start\(\) has no keyword delay"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=short)
async def test_options_of_start(client: Client[Any], world: World, options: dict[str, Any], message: str) -> None:
    before = world.snapshot()
    with pytest.raises(InvalidArgument, match=message) as caught:
        await start(client, Greet(), **options)
    assert isinstance(caught.value, ValueError)
    assert (world.snapshot(), world.heard) == (before, [])


@pytest.mark.parametrize(
    ("options", "message"),
    [each for each in BAD_OPTIONS if "keyword" not in each[1] and each[0].get("id") != "\ud800"],
    ids=short,
)
def test_options_of_a_job(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Greet().set(**options)


@pytest.mark.parametrize(
    "moment",
    [datetime.max.replace(tzinfo=WEST), datetime.min.replace(tzinfo=EAST)],
    ids=["after the year 9999 in UTC", "before the year 1 in UTC"],
)
@pytest.mark.parametrize("option", ["at", "deadline"])
async def test_moments_that_utc_does_not_have(client: Client[Any], world: World, option: str, moment: datetime) -> None:
    options: Any = {option: moment}
    with pytest.raises(InvalidArgument, match=f"{option} must"):
        await start(client, Greet(), **options)
    assert world.count() == 0


EDGES = [
    datetime.max.replace(tzinfo=UTC),
    datetime(9999, 1, 1, tzinfo=UTC),
    datetime(9999, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    datetime(1, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime.min.replace(tzinfo=UTC),
]


@pytest.mark.drivers
@pytest.mark.parametrize("moment", EDGES, ids=short)
@pytest.mark.parametrize("option", ["at", "deadline"])
async def test_moments_at_the_edge_of_the_calendar(
    client: Client[Any], world: World, option: str, moment: datetime
) -> None:
    """Some drivers take the first and the last one for infinity, and in other time zones some do not exist."""
    options: Any = {option: moment}
    with pytest.raises(InvalidArgument, match=f"{option} must lie between the years 2 and 9998 in UTC, got"):
        await start(client, Greet(), **options)
    with pytest.raises(InvalidArgument, match="between the years 2 and 9998"):
        Greet().set(**options)
    assert world.count() == 0


@pytest.mark.drivers
async def test_the_first_and_the_last_moment(client: Client[Any]) -> None:
    first, last = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    chain = await start(client, Greet(), at=last, deadline=first)
    job = await client.get_job(chain.id)
    assert job is not None
    assert (job.scheduled_at, job.deadline) == (last, first)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("",), {}, "must not be empty"),
        ((7,), {}, "must be a string"),
        (("x" * 1001,), {}, "at most"),
        (("k",), {"scope": "all"}, "'incomplete' or 'any'"),
        (("k",), {"scope": "any", "window": -1}, "window must be finite and not below 0"),
        (("k",), {"scope": "any", "window": "5"}, "window must be"),
        (("k",), {"exclude": "one-id"}, "list of chain ids"),
        (("k",), {"exclude": [Chain[Any]("x", "greet")]}, r"chain\.id"),
        (("k",), {"exclude": [7]}, "list of chain ids"),
        (("k",), {"exclude": None}, "list of chain ids"),
    ],
)
def test_dedup(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Dedup(*arguments, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Debounce("k", wait=5, at_most=4), "at_most must not be shorter than wait, got 4 and 5 seconds"),
        (lambda: Debounce("k", wait=-1, at_most=4), "wait must be finite and not below 0"),
        (lambda: Debounce("k", wait=1, at_most=1e300), "at_most must not be longer than 100 years"),
        (lambda: Debounce("k", wait="1", at_most=4), "wait must be a timedelta or seconds"),  # type: ignore[arg-type]
        (lambda: Debounce("", wait=1, at_most=4), "deduplication key must not be empty"),
        (lambda: Debounce("k", wait=1, at_most=4, keep="all"), "keep must be 'last' or 'first'"),  # type: ignore[arg-type]
        (lambda: Debounce("k", wait=1, at_most=4, merge=7), "merge must be a function of two jobs"),  # type: ignore[arg-type]
        (
            lambda: Debounce("k", wait=1, at_most=4, keep="first", merge=lambda old, new: new),
            "give merge= or keep='first', not both",
        ),
        (lambda: Throttle("k", per=0), "per must be longer than 0"),
        (lambda: Throttle("k", per=1e300), "per must not be longer than 100 years"),
        (lambda: Throttle("k", per=1, trailing=1), "trailing must be True or False"),  # type: ignore[arg-type]
        (lambda: Throttle("\0", per=1), "must not contain NUL"),
    ],
    ids=short,
)
def test_debounce_and_throttle(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make()


async def test_the_longest_key_and_name_are_stored(world: World) -> None:
    class Long(EntryJob[None], name="n" * MAX_NAME_LENGTH):
        pass

    async with world.client([Long]) as client:
        chain = await start(client, Long(), dedup="k" * MAX_KEY_LENGTH)
        assert (await start(client, Long(), dedup="k" * MAX_KEY_LENGTH)).id == chain.id
        assert [job.job_type for job in (await client.list_jobs(Long)).items] == ["n" * MAX_NAME_LENGTH]


@pytest.mark.parametrize("name", ["", "n" * (MAX_NAME_LENGTH + 1), "a\0b", "\ud800", 7], ids=short)
def test_names_of_job_types(name: Any) -> None:
    with pytest.raises(InvalidJobType, match="name"):

        class Bad(EntryJob[None], name=name):
            pass


@pytest.mark.parametrize(
    "value",
    [
        "nul \0",
        ["deep", {"er": "\0"}],
        {"\0": 1},
        float("nan"),
        float("inf"),
        -float("inf"),
        [1, [float("nan")]],
        {"x": Decimal("NaN")},
        Decimal("Infinity"),
        "\ud800",
        object(),
        {1: object()},
        {1, object()},
        lambda: None,
    ],
    ids=short,
)
async def test_values_that_json_cannot_hold(world: World, value: Any) -> None:
    async with world.client([Any_]) as client:
        with pytest.raises(JobTypeValidationError) as caught:
            await start(client, Any_(value=value))
        assert (caught.value.code, caught.value.job_type) == ("invalid_input", "any")
        assert "value" in str(caught.value)
        assert world.count() == 0


@pytest.mark.parametrize("job", [Money(amount=Decimal("NaN")), Money(amount=None, rate=float("nan"))], ids=short)
async def test_what_is_not_finite_does_not_become_null(world: World, job: Money) -> None:
    async with world.client([Money]) as client:
        with pytest.raises(JobTypeValidationError, match="not finite"):
            await start(client, job)
        assert world.count() == 0


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (Greet(who=7), "who"),  # type: ignore[arg-type]
        (Greet(who=None), "who"),  # type: ignore[arg-type]
        (Greet(who=b"bytes"), "who"),  # type: ignore[arg-type]
        (Rate(currency=["EUR"]), "currency"),  # type: ignore[arg-type]
    ],
)
async def test_wrong_types(client: Client[Any], world: World, job: Any, field: str) -> None:
    with pytest.raises(JobTypeValidationError) as caught:
        await start(client, job)
    assert (caught.value.code, caught.value.details["field"]) == ("invalid_input", field)
    assert world.count() == 0


@pytest.mark.parametrize("wrong", [None, "greet", 7, Greet, object(), {"who": "me"}], ids=short)
async def test_what_is_no_job(client: Client[Any], world: World, wrong: Any) -> None:
    async with client.transaction() as tx:
        with pytest.raises(InvalidArgument, match="a job is expected"):
            await client.start(tx, wrong)
        with pytest.raises(InvalidArgument, match="a job is expected"):
            await client.start_many(tx, [Greet(), wrong])
    assert world.count() == 0


@pytest.mark.parametrize("wrong", [None, 7, Greet(), Greet], ids=short)
async def test_start_many_takes_a_list(client: Client[Any], world: World, wrong: Any) -> None:
    async with client.transaction() as tx:
        with pytest.raises(InvalidArgument, match="list of jobs"):
            await client.start_many(tx, wrong)
    assert world.count() == 0


async def test_the_job_in_the_place_of_the_transaction(client: Client[Any]) -> None:
    job: Any = Greet()
    with pytest.raises(TransactionRequired, match="got Greet"):
        await client.start(job, job)
