"""Encodes values of one type to JSON, and decodes them.

A value is checked before it is stored: the JSON is decoded again. So what is stored can be read
later. NUL characters, lone surrogates, naive datetimes, and floats and Decimals that are not finite
are rejected.
Integers may have any size that can be decoded (a few thousand digits): text in SQLite and numeric
in PostgreSQL's jsonb both keep every digit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Generic, TypeVar, get_origin

from msgspec import inspect

from queuert.jobs.codecs.codec import Hooks
from queuert.jobs.codecs.values import field_names, has_nul, parts, unstorable

T = TypeVar("T")

# The place of the error in msgspec's messages.
_PATH = re.compile(r" - at `(?:key in )?(\$[^`]*)`$")
_MISSING = re.compile(r"missing required field `([^`]+)`")
_FIELD = re.compile(r"\$\.(\w+)")


class CodecError(ValueError):
    """A value that does not fit its type, or cannot be stored.

    `path` is its place, as in `$.items[0].price`.
    """

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path

    @property
    def field(self) -> str | None:
        """The field of the job that contains it."""
        match = _FIELD.match(self.path or "")
        return match[1] if match else None


class TypeCodec(Generic[T]):
    """Encodes and decodes values of one type.

    Raises `TypeError` if the type cannot be stored as JSON.
    """

    __slots__ = ("_decoder", "_encoder", "_expected", "_is_none", "_suspects", "_texts")

    def __init__(self, type_: type[T] | Any, hooks: Hooks) -> None:
        info = inspect.type_info(type_)
        for part in parts(info):
            if isinstance(part, inspect.CustomType) and not hooks.supports(part.cls):
                raise TypeError(f"{part.cls.__qualname__} is not supported by msgspec, nor by a codec in codecs=[…]")
            if isinstance(part, inspect.RawType):
                raise TypeError("msgspec.Raw cannot be validated, because msgspec does not read it: use Any")
        self._encoder = hooks.encoder
        self._decoder = hooks.decoder(type_)
        # Fields to check before msgspec encodes them, because msgspec would not report them. "" is
        # the value itself.
        self._expected: type = object
        fields = [("", info)]
        if isinstance(info, inspect.DataclassType):
            self._expected = get_origin(info.cls) or info.cls
            fields = [(field.name, field.type) for field in info.fields]
        self._is_none = isinstance(info, inspect.NoneType)
        self._texts = [name for name, part in fields if _is_text(part)]
        self._suspects = [name for name, part in fields if not _is_text(part) and _may_be_unstorable(part)]

    def encode(self, value: T) -> bytes:
        """Encode a value, and check that it can be decoded again. Raises `CodecError` if not."""
        if value is None and self._is_none:
            return b"null"
        try:
            if isinstance(value, self._expected):
                if self._texts:
                    _check_texts(value, self._texts)
                if self._suspects:
                    _check_storable(value, self._suspects)
            else:
                _check_storable(value, ("",))
            data = self._encoder.encode(value)
            if has_nul(data):
                raise ValueError("text with a NUL character cannot be stored")
            self._decoder.decode(data)
        except CodecError:
            raise
        except Exception as error:
            raise _located(error, self._blame(value)) from error
        return data

    def decode(self, data: bytes) -> T:
        """Decode a value. Raises `CodecError` if the JSON does not fit the type."""
        try:
            value: T = self._decoder.decode(data)
        except Exception as error:
            raise _located(error, None) from error
        return value

    def _blame(self, value: T) -> str | None:
        """The field that cannot be encoded.

        Found by encoding each field alone, which is done only after an error.
        """
        for name in field_names(type(value)):
            try:
                if has_nul(self._encoder.encode(getattr(value, name))):
                    return _path(name)
            except Exception:
                return _path(name)
        return None


def _check_texts(value: object, names: Iterable[str]) -> None:
    # msgspec also encodes bytes, dates and Decimals as text. In a field of type str they would be
    # read back as str.
    for name in names:
        text = getattr(value, name) if name else value
        if not (text is None or isinstance(text, str)):
            path = _path(name)
            raise CodecError(f"Expected `str`, got `{type(text).__name__}` - at `{path}`", path)


def _check_storable(value: object, names: Iterable[str]) -> None:
    for name in names:
        problem = unstorable(getattr(value, name) if name else value, _path(name))
        if problem is not None:
            raise CodecError(f"{problem.message} - at `{problem.path}`", problem.path)


def _path(name: str) -> str:
    return f"$.{name}" if name else "$"


def _is_text(info: inspect.Type) -> bool:
    """Whether the type is `str` or `str | None`."""
    kinds = info.types if isinstance(info, inspect.UnionType) else (info,)
    found = {type(kind) for kind in kinds}
    return inspect.StrType in found and found <= {inspect.StrType, inspect.NoneType}


def _may_be_unstorable(info: inspect.Type) -> bool:
    # If null is allowed, a NaN of the wrong type would be stored as null.
    hiding = (inspect.FloatType, inspect.DecimalType, inspect.DateTimeType, inspect.AnyType, inspect.NoneType)
    return any(isinstance(part, hiding) for part in parts(info))


def _located(error: Exception, path: str | None) -> CodecError:
    message = str(error) or type(error).__name__
    found = _PATH.search(message)
    missing = _MISSING.search(message)
    if found is not None or missing is not None:
        path = (found[1] if found else "$") + (f".{missing[1]}" if missing else "")
    elif path is not None:
        message += f" - at `{path}`"
    return CodecError(message, path)
