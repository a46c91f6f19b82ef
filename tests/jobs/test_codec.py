"""Inputs and outputs: what can be stored, what is refused, and how stored values are read."""

import enum
import logging
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, Never, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from queuert.errors import InvalidArgument, InvalidJobType, JobTypeValidationError
from queuert.jobs import Codec, EntryJob, Job, JobType, PydanticCodec, Registry
from queuert.jobs.codecs.type_codec import CodecError
from queuert.jobs.codecs.values import has_nul, unstorable

NAN, INFINITY = float("nan"), float("inf")


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


@dataclass
class Point:
    x: float
    y: float = 0.0


T = TypeVar("T")


@dataclass
class Labelled(Generic[T]):
    label: str
    value: T


@attrs.define
class Box:
    width: float
    label: str = "box"


class Item(msgspec.Struct, tag="item"):
    price: Decimal


class Gift(msgspec.Struct, tag="gift"):
    note: str


class Address(TypedDict):
    street: str


class Pair(NamedTuple):
    left: int
    right: float


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    when: datetime
    ratio: float = 1.0
    key: UUID | None = None
    of: str = pydantic.Field(default="x", alias="from")

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> float:
        return 2 * self.ratio


class Celsius:
    """A type that only its own codec knows."""

    def __init__(self, degrees: float) -> None:
        self.degrees = degrees

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Celsius) and self.degrees == other.degrees


class CelsiusCodec:
    def supports(self, type_: type[Any], /) -> bool:
        return type_ is Celsius

    def encode(self, value: Any, /) -> Any:
        return {"celsius": value.degrees}

    def decode(self, type_: type[Any], data: Any, /) -> Any:
        if data == 20:
            raise ValueError("no temperature")
        return type_(data["celsius"])


def result_type(returns: Any, *codecs: Codec) -> JobType:
    """A registered job type with this result."""

    class Returning(EntryJob[returns], name="returning"):
        pass

    return Registry([Returning], codecs=codecs).require("returning")


def input_type(hint: Any, *codecs: Codec) -> tuple[Any, JobType]:
    """A job class with one field, `value`, and its registered type."""

    class Taking(EntryJob[None], name="taking"):
        value: hint  # pyright: ignore[reportInvalidTypeForm]
        other: int = 0

    return Taking, Registry([Taking], codecs=codecs).require("taking")


NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001
MOMENT = datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC)

STORABLE = [
    (None, None),
    (bool, True),
    (int, 7),
    (int, 2**63),
    (int, -(10**40)),
    (float, 1.5),
    (float, 7),
    (str, "ünï\\u0000 \U0001f600 \\\\"),
    (bytes, b"\0\xff"),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=5)),
    (datetime, MOMENT),
    (date, date(2030, 1, 1)),
    (time, time(1, 2)),
    (timedelta, timedelta(seconds=90)),
    (Colour, Colour.RED),
    (Size, Size.BIG),
    (Literal["a", "b"], "b"),
    (list[int], [1, 2]),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (dict[str, float], {"a": 1.5}),
    (dict[int, str], {1: "a"}),
    (Point, Point(1.0)),
    (list[Point], [Point(1.0), Point(2.0)]),
    (Box, Box(1.0)),
    (Item | Gift, Gift("n")),
    (Labelled[int], Labelled("a", 1)),
    (Address, {"street": "s"}),
    (Pair, Pair(1, 2.0)),
    (Any, {"a": [1, None, "x", 1.5]}),
    (int | str | None, "x"),
    (str | None, None),
    (Annotated[int, msgspec.Meta(ge=0)], 0),
    (Model, Model.model_validate({"when": MOMENT, "from": "y", "key": UUID(int=1)})),
    (list[Model | None], [None, Model(when=MOMENT)]),
    (Celsius, Celsius(20.5)),
    (dict[str, list[Celsius]], {"a": [Celsius(1.0)]}),
]


@pytest.mark.parametrize(("hint", "value"), STORABLE, ids=[str(hint) for hint, _ in STORABLE])
class TestStorable:
    def test_an_output_comes_back_as_it_was(self, hint: Any, value: Any) -> None:
        job_type = result_type(hint, CelsiusCodec())

        data = job_type.encode_output(value)

        assert isinstance(data, bytes)
        assert job_type.decode_output(data) == value

    def test_a_field_comes_back_as_it_was(self, hint: Any, value: Any) -> None:
        cls, job_type = input_type(hint, CelsiusCodec())

        job = cls(value=value)

        assert job_type.decode_input(job_type.encode_input(job)) == job


