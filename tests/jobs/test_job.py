"""Job classes: what the class statement makes, what it refuses, and the options of a job."""

import abc
import copy
import dataclasses
import pickle
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import attrs
import msgspec
import pydantic
import pytest
from tests.jobs.shop import SendReceipt

from queuert.base.arguments import PRIORITY_RANGE
from queuert.errors import InvalidArgument, InvalidJobType
from queuert.jobs import NO_OPTIONS, EntryJob, Job, JobOptions, Registry, make_options, options_of
from queuert.records.dedup import Dedup
from queuert.records.model import When

T = TypeVar("T")

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Greet(EntryJob[str], name="greet"):
    who: str
    times: int = 1
    tags: list[str] = field(default_factory=list)


class TestClassStatement:
    def test_makes_a_frozen_keyword_only_dataclass(self) -> None:
        job = Greet(who="you")

        assert (job.who, job.times, job.tags) == ("you", 1, [])
        assert repr(job) == "Greet(who='you', times=1, tags=[])"
        assert job == Greet(who="you")
        assert job != Greet(who="me")
        with pytest.raises(dataclasses.FrozenInstanceError):
            job.who = "me"  # type: ignore[misc]
        with pytest.raises(TypeError):
            Greet("you")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="who"):
            Greet()  # type: ignore[call-arg]

    def test_an_equal_job_has_the_same_hash(self) -> None:
        assert hash(SendReceipt(order_id=1, payment_id="p")) == hash(SendReceipt(order_id=1, payment_id="p"))

    def test_fields_may_have_the_names_that_records_use_too(self) -> None:
        class Everything(EntryJob[None], name="everything"):
            name: str
            id: int
            queue: str
            input: str
            status: str
            output: str
            type: str
            options: str
            cls: str
            self: str
            _private: str

        values = dict.fromkeys(("name", "queue", "input", "status", "output", "type", "options", "cls", "self"), "x")
        job = Everything(id=1, _private="y", **values).set(priority=3)
        job_type = Registry([Everything]).of(job)

        assert (job.name, job.id, job._private) == ("x", 1, "y")
        assert job_type.decode_input(job_type.encode_input(job)) == job
        assert job_type.name == "everything"

    def test_methods_properties_and_class_variables_are_free(self) -> None:
        class Counted(EntryJob[None], name="counted"):
            count: int
            LIMIT: ClassVar[int] = 3

            def __post_init__(self) -> None:
                if self.count > self.LIMIT:
                    raise ValueError("too many")

            @cached_property
            def double(self) -> int:
                return 2 * self.count

        job = Counted(count=2)
        job_type = Registry([Counted]).of(job)

        assert job.double == 4
        assert job_type.encode_input(job) == b'{"count":2}'
        assert job.set(priority=1).double == 4
        with pytest.raises(ValueError, match="too many"):
            Counted(count=4)

    def test_fields_of_a_frozen_dataclass_are_inherited(self) -> None:
        @dataclass(frozen=True, kw_only=True)
        class ForTenant:
            tenant: str

        class Plain:
            def shout(self) -> str:
                return "hey"

        class Boxed(Generic[T]):
            def boxed(self, value: T) -> list[T]:
                return [value]

        class Bill(Boxed[int], EntryJob[None], ForTenant, Plain, name="bill"):
            amount: int

        job = Bill(tenant="a", amount=1)
        job_type = Registry([Bill]).of(job)

        assert job.shout() == "hey"
        assert job.boxed(1) == [1]
        assert job_type.decode_input(job_type.encode_input(job)) == job

    def test_a_mixin_may_have_a_metaclass(self) -> None:
        class Priced(abc.ABC):
            @abc.abstractmethod
            def price(self) -> int: ...

        @dataclass
        class Money:
            amount: int

        class Pay(EntryJob["Money | None", "Pay"], Priced, name="pay"):
            def price(self) -> int:
                return 1

        assert Registry([Pay]).require("pay").continuations == {"pay"}

    def test_an_instance_can_be_copied_and_pickled(self) -> None:
        job = SendReceipt(order_id=1, payment_id="p").set(priority=5)

        assert options_of(copy.copy(job)) == options_of(job)
        assert pickle.loads(pickle.dumps(job)) == job


