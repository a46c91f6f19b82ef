"""How values become JSON and back.

msgspec does the work: dataclasses, attrs classes, Structs, TypedDicts, enums, datetimes, UUIDs and Decimals need nothing
else. A `Codec` adds the types it does not know; the one for pydantic models is built in.

A value is checked before it is stored, by reading back what was written: what passes can be read later. Refused are
NUL characters, lone surrogates, and floats and Decimals that are not finite. Integers may be of any size that is
read back (some thousand digits): the text of SQLite and the numeric of PostgreSQL's jsonb both keep every digit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar, get_args, get_origin

import msgspec
from msgspec import inspect

from queuert.jobs.chain import Chain
from queuert.jobs.job import name_of
from queuert.jobs.values import field_names, has_nul, non_finite, parts

T = TypeVar("T")

_PATH = re.compile(r" - at `(?:key in )?(\$[^`]*)`$")
_MISSING = re.compile(r"missing required field `([^`]+)`")
_FIELD = re.compile(r"\$\.(\w+)")


class Codec(Protocol):
    """Types that msgspec does not know, as fields or results. Pass yours in `codecs=[…]`."""

    def supports(self, type_: type[Any], /) -> bool:
        """Whether this codec handles the type. Asked once per type."""
        ...

    def encode(self, value: Any, /) -> Any:
        """The value as what JSON knows: dict, list, str, int, float, bool, None."""
        ...

    def decode(self, type_: type[Any], data: Any, /) -> Any:
        """The value again, from what `encode` returned. Raise ValueError if it does not fit."""
        ...


class PydanticCodec:
    """Pydantic (v2) models. Without pydantic installed it supports nothing."""

    def supports(self, type_: type[Any], /) -> bool:
        # Who has a model has imported pydantic; nobody else shall pay for it.
        if "pydantic" not in sys.modules:
            return False
        from pydantic import BaseModel

        return issubclass(type_, BaseModel)

    def encode(self, value: Any, /) -> Any:
        return value.model_dump(mode="json", by_alias=True, round_trip=True)

    def decode(self, type_: type[Any], data: Any, /) -> Any:
        # As JSON, so that strict models still take a datetime or a UUID from its text.
        return type_.model_validate_json(msgspec.json.encode(data))


class CodecError(ValueError):
    """A value that does not fit its type, or cannot be stored. `path` says where, as in `$.items[0].price`."""

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path

    @property
    def field(self) -> str | None:
        """The field of the job in which it lies."""
        match = _FIELD.match(self.path or "")
        return match[1] if match else None


class Hooks:
    """What msgspec asks for types it does not know: chains (stored as their id), and the types of codecs."""

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
        codec = self._codec(type(value))
        if codec is None:
            raise TypeError(f"a value of type {type(value).__qualname__} cannot be stored as JSON")
        data = codec.encode(value)
        if non_finite(data) is not None:
            raise ValueError(f"{type(value).__qualname__} holds a number that is not finite")
        return data

    def _decode(self, type_: Any, data: Any) -> Any:
        origin = get_origin(type_) or type_
        if origin is Chain:
            if not isinstance(data, str):
                raise ValueError(f"Expected the id of a chain, got {type(data).__name__}")
            return self._chain(data, name_of(get_args(type_)[0]))
        codec = self._codec(origin)
        assert codec is not None, f"{type_} was checked when its decoder was built"
        return codec.decode(type_, data)


class TypeCodec(Generic[T]):
    """Writes and reads values of one type. Built once: `TypeError` if the type cannot be stored as JSON."""

    __slots__ = ("_decoder", "_encoder", "_finite", "_texts", "_whole")

    def __init__(self, type_: type[T] | Any, hooks: Hooks) -> None:
        info = inspect.type_info(type_)
        for part in parts(info):
            if isinstance(part, inspect.CustomType) and not hooks.supports(part.cls):
                raise TypeError(f"{part.cls.__qualname__} is not known to msgspec, nor to a codec in codecs=[…]")
            if isinstance(part, inspect.RawType):
                raise TypeError("msgspec.Raw is not read, so it cannot be validated: use Any")
        self._encoder = hooks.encoder
        self._decoder = hooks.decoder(type_)
        fields = _Fields(info)
        self._whole = fields.whole
        self._finite = fields.finite
        self._texts = fields.texts

    def encode(self, value: T) -> bytes:
        """JSON, after checking that the same value can be read back from it."""
        try:
            return self._encode(value)
        except CodecError:
            raise
        except Exception as error:
            raise _located(error, self._blame(value)) from error

    def decode(self, data: bytes) -> T:
        try:
            value: T = self._decoder.decode(data)
        except Exception as error:
            raise _located(error, None) from error
        return value

    def _encode(self, value: T) -> bytes:
        for name in self._texts:
            # msgspec writes bytes, dates and numbers of other classes as text too, and they would come back as str.
            text = value if name is None else getattr(value, name)
            if text is not None and not isinstance(text, str):
                path = "$" if name is None else f"$.{name}"
                raise CodecError(f"Expected `str`, got `{type(text).__name__}` - at `{path}`", path)
        path = non_finite(value) if self._whole else None
        for name in self._finite:
            path = path or non_finite(getattr(value, name), f"$.{name}")
        if path is not None:
            raise CodecError(f"a number that is not finite - at `{path}`", path)
        data = self._encoder.encode(value)
        if has_nul(data):
            raise ValueError("text with a NUL character cannot be stored")
        self._decoder.decode(data)
        return data

    def _blame(self, value: T) -> str | None:
        """The field that cannot be written, found by writing each alone; only an error is worth that."""
        for name in field_names(type(value)):
            try:
                if has_nul(self._encoder.encode(getattr(value, name))):
                    return f"$.{name}"
            except Exception:  # noqa: BLE001 - whatever it is, this is the field
                return f"$.{name}"
        return None


class _Fields:
    """What has to be looked at before msgspec writes a value, because it would not tell."""

    def __init__(self, info: inspect.Type) -> None:
        self.whole = False
        self.finite: list[str] = []
        self.texts: list[str | None] = []
        if not isinstance(info, inspect.DataclassType):
            self.whole = _may_hide_nan(info)
            if _is_text(info):
                self.texts.append(None)
            return
        for field in info.fields:
            if _is_text(field.type):
                self.texts.append(field.name)
            elif _may_hide_nan(field.type):
                self.finite.append(field.name)


def _is_text(info: inspect.Type) -> bool:
    kinds = info.types if isinstance(info, inspect.UnionType) else (info,)
    optional = all(isinstance(kind, inspect.StrType | inspect.NoneType) for kind in kinds)
    return optional and any(isinstance(kind, inspect.StrType) for kind in kinds)


def _may_hide_nan(info: inspect.Type) -> bool:
    # Where null is allowed, a NaN of the wrong type would pass as null.
    hiding = (inspect.FloatType, inspect.DecimalType, inspect.AnyType, inspect.NoneType)
    return any(isinstance(part, hiding) for part in parts(info))


def _located(error: Exception, path: str | None) -> CodecError:
    message = str(error) or type(error).__name__
    found = _PATH.search(message)
    missing = _MISSING.search(message)
    if found or missing:
        path = found[1] if found else "$"
        path += f".{missing[1]}" if missing else ""
    elif path is not None:
        message += f" - at `{path}`"
    return CodecError(message, path)