REFUSED = [
    (int, "7", "Expected `int`, got `str`"),
    (int, True, "Expected `int`, got `bool`"),
    (int, 1.5, "Expected `int`, got `float`"),
    (int, 10**5000, "range|digits"),
    (str, 7, "Expected `str`, got `int`"),
    (str, b"bytes", "Expected `str`, got `bytes`"),
    (str | None, Decimal(1), "Expected `str`, got `Decimal`"),
    (str, "a\0b", "NUL"),
    (str, "\\\0", "NUL"),
    (Any, {"a\0": 1}, "NUL"),
    (list[str], ["\ud800"], "surrogates"),
    (datetime, NAIVE, "without a time zone"),
    (datetime | None, NAIVE, "without a time zone"),
    (Any, {"a": [NAIVE]}, r"without a time zone.*\['a'\]\[0\]"),
    (dict[str, list[datetime]], {"a": [NAIVE]}, r"without a time zone.*\['a'\]\[0\]"),
    (float, NAN, "not finite"),
    (float | None, INFINITY, "not finite"),
    (int | None, NAN, "not finite"),
    (Decimal, Decimal("NaN"), "not finite"),
    (Decimal, Decimal("-Infinity"), "not finite"),
    (Any, [{"a": (1, NAN)}], r"not finite .*\[0\]\['a'\]\[1\]"),
    (Any, {NAN: 1}, "not finite"),
    (set[float], {INFINITY}, "not finite"),
    (Point, Point(1.0, NAN), r"not finite .*\.y"),
    (Box, Box(NAN), r"not finite .*\.width"),
    (Item, Item(Decimal("sNaN")), r"not finite .*\.price"),
    (Pair, Pair(1, NAN), "not finite"),
    (Model, Model(when=MOMENT, ratio=NAN), "not finite"),
    (Model, {"when": 7}, "validation error"),
    (Celsius, Celsius(NAN), "not finite"),
    (Celsius, 20, "no temperature"),
    (Point, Celsius(1.0), "missing required field `x`"),
    (Point, {"x": NAN}, "not finite"),
    (Point, "point", "Expected `object`, got `str`"),
    (Any, object(), "type object cannot be stored"),
    (Colour, "blue", "Invalid enum value"),
    (Address, {}, "missing required field `street`"),
    (None, 0, "Expected `null`"),
    (Annotated[int, msgspec.Meta(ge=0)], -1, ">= 0"),
]


@pytest.mark.parametrize(("hint", "value", "says"), REFUSED, ids=[f"{hint}-{says}" for hint, _, says in REFUSED])
class TestRefused:
    def test_as_output(self, hint: Any, value: Any, says: str) -> None:
        with pytest.raises(JobTypeValidationError, match=says) as caught:
            result_type(hint, CelsiusCodec()).encode_output(value)

        assert caught.value.code == "invalid_output"
        assert caught.value.job_type == "returning"

    def test_as_input_the_error_names_the_field(self, hint: Any, value: Any, says: str) -> None:
        cls, job_type = input_type(hint, CelsiusCodec())

        with pytest.raises(JobTypeValidationError, match=says) as caught:
            job_type.encode_input(cls(value=value))

        assert caught.value.code == "invalid_input"
        assert caught.value.job_type == "taking"
        assert caught.value.details["field"] == "value"
        assert str(caught.value.details["path"]).startswith("$.value")


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    cls, job_type = input_type(list[list[Any]])

    with pytest.raises(JobTypeValidationError, match="recursion"):
        job_type.encode_input(cls(value=endless))


def test_a_chain_that_never_resolves_has_no_output() -> None:
    job_type = result_type(Never)

    for call in (job_type.encode_output, job_type.decode_output):
        with pytest.raises(JobTypeValidationError, match="never resolves") as caught:
            call(b"1")
        assert caught.value.code == "invalid_output"


class TestStoredInput:
    class Evolved(EntryJob[None], name="evolved"):
        kept: int
        added: str = "default"
        listed: list[int] = field(default_factory=lambda: [1])
        point: Point = field(default_factory=lambda: Point(0))

        def __post_init__(self) -> None:
            if self.kept < 0:
                raise ValueError("kept must not be negative")
            if self.kept == 13:
                raise LookupError("unlucky")

    @pytest.fixture
    def job_type(self) -> JobType:
        return Registry([self.Evolved]).require("evolved")

    def test_unknown_fields_are_ignored_and_missing_ones_take_their_default(self, job_type: JobType) -> None:
        job = job_type.decode_input(b'{"kept": 1, "removed": {"deep": true}}')

        assert job == self.Evolved(kept=1, added="default", listed=[1], point=Point(0))

    @pytest.mark.parametrize(
        ("stored", "details"),
        [
            (b"{}", {"field": "kept", "path": "$.kept"}),
            (b'{"kept": "1"}', {"field": "kept", "path": "$.kept"}),
            (b'{"kept": 1, "listed": [1, "2"]}', {"field": "listed", "path": "$.listed[1]"}),
            (b'{"kept": 1, "point": {}}', {"field": "point", "path": "$.point.x"}),
            (b"[]", {}),
            (b"", {}),
            (b'{"kept": -1}', {}),
            (b'{"kept": 13}', {}),
        ],
    )
    def test_what_does_not_fit_is_named(self, job_type: JobType, stored: bytes, details: dict[str, str]) -> None:
        with pytest.raises(JobTypeValidationError, match="stored input refused") as caught:
            job_type.decode_input(stored)

        assert caught.value.code == "invalid_input"
        assert caught.value.details == details

    def test_what_does_not_fit_as_output_is_named(self) -> None:
        with pytest.raises(JobTypeValidationError, match="stored output refused") as caught:
            result_type(Point).decode_output(b'{"y": 1}')

        assert caught.value.code == "invalid_output"
        assert caught.value.details == {"field": "x", "path": "$.x"}


