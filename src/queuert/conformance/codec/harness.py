"""What a user writes to have a codec checked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from queuert.conformance.case import Suite
from queuert.errors import InvalidArgument
from queuert.jobs.codec import Codec


class CodecHarness:
    """A codec under test, with samples of what it handles.

    `samples` are pairs of a type and a value of it; values are compared with `==`. `misfits` are pairs of a type
    and data that is no encoding of any value of it; without any, the cases about them skip.
    """

    def __init__(
        self,
        codec: Codec,
        samples: Sequence[tuple[type[Any], Any]],
        misfits: Sequence[tuple[type[Any], Any]] = (),
    ) -> None:
        if not samples:
            raise InvalidArgument("a codec can only be checked with samples: give at least one (type, value)")
        self.codec = codec
        self.samples = samples
        self.misfits = misfits


CODEC: Suite[CodecHarness] = Suite("codec")
case = CODEC.case


@asynccontextmanager
async def open_harness(harness: CodecHarness) -> AsyncGenerator[CodecHarness, None]:
    """A codec has nothing to open or close."""
    yield harness
