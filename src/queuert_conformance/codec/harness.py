"""The class to write for a check of a codec."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from queuert.errors import InvalidArgument
from queuert.jobs.codecs.codec import Codec
from queuert_conformance.case import Suite


class CodecHarness:
    """A codec under test, with sample values.

    `samples` are pairs of a type and a value of it. Values are compared with `==`. `misfits` are
    pairs of a type and data that is not the encoding of any value of it. Without misfits, the cases
    about them are skipped.
    """

    def __init__(
        self,
        codec: Codec,
        samples: Sequence[tuple[type[Any], Any]],
        misfits: Sequence[tuple[type[Any], Any]] = (),
    ) -> None:
        if not samples:
            raise InvalidArgument("a codec needs samples to be checked: pass at least one (type, value)")
        self.codec = codec
        self.samples = samples
        self.misfits = misfits


CODEC: Suite[CodecHarness] = Suite("codec")
case = CODEC.case


@asynccontextmanager
async def open_harness(harness: CodecHarness) -> AsyncGenerator[CodecHarness, None]:
    """A codec has nothing to open or close."""
    yield harness
