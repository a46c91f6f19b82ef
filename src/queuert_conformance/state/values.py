"""All values that a user may pass are stored unchanged: texts, JSON, moments, numbers."""

from __future__ import annotations

from datetime import timedelta, timezone

from queuert.base.arguments import MAX_KEY_LENGTH, MAX_NAME_LENGTH, PRIORITY_RANGE
from queuert.records.model import BlockerRef, When
from queuert_conformance.checks import check, equal, same_json
from queuert_conformance.state.build import (
    FUTURE,
    PAST,
    completed,
    failed,
    key,
    new_job,
    put_back,
    queue,
    request,
    waiting_for,
)
from queuert_conformance.state.store import Store, driver_case

ODD_TEXTS = (
    'it\'s "quoted" and `ticked`',
    "back\\slash \\n \\u0000",
    "Zoë 東京 🚲 e\u0301",
    "100 % ?, :name, $1, {brace}, %s",
    "-- comment; DROP TABLE jobs; /*",
    "line\nbreak\ttab\r",
    " spaces around ",
    "null",
)

ODD_JSON = (
    b"null",
    b"true",
    b"0",
    b"-1.5",
    b'""',
    b"[]",
    b"{}",
    b'{"a":null,"b":[null,{"c":[]}]}',
    '{"ключ":"Zoë 東京 🚲 \\"q\\" \\\\ \\n"}'.encode(),
    b'{"":"","$ref":"%s ? :x $1"}',
    b'"\\ud83d\\udeb2"',
    b"9007199254740993",
)


@driver_case
async def odd_texts_are_kept(store: Store) -> None:
    """Type names, keys and traces may contain quotes, backslashes, emoji and placeholders."""
    for text in ODD_TEXTS:
        job = new_job(text, dedup=key(text), trace_context=text, chain_trace_context=text)
        await store.create(job)
        row = await store.job(job.id)
        equal(
            (row.type_name, row.chain_type, row.dedup_key, row.trace_context, row.chain_trace_context),
            (text, text, text, text, text),
            "stored texts",
        )
        claimed = await store.claim(request(queue(text), worker=text))
        equal([(c.job.id, c.job.leased_by) for c in claimed.jobs], [(job.id, text)], "claimed by odd names")


@driver_case
async def texts_differ_by_case_and_spaces(store: Store) -> None:
    """Type names and keys are compared exactly: case, accents and spaces count."""
    names = ["Task", "task", "task ", " task", "tásk", "ta\u0301sk"]
    for name in names:
        await store.create(new_job("same", dedup=key(name)), new_job(name))
    equal(len(await store.list_jobs(types=("same",))), len(names), "chains, one for each key")
    for name in names:
        equal([row.type_name for row in await store.list_jobs(types=(name,))], [name], f"jobs of {name!r}")


@driver_case
async def long_texts_are_kept(store: Store) -> None:
    """Names and keys may be as long as the limits allow, counted in characters."""
    name, text = "é" * MAX_NAME_LENGTH, "🚲" * MAX_KEY_LENGTH
    chain = await store.start(name, dedup=key(text))
    row = await store.job(chain)
    equal((row.type_name, row.dedup_key), (name, text), "stored texts")
    again = await store.create(new_job(name, dedup=key(text)))
    check(again[0].existing is not None, "the long key must be found again")


@driver_case
async def odd_json_is_kept(store: Store) -> None:
    """Inputs, outputs and errors may be any JSON, including null, and keep their value."""
    for text in ODD_JSON:
        job = await store.start(input=text)
        same_json((await store.job(job)).input, text, "stored input")
        claimed = await store.claim_one()
        same_json(claimed.job.input, text, "claimed input")
        await store.settle(put_back(claimed, error=text))
        same_json((await store.job(job)).last_error, text, "stored error")
        await store.settle(completed(await store.claim_one(), text))
        same_json((await store.job(job)).output, text, "stored output")


