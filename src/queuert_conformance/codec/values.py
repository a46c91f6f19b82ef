"""Codecs: values are encoded to JSON and decoded again."""

from __future__ import annotations

from copy import deepcopy
from math import isfinite
from typing import Any

import msgspec

from queuert_conformance.checks import CheckFailed, check, equal, raises, skip
from queuert_conformance.codec.harness import CodecHarness, case

FOREIGN: tuple[type[Any], ...] = (int, float, bool, str, bytes, list, dict, tuple, type(None), object)


def only_json(data: Any, path: str) -> None:
    """Fail unless the data contains only JSON types."""
    if isinstance(data, dict):
        for key, value in data.items():  # pyright: ignore[reportUnknownVariableType]
            check(type(key) is str, f"{path} has the key {key!r}: keys must be plain strings")  # pyright: ignore[reportUnknownArgumentType]
            only_json(value, f"{path}[{key!r}]")
    elif isinstance(data, list):
        for index, value in enumerate(data):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            only_json(value, f"{path}[{index}]")
    elif isinstance(data, float):
        check(isfinite(data), f"{path} is {data!r}, which is not a JSON number")
    elif type(data) not in (str, int, bool, type(None)):
        raise CheckFailed(f"{path} is a {type(data).__qualname__}, which is not a JSON type")


@case
async def the_samples_are_supported(harness: CodecHarness) -> None:
    """`supports` is true for the type of each sample, each time it is called."""
    for type_, _ in harness.samples:
        equal([harness.codec.supports(type_) for _ in range(2)], [True, True], f"supports({type_.__qualname__})")


@case
async def plain_types_are_left_alone(harness: CodecHarness) -> None:
    """`supports` is false for JSON's own types, and for `object`."""
    for type_ in FOREIGN:
        equal(harness.codec.supports(type_), False, f"supports({type_.__qualname__})")  # noqa: FBT003


@case
async def encoded_values_are_json(harness: CodecHarness) -> None:
    """`encode` returns only JSON types: string keys, finite numbers, no tuples."""
    for type_, value in harness.samples:
        only_json(harness.codec.encode(value), f"encode({type_.__qualname__})")


@case
async def values_come_back(harness: CodecHarness) -> None:
    """Decoding an encoded value returns an equal value of the same type."""
    for type_, value in harness.samples:
        back = harness.codec.decode(type_, harness.codec.encode(value))
        equal(back, value, f"the decoded {type_.__qualname__}")
        check(back.__class__ is value.__class__, f"it must be a {type_.__qualname__} again, is {back!r}")


@case
async def values_come_back_from_text(harness: CodecHarness) -> None:
    """Decoding works on parsed JSON, where tuples are lists and numbers have lost their class."""
    for type_, value in harness.samples:
        text = msgspec.json.encode(harness.codec.encode(value))
        back = harness.codec.decode(type_, msgspec.json.decode(text))
        equal(back, value, f"the {type_.__qualname__} that was read from {text[:200]!r}")


@case
async def encoding_changes_nothing(harness: CodecHarness) -> None:
    """Encoding does not change the value, and returns the same each time."""
    for type_, value in harness.samples:
        before = deepcopy(value)
        first, second = harness.codec.encode(value), harness.codec.encode(value)
        equal(second, first, f"the second encoding of a {type_.__qualname__}")
        equal(value, before, "the value afterwards")


@case
async def decoding_changes_nothing(harness: CodecHarness) -> None:
    """Decoding does not change the data, and returns an equal value each time."""
    for type_, value in harness.samples:
        data = harness.codec.encode(value)
        before = deepcopy(data)
        first, second = harness.codec.decode(type_, data), harness.codec.decode(type_, data)
        equal(second, first, f"the second decoding of a {type_.__qualname__}")
        equal(data, before, "the data afterwards")


@case
async def misfits_are_refused(harness: CodecHarness) -> None:
    """Data that does not fit its type raises ValueError."""
    if not harness.misfits:
        skip("the harness has no misfits")
    for type_, data in harness.misfits:
        with raises(ValueError, f"{data!r} as a {type_.__qualname__}"):
            harness.codec.decode(type_, data)
