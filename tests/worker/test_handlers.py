"""What a worker and its handlers can be made of, and what is refused before anything runs."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Generator
from datetime import timedelta
from typing import Any

import pytest

import queuert
from queuert import (
    Attempt,
    Backoff,
    Client,
    EntryJob,
    Handlers,
    InvalidArgument,
    Job,
    Middleware,
    Queue,
    SyncAttempt,
    UnknownJobType,
    Worker,
)
from queuert.worker.handlers.registry import SharedSettings, registry_of, resolve


class One(EntryJob[None], name="one"):
    pass


class Two(EntryJob[None], name="two", queue="slow"):
    pass


class Unknown(EntryJob[None], name="unknown"):
    pass


async def handler(attempt: Attempt[Any]) -> None:
    return


ANY: Any = handler


@pytest.fixture
def client() -> Client[Any]:
    return queuert.connect("memory://", jobs=[One, Two])


def of(*types: Any, **options: Any) -> Handlers[Any]:
    handlers = Handlers[Any]()
    for job_type in types:
        handlers.handles(job_type, **options)(handler)
    return handlers


def test_a_handler_for_a_type_that_the_client_does_not_know(client: Client[Any]) -> None:
    with pytest.raises(UnknownJobType, match="'unknown'"):
        Worker(client, of(One, Unknown))


def test_two_handlers_for_one_type(client: Client[Any]) -> None:
    handlers = of(One)
    with pytest.raises(InvalidArgument, match="'one' already has a handler"):
        handlers.handles(One)(handler)
    with pytest.raises(InvalidArgument, match="'one' has two handlers"):
        Worker(client, [of(One), of(Two), of(One)])


@pytest.mark.parametrize("wrong", [One(), "one", None, Job, EntryJob, int])
def test_handles_takes_a_job_class(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="job class"):
        Handlers[Any]().handles(wrong)


def _generator(attempt: Any) -> Generator[None]:
    yield


async def _async_generator(attempt: Any) -> AsyncGenerator[None]:
    yield


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        42,
        "handler",
        lambda: None,
        lambda attempt, more: None,
        lambda *, attempt: None,
        functools.partial(ANY, None),
        _generator,
        _async_generator,
    ],
)
def test_what_cannot_be_a_handler(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="'one'"):
        Handlers[Any]().handles(One)(wrong)


def _of_one(attempt: Attempt[One]) -> None: ...
async def _of_two(attempt: Attempt[Two]) -> None: ...
def _of_two_in_a_thread(attempt: SyncAttempt[Two]) -> None: ...
def _of_a_union(attempt: Attempt[One | Two]) -> None: ...
def _of_any_job(attempt: Attempt[Job[Any, Any]]) -> None: ...
def _of_what_is_not_there(attempt: Attempt[Missing]) -> None: ...  # type: ignore[name-defined] # noqa: F821 # pyright: ignore
def _not_as_text(attempt: Any) -> None: ...
def _with_more(attempt: Attempt[Two], more: Missing = None) -> None: ...  # type: ignore[name-defined] # noqa: F821 # pyright: ignore


_not_as_text.__annotations__["attempt"] = Attempt[Two]


class OfTwo:
    async def __call__(self, attempt: Attempt[Two]) -> None: ...

    def method(self, attempt: SyncAttempt[Two]) -> None: ...


@pytest.mark.parametrize(
    "wrong",
    [_of_two, _of_two_in_a_thread, _not_as_text, _with_more, OfTwo(), OfTwo().method, functools.partial(_of_two)],
)
def test_a_handler_whose_annotation_names_another_job_class(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"handler of 'one' takes an attempt of another job class, Two: annotate"):
        Handlers[Any]().handles(One)(wrong)
    Handlers[Any]().handles(Two)(wrong)


@pytest.mark.parametrize("right", [_of_one, _of_a_union, _of_any_job, _of_what_is_not_there, handler])
def test_annotations_that_allow_the_job_class(right: Any) -> None:
    Handlers[Any]().handles(One)(right)


def test_an_annotation_that_names_a_class_of_the_function_around() -> None:
    """Its name is looked up in the module, where another class has it."""

    class Two(EntryJob[None], name="another-two"):
        pass

    def two(attempt: SyncAttempt[Two]) -> None: ...

    job_class: Any = Two
    assert Handlers[Any]().handles(job_class)(two) is two


class Callables:
    async def __call__(self, attempt: Any) -> None:
        return

    async def method(self, attempt: Any) -> None:
        return

    @staticmethod
    def static(attempt: Any) -> None:
        return


@pytest.mark.parametrize(
    ("function", "is_async"),
    [
        (handler, True),
        (Callables(), True),
        (Callables().method, True),
        (Callables.static, False),
        (functools.partial(handler), True),
        (lambda attempt: None, False),
        (lambda attempt, more=1, *args, **options: None, False),
        (functools.wraps(handler)(lambda attempt: handler(attempt)), True),
        (print, False),
    ],
)
def test_what_can_be_a_handler(client: Client[Any], function: Any, is_async: bool) -> None:
    handlers = Handlers[Any]()
    assert handlers.handles(One)(function) is function
    assert registry_of(handlers).by_name["one"].is_async is is_async
    Worker(client, handlers)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": True},
        {"max_attempts": 1.5},
        {"concurrency": 0},
        {"concurrency": -1},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": "1"},
        {"timeout": float("inf")},
        {"queue": ""},
        {"queue": 7},
    ],
)
def test_wrong_settings_of_a_handler(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Handlers[Any]().handles(One, **wrong)(handler)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease": 0},
        {"lease": -1},
        {"lease": "60"},
        {"lease": 1, "renew_interval": 1},
        {"lease": 1, "renew_interval": 2},
        {"lease": timedelta(seconds=10), "renew_interval": timedelta(seconds=20)},
        {"renew_interval": 0},
        {"renew_interval": 60},
        {"backoff": 5},
        {"backoff": "often"},
    ],
)
def test_wrong_leases_and_backoffs_at_each_level(client: Client[Any], wrong: dict[str, Any]) -> None:
    by_registry = Handlers[Any](**wrong)
    by_registry.handles(One)(handler)
    for handlers, options in ((of(One, **wrong), {}), (by_registry, {}), (of(One), wrong)):
        with pytest.raises(InvalidArgument):
            Worker(client, handlers, **options)


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "ä"},
        {"name": "a\n"},
        {"name": "x" * 101},
        {"name": 7},
        {"concurrency": 0},
        {"concurrency": -3},
        {"concurrency": 1.5},
        {"concurrency": True},
        {"max_claim_batch": 0},
        {"max_claim_per_worker": -1},
        {"cluster_cap": -1},
        {"cluster_cap": "2"},
        {"coalesce_notifies": 0},
        {"poll_interval": 0},
        {"poll_interval": -1},
        {"poll_interval": float("nan")},
        {"shutdown_timeout": -1},
        {"recovery_backoff": None},
        {"queues": ["nowhere"]},
        {"queues": ["default", "default"]},
        {"queues": []},
    ],
)
def test_wrong_options_of_a_worker(client: Client[Any], wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Worker(client, of(One), **wrong)


@pytest.mark.parametrize("wrong", [None, 7, handler, [handler], [None], [], Handlers(), {"one": handler}])
def test_what_are_no_handlers(client: Client[Any], wrong: Any) -> None:
    with pytest.raises(InvalidArgument):
        Worker(client, wrong)


def test_what_is_no_client() -> None:
    wrong: Any
    for wrong in (None, queuert.connect_sync("memory://", jobs=[One]), "memory://"):
        with pytest.raises(InvalidArgument, match="client"):
            Worker(wrong, of(One))


@pytest.mark.parametrize("wrong", [{"max_concurrency": -1}, {"max_concurrency": True}, {"priority": 1.5}])
def test_wrong_queues(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Queue("default", **wrong)
    with pytest.raises(InvalidArgument):
        Queue("")


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 100, None])
def test_names_and_identities(client: Client[Any], name: str | None) -> None:
    one, two = Worker(client, of(One), name=name), Worker(client, of(One), name=name)
    assert one.id.startswith(f"{name or 'worker'}-")
    assert one.id != two.id


def test_settings_come_from_the_handler_then_the_registry_then_the_worker_then_the_library(
    client: Client[Any],
) -> None:
    first, second = Backoff(initial=1), Backoff(initial=2)
    registry = Handlers[Any](lease=30, backoff=second)
    registry.handles(One, lease=timedelta(seconds=10), renew_interval=3, backoff=first, queue="fast")(handler)
    registry.handles(Two)(handler)
    plans = resolve([registry], client._engine.jobs, SharedSettings(lease=90, renew_interval=5))
    assert (plans["one"].lease, plans["one"].renew_interval, plans["one"].queue) == (10, 3, "fast")
    assert (plans["two"].lease, plans["two"].renew_interval, plans["two"].queue) == (30, 5, "slow")
    assert (plans["one"].backoff, plans["two"].backoff) == (first, second)
    (plan,) = resolve([of(One)], client._engine.jobs, SharedSettings()).values()
    assert (plan.lease, plan.renew_interval, plan.backoff) == (60, 30, Backoff())


class A(Middleware):
    pass


class B(Middleware):
    pass


def test_required_middleware_by_presence_order_and_identity(client: Client[Any]) -> None:
    a, b = A(), B()
    with_both = Handlers[Any](middleware=[Middleware(), a, Middleware(), b])
    with_both.handles(One)(handler)
    with_one = Handlers[Any](middleware=[b])
    with_one.handles(Two)(handler)
    for required in ([], [a], [b], [a, b]):
        Worker(client, with_both, required_middleware=required)
    for required, missing in (([b, a], "A"), ([a, a], "A"), ([A()], "A"), ([a, b, b], "B")):
        with pytest.raises(InvalidArgument, match=f"handlers of one lack the required middleware {missing}"):
            Worker(client, with_both, required_middleware=required)
    with pytest.raises(InvalidArgument, match="handlers of two lack the required middleware A"):
        Worker(client, [with_both, with_one], required_middleware=[a, b])
    Worker(client, [with_both, with_one], required_middleware=[b])


def test_all_that_lack_required_middleware_are_named(client: Client[Any]) -> None:
    a, b, c = A(), B(), Middleware()
    without, with_b, with_all = Handlers[Any](), Handlers[Any](middleware=[b]), Handlers[Any](middleware=[a, b, c])
    without.handles(One)(handler)
    with_b.handles(Two)(handler)
    with pytest.raises(InvalidArgument) as caught:
        Worker(client, [without, with_b, with_all], required_middleware=[a, b, c])
    assert str(caught.value) == (
        "the handlers of one lack the required middleware A, B, Middleware, or have it in another order; "
        "the handlers of two lack the required middleware A, Middleware, or have it in another order"
    )


@pytest.mark.parametrize("wrong", [A, None, "a", object()])
def test_middleware_is_made_of_instances(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="instances"):
        Handlers[Any](middleware=[wrong])


def test_an_attempt_of_a_plain_handler_is_typed_as_such() -> None:
    handlers = Handlers[Any]()

    @handlers.handles(One)
    def plain(attempt: SyncAttempt[One]) -> None:
        return

    assert not registry_of(handlers).by_name["one"].is_async
