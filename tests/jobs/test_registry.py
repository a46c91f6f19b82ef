"""The registry: what it takes in, what it finds, what it refuses, and the checks of a registered type."""

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Never, Optional, TypedDict, Union

import msgspec
import pytest
from tests.jobs import shop, shop_other
from tests.jobs.shop import ChargeCard, CloseBooks, FetchRate, Receipt, ReserveStock, SendReceipt

from queuert.errors import (
    DuplicateJobType,
    InvalidArgument,
    InvalidJobType,
    JobTypeValidationError,
    UnknownJobType,
)
from queuert.jobs import Chain, EntryJob, Job, JobTypes, Registry
from queuert.jobs.declaration import covers
from queuert.records.model import BlockerRef, BlockerRow


class Unrelated(EntryJob[None], name="unrelated"):
    pass


@pytest.fixture
def registry() -> Registry:
    return Registry([shop])


class TestContents:
    def test_types_are_pulled_in_by_continuation_and_blocker(self) -> None:
        registry = Registry([CloseBooks])

        assert set(registry.names) == {"close-books", "reserve-stock", "charge-card", "send-receipt", "fetch-rate"}
        assert len(registry) == 5
        assert {job_type.cls for job_type in registry} == {CloseBooks, ReserveStock, ChargeCard, SendReceipt, FetchRate}

    def test_a_module_means_the_job_classes_defined_in_it(self) -> None:
        assert list(JobTypes([shop])) == [ReserveStock, ChargeCard, SendReceipt, FetchRate, CloseBooks, shop.Elsewhere]
        assert list(JobTypes([shop_other])) == [shop_other.Imported]

    def test_slices_modules_and_classes_are_merged(self) -> None:
        registry = Registry([shop.ORDERS, JobTypes([shop.ORDERS, Unrelated]), shop, Unrelated, ReserveStock])

        assert len(registry) == 8

    def test_a_slice_alone_will_do(self) -> None:
        assert set(Registry(shop.ORDERS).names) == {"reserve-stock", "charge-card", "send-receipt", "fetch-rate"}

    def test_nothing_is_allowed(self) -> None:
        assert Registry([]).names == ()

    def test_a_class_can_be_in_several_registries(self) -> None:
        assert Registry([Unrelated]).require(Unrelated) is not Registry([Unrelated]).require(Unrelated)

    def test_two_classes_of_one_name_are_refused(self) -> None:
        class Impostor(Job[Receipt], name="send-receipt"):
            pass

        with pytest.raises(DuplicateJobType) as caught:
            Registry([Impostor, ReserveStock])

        assert caught.value.job_type == "send-receipt"
        assert set(caught.value.classes) == {Impostor, SendReceipt}

    @pytest.mark.parametrize("item", ["greet", int, Job, EntryJob, Job[int], None, Unrelated(), [Unrelated]])
    def test_anything_else_is_refused(self, item: Any) -> None:
        with pytest.raises(InvalidArgument, match="job classes"):
            Registry([item])

    @pytest.mark.parametrize("jobs", [Unrelated, "unrelated", shop, None, 7])
    def test_it_must_be_a_list(self, jobs: Any) -> None:
        with pytest.raises(InvalidArgument, match="list of job classes"):
            Registry(jobs)


class TestLookup:
    def test_by_name_class_and_job(self, registry: Registry) -> None:
        job_type = registry.require("charge-card")

        assert job_type is registry.by_name("charge-card")
        assert job_type is registry.require(ChargeCard)
        assert job_type is registry.of(ChargeCard(order_id=1, amount=Decimal(1)))
        assert (job_type.name, job_type.cls, job_type.queue) == ("charge-card", ChargeCard, "payments")
        assert not job_type.is_entry
        assert registry.require(ReserveStock).is_entry
        assert registry.require(ReserveStock).queue == "default"
        assert repr(job_type) == "<JobType 'charge-card': tests.jobs.shop.ChargeCard>"

    def test_an_unknown_one_is_none_or_an_error(self, registry: Registry) -> None:
        assert registry.by_name("unrelated") is None
        for wanted in ("unrelated", Unrelated):
            with pytest.raises(UnknownJobType, match="'unrelated'"):
                registry.require(wanted)
        with pytest.raises(UnknownJobType) as caught:
            registry.of(Unrelated())
        assert caught.value.job_type == "unrelated"

    @pytest.mark.parametrize("wanted", [int, EntryJob, None, 7])
    def test_what_cannot_be_a_type_is_refused(self, registry: Registry, wanted: Any) -> None:
        with pytest.raises(InvalidArgument, match="job class or the name"):
            registry.require(wanted)

    @pytest.mark.parametrize("job", ["greet", None, Unrelated, EntryJob()])
    def test_what_is_no_job_is_refused(self, registry: Registry, job: Any) -> None:
        with pytest.raises(InvalidArgument, match="a job is expected"):
            registry.of(job)


