"""Job ids: UUIDv7 that rise within a process, whatever the clock does."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest

from queuert.base.ids import UuidV7, generate_uuid7, validate_uuid
from queuert.errors import InvalidJobId


class Clock:
    def __init__(self, milliseconds: int) -> None:
        self.milliseconds = milliseconds

    def __call__(self) -> int:
        return self.milliseconds


def test_an_id_is_a_canonical_uuid_of_version_7() -> None:
    clock = Clock(0x0123_4567_89AB)
    made = UuidV7(clock)()
    parsed = uuid.UUID(made)
    assert str(parsed) == made
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert parsed.int >> 80 == 0x0123_4567_89AB
    validate_uuid(made)


def test_ids_rise_within_a_millisecond() -> None:
    make = UuidV7(Clock(1_900_000_000_000))
    ids = [make() for _ in range(10_000)]
    assert ids == sorted(set(ids))


def test_ids_rise_when_the_clock_is_set_back() -> None:
    clock = Clock(1_900_000_000_000)
    make = UuidV7(clock)
    before = [make() for _ in range(10)]
    clock.milliseconds -= 3_600_000
    after = [make() for _ in range(10)]
    clock.milliseconds += 7_200_000
    later = make()
    assert [*before, *after, later] == sorted({*before, *after, later})


def test_ids_rise_over_the_end_of_the_random_part() -> None:
    make = UuidV7(Clock(1_900_000_000_000))
    first = make()
    make._high, make._low = (1 << 26) - 1, (1 << 48) - 1
    following = [make() for _ in range(5)]
    assert [first, *following] == sorted({first, *following})
    assert uuid.UUID(following[-1]).int >> 80 == 1_900_000_000_001
    assert {uuid.UUID(each).version for each in following} == {7}
    assert {uuid.UUID(each).variant for each in following} == {uuid.RFC_4122}


def test_the_order_of_ids_is_the_order_of_time() -> None:
    clock = Clock(1)
    make = UuidV7(clock)
    ids = []
    for shift in range(48):
        clock.milliseconds = 1 << shift
        ids.append(make())
    assert ids == sorted(ids)


def test_several_ids_at_once_are_in_order_between_those_made_one_by_one() -> None:
    make = UuidV7(Clock(1_900_000_000_000))
    ids = [make(), *make.several(1000), make(), *make.several(1), *make.several(64)]
    assert ids == sorted(set(ids))
    for each in ids:
        validate_uuid(each)


def test_several_ids_rise_over_the_end_of_the_random_part() -> None:
    make = UuidV7(Clock(1_900_000_000_000))
    first = make()
    make._high, make._low = (1 << 26) - 1, (1 << 48) - 3
    following = make.several(10)
    assert [first, *following] == sorted({first, *following})
    assert len(following) == 10
    make._low = (1 << 48) - (1 << 33)  # the end comes after some of them
    assert (again := make.several(20)) == sorted(set(again))


def test_two_makers_do_not_collide() -> None:
    clock = Clock(1_900_000_000_000)
    one, two = UuidV7(clock), UuidV7(clock)
    assert len({*(one() for _ in range(5000)), *(two() for _ in range(5000))}) == 10_000


def test_threads_never_get_the_same_id() -> None:
    made: list[list[str]] = [[] for _ in range(4)]

    def work(mine: list[str]) -> None:
        mine.extend(generate_uuid7() for _ in range(5000))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each for mine in made for each in mine}) == 20_000
    assert all(mine == sorted(mine) for mine in made)


@pytest.mark.parametrize("fine", ["00000000-0000-0000-0000-000000000000", "c56a4180-65aa-42ec-a945-5fd21dec0538"])
def test_any_uuid_will_do(fine: str) -> None:
    validate_uuid(fine)
    validate_uuid(generate_uuid7())
    assert str(uuid.UUID(fine)) == fine


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("", "not a UUID"),
        ("x", "not a UUID"),
        ("C56A4180-65AA-42EC-A945-5FD21DEC0538", "c56a4180-65aa-42ec-a945-5fd21dec0538"),
        ("c56a418065aa42eca9455fd21dec0538", "canonical"),
        ("{c56a4180-65aa-42ec-a945-5fd21dec0538}", "canonical"),
        ("urn:uuid:c56a4180-65aa-42ec-a945-5fd21dec0538", "canonical"),
        (" c56a4180-65aa-42ec-a945-5fd21dec0538", "not a UUID"),
        ("c56a4180-65aa-42ec-a945-5fd21dec0538\n", "not a UUID"),
        ("c56a4180-65aa-42ec-a945-5fd21dec053\0", "not a UUID"),
        ("٠٠٠٠٠٠٠٠-0000-0000-0000-000000000000", "canonical"),
        (7, "must be a string, got int"),
        (None, "must be a string, got NoneType"),
        (uuid.UUID(int=0), "must be a string, got UUID"),
    ],
)
def test_everything_else_is_refused(bad: Any, reason: str) -> None:
    with pytest.raises(InvalidJobId, match=reason) as caught:
        validate_uuid(bad)
    assert caught.value.job_id is bad