@driver_case
async def null_is_an_output(store: Store) -> None:
    """The JSON null is an output. It differs from no output."""
    claimed = await store.running()
    equal((await store.job(claimed.job.id)).output, None, "output of a running job")
    await store.settle(completed(claimed, b"null"))
    equal((await store.job(claimed.job.id)).output, b"null", "output after completing with null")


@driver_case
async def outputs_of_blockers_are_kept(store: Store) -> None:
    """A dependent reads its blocker's output unchanged, including null."""
    for text in ODD_JSON:
        chain = await store.start("source")
        await store.finish(chain, text)
        await store.start(blockers=waiting_for(chain, chain_type="source"))
        claimed = await store.claim_one()
        same_json(claimed.blockers[0].output, text, "output of the blocker")


@driver_case
async def large_values_are_kept(store: Store) -> None:
    """An input, an output and an error of a megabyte each are stored whole."""
    text = b'"' + "ü".encode() * 500_000 + b'"'
    claimed = await store.running(input=text)
    same_json(claimed.job.input, text, "claimed input")
    await store.settle(put_back(claimed, error=text))
    again = await store.claim_one()
    same_json(again.job.last_error, text, "stored error")
    await store.settle(completed(again, text))
    same_json((await store.job(claimed.job.id)).output, text, "stored output")


@driver_case
async def moments_are_kept_to_the_microsecond(store: Store) -> None:
    """A given moment is stored unchanged: a deadline, or a schedule in the future."""
    for moment in (PAST, FUTURE):
        row = await store.job(await store.start(schedule=When(at=FUTURE), deadline=When(at=moment)))
        equal((row.scheduled_at, row.deadline), (FUTURE, moment), "scheduled_at and deadline")


@driver_case
async def moments_are_the_same_in_any_zone(store: Store) -> None:
    """A moment may be in any time zone, and is returned in UTC."""
    zone = timezone(timedelta(hours=5, minutes=30))
    row = await store.job(await store.start(schedule=When(at=FUTURE.astimezone(zone))))
    equal(row.scheduled_at, FUTURE, "scheduled_at")
    for moment in (row.scheduled_at, row.created_at):
        equal(moment.utcoffset(), timedelta(0), "offset of a returned moment")


@driver_case
async def all_moments_are_aware(store: Store) -> None:
    """Every moment in a row is aware, in UTC."""
    claimed = await store.running(deadline=When(after=60))
    await store.settle(failed(claimed))
    done = await store.job(claimed.job.id)
    for name in ("created_at", "scheduled_at", "completed_at", "last_attempt_at", "deadline"):
        equal(getattr(done, name).utcoffset(), timedelta(0), f"offset of {name}")
    check(claimed.job.leased_until is not None, "a running job must have the end of its lease")
    equal(getattr(claimed.job.leased_until, "utcoffset")(), timedelta(0), "offset of leased_until")  # noqa: B009


@driver_case
async def priorities_span_32_bits(store: Store) -> None:
    """The smallest and the largest priority are stored and sort as numbers."""
    lowest, highest = PRIORITY_RANGE
    wanted = [lowest, -1, 0, 9, 10, 100, highest]
    await store.create(*(new_job(priority=priority) for priority in reversed(wanted)))
    claimed = await store.claim()
    equal([c.job.priority for c in claimed.jobs], wanted, "priorities in the order of the claim")


@driver_case
async def trace_contexts_may_be_absent(store: Store) -> None:
    """Trace contexts are optional, separately for jobs and for blockers."""
    source = await store.start()
    refs = (BlockerRef(source, "task", "00-abc"),)
    job = await store.start("next", trace_context="00-job", blockers=refs)
    row = await store.job(job)
    equal((row.trace_context, row.chain_trace_context), ("00-job", None), "trace contexts")
    equal((await store.blockers(job))[0][0].trace_context, "00-abc", "trace context of the blocker")
