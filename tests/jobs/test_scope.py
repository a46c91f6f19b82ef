"""Names in job classes: forward references at module level, in functions and in classes."""

from __future__ import annotations

import gc
import sys
import weakref
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Never, Optional, Union

import pytest
from msgspec import Meta
from tests.jobs import shop

from queuert.errors import InvalidJobType
from queuert.jobs import Chain, EntryJob, Job, Registry

if TYPE_CHECKING:
    from fractions import Fraction


def test_module_level_names_are_resolved_when_the_registry_is_built() -> None:
    registry = Registry([shop.ReserveStock, shop.Elsewhere])

    assert registry.require("reserve-stock").continuations == {"charge-card"}
    assert registry.require("charge-card").continuations == {"charge-card", "send-receipt"}
    assert registry.require("send-receipt").continuations == frozenset()
    assert registry.require("elsewhere").continuations == {"imported"}
    assert registry.require("charge-card").returns is shop.Receipt


def test_local_classes_find_each_other_whatever_the_order() -> None:
    @dataclass
    class Note:
        text: str

    class First(EntryJob["Note", "Second | Third"], name="first"):
        note: Note

    class Second(Job["Note", "First"], name="second"):
        notes: list[Note]

    class Third(Job[Note, "Third"], name="third"):
        waits_for: Chain[First]

    registry = Registry([First])

    assert registry.names == ("first", "third", "second")
    assert registry.require("first").continuations == {"second", "third"}
    assert registry.require("third").continuations == {"third"}
    assert registry.require("third").blocker_fields == {"waits_for": (False, ("first",))}
    job_type = registry.require("second")
    job = Second(notes=[Note("a")])
    assert job_type.decode_input(job_type.encode_input(job)) == job


def test_a_local_class_means_its_own_neighbours_not_those_of_another_call() -> None:
    def define(number: int) -> tuple[type[EntryJob[Any, Any]], type[Job[Any, Any]]]:
        class Start(EntryJob[int, "Go"], name=f"start-{number}"):
            pass

        class Go(Job[int, "Go"], name=f"go-{number}"):
            pass

        return Start, Go

    pairs = [define(number) for number in range(3)]

    for number, (start, go) in enumerate(pairs):
        registry = Registry([start])
        assert registry.names == (f"start-{number}", f"go-{number}")
        assert registry.require(go).continuations == {f"go-{number}"}


def test_a_local_class_sees_all_functions_around_it() -> None:
    @dataclass
    class Shared:
        value: int

    def inner() -> Registry:
        class Nested(EntryJob["Shared"], name="nested"):
            shared: Shared

        return Registry([Nested])

    job_type = inner().require("nested")

    assert job_type.returns is Shared
    assert job_type.decode_output(job_type.encode_output(Shared(1))) == Shared(1)


def test_a_class_inside_a_class_sees_its_neighbours() -> None:
    class Group:
        class One(EntryJob[int, "Two"], name="one"):
            pass

        class Two(Job[int], name="two"):
            pass

    assert Registry([Group.One]).names == ("one", "two")


def test_local_classes_can_be_forgotten() -> None:
    def define() -> weakref.ref[type]:
        class Passing(EntryJob[None, "Passing"], name="passing"):
            pass

        return weakref.ref(Passing)

    reference = define()
    gc.collect()

    assert reference() is None


def test_references_may_stand_anywhere_in_a_type() -> None:
    class Many(EntryJob["list[Decimal] | None", Union["Many", "Other"]], name="many"):
        optional: "Optional[Decimal]"  # noqa: UP037, UP045
        limited: Annotated[int, Meta(ge=0)]
        chains: list[Chain["Many"]]  # noqa: UP037

    class Other(Job[None, Never], name="other"):
        pass

    registry = Registry([Many])

    assert registry.require("many").continuations == {"many", "other"}
    assert registry.require("many").blocker_fields == {"chains": (True, ("many",))}
    assert registry.require("other").continuations == frozenset()


def test_fields_of_a_mixin_are_resolved_where_it_was_written() -> None:
    class Inherits(EntryJob[None], shop.Receipt, name="inherits"):
        amount: Decimal

    job_type = Registry([Inherits]).require("inherits")

    assert job_type.encode_input(Inherits(payment_id="p", amount=Decimal(1))) == b'{"payment_id":"p","amount":"1"}'


class TestUnknownNames:
    def test_in_the_result(self) -> None:
        class Bad(EntryJob["Nowhere"], name="bad"):  # type: ignore[name-defined]
            pass

        with pytest.raises(InvalidJobType, match=r"result mentions 'Nowhere'.*module level"):
            Registry([Bad])

    def test_in_a_continuation(self) -> None:
        class Bad(EntryJob[None, "Nowhere"], name="bad"):  # type: ignore[name-defined]
            pass

        with pytest.raises(InvalidJobType, match="its continuation mentions 'Nowhere'"):
            Registry([Bad])

    def test_in_a_field(self) -> None:
        class Bad(EntryJob[None], name="bad"):
            ratio: Fraction

        with pytest.raises(InvalidJobType, match=r"field 'ratio' mentions 'Fraction'.*TYPE_CHECKING"):
            Registry([Bad])

    def test_inside_the_type_of_a_field(self) -> None:
        @dataclass
        class Late:
            later: Later

        class Bad(EntryJob[None], name="bad"):
            late: Late

        @dataclass
        class Later:
            pass

        with pytest.raises(InvalidJobType, match="field 'late' cannot be stored as JSON: name 'Later'"):
            Registry([Bad])

    def test_an_annotation_that_is_no_type(self) -> None:
        class Bad(EntryJob[None], name="bad"):
            ratio: "1 +"  # type: ignore[valid-type] # noqa: F722

        with pytest.raises(InvalidJobType, match="field 'ratio' is not a usable type"):
            Registry([Bad])

    def test_a_module_that_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Lost(EntryJob["Decimal"], name="lost"):
            pass

        monkeypatch.delitem(sys.modules, __name__)

        with pytest.raises(InvalidJobType, match="mentions 'Decimal'"):
            Registry([Lost])