class TestContinuations:
    def test_something_else_than_job_classes_is_refused(self) -> None:
        for following in (int, None, Any, EntryJob, Job[int], "int | ReserveStock"):

            class Bad(EntryJob[Receipt, following], name="bad"):  # type: ignore[valid-type]
                pass

            with pytest.raises(InvalidJobType, match="only continue with job classes"):
                Registry([Bad])

    def test_a_result_outside_of_the_parents_is_refused(self) -> None:
        class Wide(Job["int | str"], name="wide"):
            pass

        class Narrow(EntryJob[int, Wide], name="narrow"):
            pass

        with pytest.raises(InvalidJobType, match=r"resolves to .*int.* 'wide', which resolves to int \| str"):
            Registry([Narrow])

    def test_a_result_inside_the_parents_is_fine(self) -> None:
        class Narrow(Job[int], name="narrow"):
            pass

        class Wide(EntryJob["int | str", Narrow], name="wide"):
            pass

        assert Registry([Wide]).require("wide").continuations == {"narrow"}

    def test_a_job_as_result_is_refused(self) -> None:
        class Bad(EntryJob["int | Unrelated"], name="bad"):
            pass

        with pytest.raises(InvalidJobType, match="result cannot be a job"):
            Registry([Bad])

    def test_declared_ones_pass_at_run_time(self, registry: Registry) -> None:
        charge = ChargeCard(order_id=1, amount=Decimal(1))

        registry.require(ReserveStock).check_continuation(charge)
        registry.require(ChargeCard).check_continuation(charge.set(after=1))

    @pytest.mark.parametrize(
        ("parent", "given", "allowed"),
        [
            (ChargeCard, "reserve-stock", ["charge-card", "send-receipt"]),
            (SendReceipt, "reserve-stock", []),
        ],
    )
    def test_others_do_not(self, registry: Registry, parent: Any, given: str, allowed: list[str]) -> None:
        with pytest.raises(JobTypeValidationError, match="cannot continue with") as caught:
            registry.require(parent).check_continuation(ReserveStock(order_id=1))

        assert caught.value.code == "invalid_continuation"
        assert caught.value.details == {"given": given, "allowed": allowed}

    def test_a_class_of_the_same_name_does_not(self, registry: Registry) -> None:
        class Impostor(Job[Receipt], name="send-receipt"):
            pass

        with pytest.raises(JobTypeValidationError, match="send-receipt"):
            registry.require(ChargeCard).check_continuation(Impostor())


class Text(str):
    pass


class Movie(TypedDict):
    title: str


@dataclass
class Shape:
    size: int


@dataclass
class Square(Shape):
    pass


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        (int, int, True),
        (Any, Shape, True),
        (int, Any, False),
        (Shape, Square, True),
        (Square, Shape, False),
        (Union[int, str], Optional[int], False),  # noqa: UP007, UP045
        (Optional[int], None, True),  # noqa: UP045
        (None, None, True),
        (int | None | str, Union[str, None], True),  # noqa: UP007
        (float, int, True),
        (int, float, False),
        (int, bool, False),
        (date, datetime, False),
        (str, Text, True),
        (list[int], list[int], True),
        (list[int], list[str], False),
        (list[int], int, False),
        (Movie, Movie, True),
        (Movie, dict, False),
        (Literal["a", "b"], Literal["a"], True),
        (Literal["a"], Literal["a", "b"], False),
        (str, Literal["a", "b"], True),
        (str, Literal["a", 1], False),
        (Literal["a"], str, False),
        (int, Annotated[int, msgspec.Meta(ge=0)], True),
        (Annotated[int, msgspec.Meta(ge=0)], int, False),
        (int, Never, True),
        (Never, int, False),
        (Never, Never, True),
    ],
)
def test_results_inside_results(wide: Any, narrow: Any, expected: bool) -> None:
    assert covers(wide, narrow) is expected


class TestEntryPoints:
    def test_only_entry_jobs_can_start_a_chain(self, registry: Registry) -> None:
        registry.require(ReserveStock).check_entry()

        with pytest.raises(JobTypeValidationError, match="EntryJob") as caught:
            registry.require(ChargeCard).check_entry()

        assert caught.value.code == "not_entry_point"
        assert caught.value.job_type == "charge-card"


@dataclass
class Holder:
    chain: Chain[FetchRate]