class TestRefusedClasses:
    def test_without_a_name(self) -> None:
        with pytest.raises(TypeError, match="'name'"):

            class Nameless(EntryJob[None]):  # type: ignore[call-arg]
                pass

    @pytest.mark.parametrize(
        ("name", "says"),
        [("", "empty"), ("x" * 201, "200"), ("a\0b", "NUL"), (7, "string"), ("\ud800", "Unicode")],
    )
    def test_with_a_bad_name(self, name: Any, says: str) -> None:
        with pytest.raises(InvalidJobType, match=says):

            class Bad(EntryJob[None], name=name):
                pass

    @pytest.mark.parametrize("queue", ["", "x" * 201, None])
    def test_with_a_bad_queue(self, queue: Any) -> None:
        with pytest.raises(InvalidJobType, match="queue"):

            class Bad(EntryJob[None], name="bad", queue=queue):
                pass

    def test_with_a_field_called_set(self) -> None:
        with pytest.raises(InvalidJobType, match="'set'"):

            class Bad(EntryJob[None], name="bad"):
                set: int  # type: ignore[assignment]

    def test_with_a_method_called_set(self) -> None:
        with pytest.raises(InvalidJobType, match="'set'"):

            class Bad(EntryJob[None], name="bad"):
                def set(self) -> int:  # type: ignore[override]
                    return 1

    def test_without_a_result(self) -> None:
        with pytest.raises(InvalidJobType, match="declare the output"):

            class Bad(EntryJob, name="bad"):  # type: ignore[type-arg]
                pass

    def test_extending_another_job_class(self) -> None:
        with pytest.raises(InvalidJobType, match="Greet"):

            class Bad(Greet, name="bad"):
                more: int

    def test_with_an_init_var(self) -> None:
        with pytest.raises(InvalidJobType, match="'seed'"):

            class Bad(EntryJob[None], name="bad"):
                seed: InitVar[int]

    def test_with_a_field_that_is_no_input(self) -> None:
        with pytest.raises(InvalidJobType, match="'derived'"):

            class Bad(EntryJob[None], name="bad"):
                derived: int = field(init=False)

    def test_with_a_mutable_default(self) -> None:
        with pytest.raises(InvalidJobType, match="default_factory"):

            class Bad(EntryJob[None], name="bad"):
                tags: list[str] = []  # noqa: RUF012

    def test_with_fields_of_a_plain_class(self) -> None:
        class ForTenant:
            region: ClassVar[str]
            tenant: str

        with pytest.raises(InvalidJobType, match=r"'tenant' of .*dataclass"):

            class Bad(EntryJob[None], ForTenant, name="bad"):
                amount: int

        class Good(EntryJob[None], ForTenant, name="good"):
            tenant: str

        assert Good(tenant="a").tenant == "a"

    @pytest.mark.parametrize("default", [msgspec.field(default=1), pydantic.Field(1), attrs.field(default=1)])
    def test_with_a_field_of_another_library(self, default: Any) -> None:
        with pytest.raises(InvalidJobType, match=r"'n': a field of .* use dataclasses.field"):

            class Wrong(EntryJob[None], name="wrong"):
                n: int = default

    def test_but_their_other_values_may_be_defaults(self) -> None:
        class Right(EntryJob[None], name="right"):
            n: int | msgspec.UnsetType = msgspec.UNSET

        assert Right().n is msgspec.UNSET

    def test_with_fields_of_a_class_with_slots(self) -> None:
        @dataclass(frozen=True, slots=True, kw_only=True)
        class Slotted:
            tenant: str

        with pytest.raises(InvalidJobType, match="slots"):

            class Bad(EntryJob[None], Slotted, name="bad"):
                amount: int

    def test_with_a_type_variable_as_result(self) -> None:
        class Bad(EntryJob[T], Generic[T], name="bad"):
            pass

        with pytest.raises(InvalidJobType, match="type variable"):
            Registry([Bad])


