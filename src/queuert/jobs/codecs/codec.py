"""Types that msgspec does not know.

Dataclasses, attrs classes, Structs, TypedDicts, enums, datetimes, UUIDs and Decimals need no codec.
A `Codec` adds other types. The codec for pydantic models is built in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, get_args, get_origin, runtime_checkable

import msgspec

from queuert.jobs.chain import Chain
from queuert.jobs.codecs.values import unstorable
from queuert.jobs.job import name_of


@runtime_checkable
class Codec(Protocol):
    """Stores types that msgspec does not know, as fields or results. Pass yours in `codecs=[…]`."""

    def supports(self, type_: type[Any], /) -> bool:
        """Whether this codec handles the type. It is called once for each type.

        Args:
            type_: The class, or the origin of a generic type.
        """
        raise NotImplementedError

    def encode(self, value: Any, /) -> Any:
        """The value in types that JSON knows: dict, list, str, int, float, bool, None.

        Args:
            value: A value of a type that the codec supports.
        """
        raise NotImplementedError

    def decode(self, type_: type[Any], data: Any, /) -> Any:
        """The value that `encode` was given. Raise ValueError if the data does not fit the type.

        Args:
            type_: The type to make a value of.
            data: What `encode` returned.
        """
        raise NotImplementedError


class PydanticCodec:
    """Pydantic (v2) models. It supports nothing if pydantic is not installed."""

    def supports(self, type_: type[Any], /) -> bool:
        # Code with models has imported pydantic. Other code should not pay for the import.
        if "pydantic" not in sys.modules:
            return False
        from pydantic import BaseModel

        return issubclass(type_, BaseModel)

    def encode(self, value: Any, /) -> Any:
        return value.model_dump(mode="json", by_alias=True, round_trip=True)

    def decode(self, type_: type[Any], data: Any, /) -> Any:
        # As JSON, so that strict models accept the text of a datetime or a UUID.
        return type_.model_validate_json(msgspec.json.encode(data))


class TypedChain:
    """A chain in a field for chains of several types: it is stored with its type."""

    __slots__ = ("chain",)

    def __init__(self, chain: Chain[Any]) -> None:
        self.chain = chain


class Hooks:
    """What msgspec calls for types that it does not know: chains, and the types of codecs."""

    def __init__(self, codecs: Sequence[Codec], chain: Callable[[str, str], Chain[Any]]) -> None:
        self._codecs = (*codecs, PydanticCodec())
        self._chain = chain
        self._known: dict[type[Any], Codec | None] = {}
        self.encoder = msgspec.json.Encoder(enc_hook=self._encode)

    def supports(self, type_: type[Any]) -> bool:
        return issubclass(type_, Chain) or self._codec(type_) is not None

    def decoder(self, type_: Any) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(type_, dec_hook=self._decode)

    def _codec(self, type_: type[Any]) -> Codec | None:
        if type_ not in self._known:
            self._known[type_] = next((codec for codec in self._codecs if codec.supports(type_)), None)
        return self._known[type_]

    def _encode(self, value: Any) -> Any:
        if isinstance(value, Chain):
            return value.id
        if isinstance(value, TypedChain):
            return {"id": value.chain.id, "type": value.chain.chain_type}
        cls: type[Any] = value.__class__
        codec = self._codec(cls)
        if codec is None:
            raise TypeError(f"a value of type {cls.__qualname__} cannot be stored as JSON")
        data = codec.encode(value)
        problem = unstorable(data)
        if problem is not None:
            raise ValueError(f"{cls.__qualname__}: {problem.message}")
        return data

    def _decode(self, type_: Any, data: Any) -> Any:
        origin = get_origin(type_) or type_
        if origin is Chain:
            return self._decode_chain(get_args(type_)[0], data)
        codec = self._codec(origin)
        assert codec is not None, f"{type_} was checked when its decoder was built"
        return codec.decode(type_, data)

    def _decode_chain(self, job_class: Any, data: Any) -> Chain[Any]:
        """Both forms are read, because a field may get more types, or lose some."""
        match data:
            case str():
                # One type, or the first of several: the database knows better (see `decode_input`).
                return self._chain(data, name_of((get_args(job_class) or (job_class,))[0]))
            case {"id": str(chain_id), "type": str(type_name)}:
                return self._chain(chain_id, type_name)
            case _:
                raise ValueError(f"Expected the id of a chain, got {type(data).__name__}")