class TestBlockers:
    def test_are_read_off_the_fields(self, registry: Registry) -> None:
        assert registry.require(CloseBooks).blocker_fields == {
            "order": (False, ("reserve-stock",)),
            "rates": (True, ("fetch-rate",)),
        }
        assert registry.require(ReserveStock).blocker_fields == {}

    def test_are_listed_once_each_in_the_order_of_their_mention(self, registry: Registry) -> None:
        order = registry.new_chain("o", "reserve-stock", "pending")
        rates = [registry.new_chain(chain_id, "fetch-rate", "pending") for chain_id in ("b", "a", "b")]

        found = registry.require(CloseBooks).blockers_of(CloseBooks(day="mon", order=order, rates=rates))

        assert found == (
            BlockerRef("o", "reserve-stock"),
            BlockerRef("b", "fetch-rate"),
            BlockerRef("a", "fetch-rate"),
        )
        assert registry.require(ReserveStock).blockers_of(ReserveStock(order_id=1)) == ()

    def test_are_stored_as_ids_and_come_back_with_what_is_known(self, registry: Registry) -> None:
        job_type = registry.require(CloseBooks)
        order: Chain[ReserveStock] = registry.new_chain("o", "reserve-stock", "pending")
        rates: list[Chain[FetchRate]] = [
            registry.new_chain(chain_id, "fetch-rate", "pending") for chain_id in ("a", "b")
        ]
        job = CloseBooks(day="mon", order=order, rates=rates)

        data = job_type.encode_input(job)
        assert msgspec.json.decode(data) == {"day": "mon", "order": "o", "rates": ["a", "b"]}

        rows = [
            BlockerRow("o", "reserve-stock", "completed", b'{"payment_id":"p"}'),
            BlockerRow("a", "fetch-rate", "completed", b'"1.50"'),
        ]
        known = job_type.decode_input(data, rows)
        assert isinstance(known, CloseBooks)
        assert known == job
        assert known.order.output == Receipt("p")
        assert known.rates[0].output == Decimal("1.50")
        assert known.rates[1].status is None

        bare = job_type.decode_input(data)
        assert isinstance(bare, CloseBooks)
        assert (bare.order.id, bare.order.chain_type, bare.order.status) == ("o", "reserve-stock", None)

    def test_stored_as_something_else_are_refused(self, registry: Registry) -> None:
        with pytest.raises(JobTypeValidationError, match="id of a chain") as caught:
            registry.require(CloseBooks).decode_input(b'{"day": "mon", "order": 7, "rates": []}')

        assert caught.value.details["field"] == "order"

    @pytest.mark.parametrize(
        ("order", "rates", "name", "says"),
        [
            (Chain("r", "fetch-rate"), [], "order", "'reserve-stock' is expected, r is one of 'fetch-rate'"),
            (Chain("o", "reserve-stock"), [Chain("o", "reserve-stock")], "rates", "'fetch-rate' is expected"),
            ("o", [], "order", "expected a Chain, got str"),
            (None, [], "order", "got NoneType"),
            (7, [], "order", "got int"),
            (Chain("o", "reserve-stock"), Chain("r", "fetch-rate"), "rates", "list of chains"),
            (Chain("o", "reserve-stock"), ["r"], "rates", "got str"),
        ],
    )
    def test_of_a_wrong_kind_are_refused(
        self, registry: Registry, order: Any, rates: Any, name: str, says: str
    ) -> None:
        with pytest.raises(JobTypeValidationError, match=says) as caught:
            registry.require(CloseBooks).blockers_of(CloseBooks(day="mon", order=order, rates=rates))

        assert caught.value.code == "invalid_blockers"
        assert caught.value.details == {"field": name}

    def test_that_cannot_be_written_are_wrong_blockers_not_wrong_input(self, registry: Registry) -> None:
        wrong: Any = None

        with pytest.raises(JobTypeValidationError) as caught:
            registry.require(CloseBooks).encode_input(CloseBooks(day="mon", order=wrong, rates=[]))

        assert caught.value.code == "invalid_blockers"
        assert caught.value.details["field"] == "order"

    def test_on_a_job_that_is_no_entry_job_are_refused(self) -> None:
        class Bad(EntryJob[None], name="bad"):
            waits_for: Chain[ChargeCard]

        with pytest.raises(InvalidJobType, match="field 'waits_for': 'charge-card' is not an entry job"):
            Registry([Bad])

    @pytest.mark.parametrize(
        "hint",
        [
            Chain,
            list[Chain],  # type: ignore[type-arg]
            Chain[FetchRate] | None,
            dict[str, Chain[FetchRate]],
            tuple[Chain[FetchRate], ...],
            list[list[Chain[FetchRate]]],
            Chain[FetchRate | ReserveStock],
            list[Chain[FetchRate]] | list[Chain[ReserveStock]],
            Chain[EntryJob[Any, Any]],
            Annotated[Chain[FetchRate], "note"],
        ],
    )
    def test_in_another_shape_are_refused(self, hint: Any) -> None:
        class Bad(EntryJob[None], name="bad"):
            waits_for: hint  # pyright: ignore[reportInvalidTypeForm]

        with pytest.raises(InvalidJobType, match=r"field 'waits_for': .*Chain\[X\] or list\[Chain\[X\]\]"):
            Registry([Bad])

    def test_of_several_types_are_stored_with_their_types(self) -> None:
        class Either(EntryJob[None], name="either"):
            one: Chain[FetchRate] | Chain[ReserveStock]
            many: list[Chain[FetchRate] | Chain[ReserveStock]]

        registry = Registry([Either])
        job_type = registry.require(Either)
        types = ("fetch-rate", "reserve-stock")
        assert job_type.blocker_fields == {"one": (False, types), "many": (True, types)}
        rate: Chain[FetchRate] = registry.new_chain("r", "fetch-rate", "pending")
        order: Chain[ReserveStock] = registry.new_chain("o", "reserve-stock", "pending")
        job = Either(one=order, many=[rate, order])
        assert job_type.blockers_of(job) == (BlockerRef("o", "reserve-stock"), BlockerRef("r", "fetch-rate"))

        data = job_type.encode_input(job)
        stored = {"one": {"id": "o", "type": "reserve-stock"}, "many": [{"id": "r", "type": "fetch-rate"}]}
        assert msgspec.json.decode(data) == {**stored, "many": [*stored["many"], stored["one"]]}
        bare = job_type.decode_input(data)
        assert isinstance(bare, Either)
        assert bare == job
        assert [chain.chain_type for chain in (bare.one, *bare.many)] == [
            "reserve-stock",
            "fetch-rate",
            "reserve-stock",
        ]

        rows = [
            BlockerRow("o", "reserve-stock", "completed", b'{"payment_id":"p"}'),
            BlockerRow("r", "fetch-rate", "completed", b'"1.50"'),
        ]
        known = job_type.decode_input(data, rows)
        assert isinstance(known, Either)
        assert [known.one.output, *(chain.output for chain in known.many)] == [
            Receipt("p"),
            Decimal("1.50"),
            Receipt("p"),
        ]

    def test_of_a_type_that_is_none_of_several_are_refused(self) -> None:
        class Either(EntryJob[None], name="either"):
            one: Chain[FetchRate] | Chain[ReserveStock]
            many: list[Chain[FetchRate] | Chain[ReserveStock]]

        job_type = Registry([Either, CloseBooks]).require(Either)
        wrong: Any = Chain("c", "close-books")
        with pytest.raises(JobTypeValidationError, match="'fetch-rate' or 'reserve-stock' is expected, c is one of"):
            job_type.blockers_of(Either(one=wrong, many=[]))
        for one, many in ((None, []), ("x", []), (Chain("r", "fetch-rate"), 7), (Chain("r", "fetch-rate"), [7])):
            bad: Any = (one, many)
            with pytest.raises(JobTypeValidationError) as caught:
                job_type.blockers_of(Either(one=bad[0], many=bad[1]))
            assert caught.value.code == "invalid_blockers"

    def test_types_may_be_added_and_removed(self) -> None:
        """What was stored before is read: the database knows the types of chains."""

        class Now(EntryJob[None], name="now"):
            one: Chain[FetchRate] | Chain[ReserveStock]
            other: Chain[ReserveStock]

        job_type = Registry([Now]).require(Now)
        data = b'{"one": "o", "other": {"id": "p", "type": "reserve-stock"}}'
        bare = job_type.decode_input(data)
        assert isinstance(bare, Now)
        assert (bare.one.id, bare.other.id, bare.other.chain_type) == ("o", "p", "reserve-stock")
        known = job_type.decode_input(data, [BlockerRow("o", "reserve-stock", "completed", b'{"payment_id":"p"}')])
        assert isinstance(known, Now)
        assert (known.one.chain_type, known.one.output) == ("reserve-stock", Receipt("p"))

    def test_deeper_in_a_value_are_refused(self) -> None:
        class Bad(EntryJob[None], name="bad"):
            holder: Holder

        with pytest.raises(InvalidJobType, match="field 'holder': a chain cannot be part of another value"):
            Registry([Bad])

    def test_as_a_result_are_refused(self) -> None:
        class Bad(EntryJob[Chain[FetchRate]], name="bad"):
            pass

        with pytest.raises(InvalidJobType, match="its result: a chain cannot be part"):
            Registry([Bad])

    def test_may_have_a_default(self) -> None:
        class Patient(EntryJob[None], name="patient"):
            rates: list[Chain[FetchRate]] = field(default_factory=list)

        job_type = Registry([Patient]).require("patient")

        assert job_type.blockers_of(Patient()) == ()
        assert job_type.decode_input(b"{}") == Patient()