class TestOptions:
    def test_set_returns_a_copy_that_is_equal_to_the_job(self) -> None:
        job = SendReceipt(order_id=1, payment_id="p")

        later = job.set(after=timedelta(minutes=1))

        assert later is not job
        assert later == job
        assert hash(later) == hash(job)
        assert repr(later) == repr(job)
        assert type(later) is SendReceipt
        assert options_of(job) is NO_OPTIONS
        assert options_of(later) == JobOptions(schedule=When(after=60.0))

    def test_every_option_is_kept(self) -> None:
        job = Greet(who="you").set(at=NOON, priority=-1, id="some-id", deadline=timedelta(hours=1), dedup="key")

        assert options_of(job) == JobOptions(
            schedule=When(at=NOON), priority=-1, id="some-id", deadline=When(after=3600.0), dedup=Dedup("key")
        )

    def test_set_again_adds_to_what_was_set_and_the_later_wins(self) -> None:
        job = Greet(who="you").set(after=5, priority=1, dedup="a").set(at=NOON).set(priority=2, id="i").set()

        assert options_of(job) == JobOptions(schedule=When(at=NOON), priority=2, id="i", dedup=Dedup("a"))

    def test_merging(self) -> None:
        low, high = JobOptions(priority=1, id="i"), JobOptions(priority=2, deadline=When(after=1.0))

        assert low.merged(high) == JobOptions(priority=2, id="i", deadline=When(after=1.0))
        assert low.merged(NO_OPTIONS) is low
        assert NO_OPTIONS.merged(high) is high

    def test_nothing_said_is_no_options(self) -> None:
        assert make_options() is NO_OPTIONS

    def test_a_delay_of_zero_and_the_ends_of_the_priority_range_are_allowed(self) -> None:
        assert make_options(after=0).schedule == When(after=0.0)
        assert [make_options(priority=end).priority for end in PRIORITY_RANGE] == list(PRIORITY_RANGE)

    def test_a_deadline_is_a_moment_or_a_time_from_now(self) -> None:
        assert make_options(deadline=NOON).deadline == When(at=NOON)
        assert make_options(deadline=2.5).deadline == When(after=2.5)

    def test_dedup_keeps_its_settings(self) -> None:
        dedup = Dedup("key", scope="any", window=60)

        assert make_options(dedup=dedup).dedup is dedup

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"at": NOON, "after": 1}, "not both"),
            ({"at": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
            ({"at": "tomorrow"}, "datetime"),
            ({"after": -1}, "after"),
            ({"after": timedelta(seconds=-1)}, "after"),
            ({"after": float("nan")}, "after"),
            ({"after": float("inf")}, "after"),
            ({"after": "1"}, "after"),
            ({"after": True}, "after"),
            ({"priority": True}, "integer"),
            ({"priority": 1.0}, "integer"),
            ({"priority": 2**31}, "between"),
            ({"priority": -(2**31) - 1}, "between"),
            ({"id": 7}, "string"),
            ({"deadline": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001
            ({"deadline": -1}, "deadline"),
            ({"deadline": "soon"}, "deadline"),
            ({"deadline": True}, "deadline"),
            ({"dedup": ""}, "empty"),
            ({"dedup": "k" * 1001}, "1000"),
            ({"dedup": "a\0"}, "NUL"),
            ({"dedup": 7}, "dedup"),
        ],
    )
    def test_bad_options_are_refused_at_once(self, options: dict[str, Any], says: str) -> None:
        with pytest.raises(InvalidArgument, match=says):
            Greet(who="you").set(**options)

    def test_the_markers_for_type_checkers_are_not_to_be_called(self) -> None:
        job: Job[Any, Any] = Greet(who="you")
        for marker in (job._resolves_to, job._continues_with):
            with pytest.raises(NotImplementedError):
                marker()