class TestLargeInputs:
    def test_are_stored_with_one_warning_per_job_type(self, caplog: pytest.LogCaptureFixture) -> None:
        cls, job_type = input_type(str)
        job = cls(value="x" * 10_000_000)

        with caplog.at_level(logging.WARNING, logger="queuert.jobs"):
            assert job_type.decode_input(job_type.encode_input(job)) == job
            job_type.encode_input(job)

        (record,) = caplog.records
        assert record.name == "queuert.jobs"
        assert "'taking'" in record.getMessage()

    def test_below_a_megabyte_there_is_none(self, caplog: pytest.LogCaptureFixture) -> None:
        cls, job_type = input_type(str)

        job_type.encode_input(cls(value="x" * 900_000))

        assert not caplog.records


class TestTypesThatCannotBeStored:
    @pytest.mark.parametrize("hint", [Celsius, object, complex, list[Celsius], msgspec.Raw, Model | int, type])
    def test_in_a_field(self, hint: Any) -> None:
        with pytest.raises(InvalidJobType, match="field 'value' cannot be stored as JSON") as caught:
            input_type(hint)

        assert caught.value.job_type == "taking"

    @pytest.mark.parametrize("hint", [Celsius, Celsius | None, dict[str, complex]])
    def test_as_a_result(self, hint: Any) -> None:
        with pytest.raises(InvalidJobType, match="its result cannot be stored as JSON"):
            result_type(hint)


class TestCodecs:
    def test_a_users_codec_comes_before_the_one_for_pydantic(self) -> None:
        class Own:
            def supports(self, type_: type[Any], /) -> bool:
                return issubclass(type_, Model)

            def encode(self, value: Any, /) -> Any:
                return "model"

            def decode(self, type_: type[Any], data: Any, /) -> Any:
                return Model(when=MOMENT)

        job_type = result_type(Model, Own())

        assert job_type.encode_output(Model(when=MOMENT)) == b'"model"'

    def test_a_failing_codec_means_that_the_value_does_not_fit(self) -> None:
        class Failing(CelsiusCodec):
            def encode(self, value: Any, /) -> Any:
                raise LookupError

        with pytest.raises(JobTypeValidationError, match="LookupError"):
            result_type(Celsius, Failing()).encode_output(Celsius(1))

    @pytest.mark.parametrize("codec", [object(), CelsiusCodec, None])
    def test_what_is_no_codec_is_refused(self, codec: Any) -> None:
        with pytest.raises(InvalidArgument, match="supports, encode and decode"):
            result_type(int, codec)

    def test_pydantic_models_are_stored_under_their_aliases_without_computed_fields(self) -> None:
        data = result_type(Model).encode_output(Model(when=MOMENT))

        assert msgspec.json.decode(data) == {
            "when": "2030-01-02T03:04:05.000006Z",
            "ratio": 1.0,
            "key": None,
            "from": "x",
        }

    def test_without_pydantic_no_type_is_supported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(sys.modules, "pydantic")

        assert not PydanticCodec().supports(Model)

    def test_the_built_in_codec_follows_the_protocol(self) -> None:
        assert isinstance(PydanticCodec(), Codec)
        assert PydanticCodec().supports(Model)
        assert not PydanticCodec().supports(Celsius)

    def test_the_methods_of_the_protocol_have_no_body(self) -> None:
        class Empty(Codec):
            pass

        codec = Empty()  # type: ignore[abstract, unused-ignore]
        for call in (lambda: codec.supports(int), lambda: codec.encode(1), lambda: codec.decode(int, 1)):
            with pytest.raises(NotImplementedError):
                call()


class TestValues:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [("\0", True), ("a\0", True), ("\\\0", True), ("\\\\\0", True), ("\\u0000", False), ("\\\\u0000", False)],
    )
    def test_only_a_real_nul_counts(self, text: str, expected: bool) -> None:
        assert has_nul(msgspec.json.encode(["x", {"k": text}])) is expected

    @pytest.mark.parametrize(
        "value",
        [None, True, 1, 1.5, "nan", b"", Decimal(1), MOMENT, object(), OrderedDict(a=1), [Point(1)], Colour.RED],
    )
    def test_other_values_are_finite(self, value: object) -> None:
        assert unstorable(value) is None

    def test_an_error_outside_of_fields_has_none(self) -> None:
        assert CodecError("message").field is None
        assert CodecError("message", "$[0]").field is None


def test_a_job_of_another_class_is_refused() -> None:
    class Other(Job[None], name="other"):
        pass

    _, job_type = input_type(int)

    with pytest.raises(JobTypeValidationError) as caught:
        job_type.encode_input(Other())
    assert caught.value.code == "invalid_input"
