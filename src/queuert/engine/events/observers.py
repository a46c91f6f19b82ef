"""All observers of a client as one, and the guard around each of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from queuert.errors import InvalidArgument
from queuert.ports.observer import EVENTS, Observer
from queuert.ports.tracer import Tracer

logger = logging.getLogger("queuert.observers")


class Observers(Observer):
    """Passes each event to the observers that override its method.

    An error of an observer is logged once per kind, and not raised.
    """

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._reported: set[tuple[str, str, type[Exception]]] = set()
        tracers = (observer.tracer for observer in observers)
        tracer = next((each for each in tracers if each is not None), None)
        self.tracer = None if tracer is None else cast(Tracer, GuardedTracer(tracer, self._report))
        for event in EVENTS:
            listeners = [getattr(observer, event) for observer in observers if _overrides(observer, event)]
            setattr(self, event, self._to_all(event, listeners))

    def _to_all(self, event: str, listeners: Sequence[Callable[..., None]]) -> Callable[..., None]:
        def tell(**facts: Any) -> None:
            for listener in listeners:
                try:
                    listener(**facts)
                except Exception as error:
                    self._report(event, listener, error)

        return tell

    def _report(self, event: str, listener: Callable[..., Any], error: Exception) -> None:
        who = type(getattr(listener, "__self__", listener)).__qualname__
        kind = (who, event, type(error))
        if kind not in self._reported:
            self._reported.add(kind)
            logger.error(
                "the observer %s failed at %s; further errors of this kind are not logged", who, event,
                exc_info=error, extra={"observer": who, "event_name": event},
            )  # fmt: skip


class GuardedTracer:
    """A tracer whose errors are logged and not raised. If it fails, there is no span (None)."""

    def __init__(self, tracer: Tracer, report: Callable[[str, Callable[..., Any], Exception], None]) -> None:
        self._tracer = tracer
        self._report = report

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._tracer, name)

        def call(*spans: Any, **facts: Any) -> Any:
            if spans == (None,):
                return None
            try:
                return method(*spans, **facts)
            except Exception as error:
                self._report(name, method, error)
                return None

        setattr(self, name, call)
        return call


def _overrides(observer: Observer, event: str) -> bool:
    return getattr(getattr(observer, event), "__func__", None) is not getattr(Observer, event)


def all_of(observers: Sequence[Observer]) -> Observers | None:
    """All observers as one. None if there are none, so that no calls are made."""
    given: Any = observers
    if not isinstance(given, Iterable) or not all(isinstance(each, Observer) for each in given):  # pyright: ignore[reportUnknownVariableType]
        raise InvalidArgument(f"observers takes a list of queuert.Observer instances, got {observers!r}")
    return Observers(observers) if observers else None
