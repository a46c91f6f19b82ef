"""Pausing, firing and limiting from the terminal: each asks first, and is recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from queuert.base.transaction import Transaction
from queuert.errors import InvalidArgument
from queuert.features.schedules.times import Tick
from queuert.operate.limits import limit_change
from queuert.operate.pauses import target_of, with_versions
from queuert.operate.times import local
from queuert.operate.top.asking import Answer, Field
from queuert.operate.top.texts import lines, text
from queuert.records.limits import split_lane

if TYPE_CHECKING:
    from queuert.operate.top.app import Top

PREVIEWED = 5
KEY = Field("key", "only for this key", "empty: for all keys that have nothing of their own")
LIMIT = (
    Field("concurrency", "how many run at once", "4; none: no limit; empty: as it is"),
    Field("rate", "how many begin in how many seconds", "100/10; 100/10/smooth; none; empty: as it is"),
    Field("weight", "how many turns it gets beside others", "1 is usual; empty: as it is"),
)

Change = Callable[[Transaction[Any], dict[str, Any]], Awaitable[object]]
"""Given the transaction, and who does it and why."""


async def _carry_out(app: Top, answer: Answer | None, change: Change, done: str) -> None:
    if answer is None:
        return

    async def act() -> bool:
        async with app.client.transaction() as tx:
            await change(tx, {"by": app.by, "reason": answer.reason})
        return True

    if await app.guarded(act):
        app.tell(done)


async def pause(app: Top, chosen: str) -> None:
    """Pause it, or resume it if it is paused."""
    client = app.client
    if chosen.startswith("limit:"):
        app.tell("choose one of its keys: `4 queues` pauses job types and queues")
        return
    target = target_of(chosen)
    pauses = await app.guarded(client.list_pauses)
    if pauses is None:
        return
    pausing = all(each.target != target for each in pauses)
    name = "pause" if pausing else "resume"
    effect = "No worker takes new jobs of it, from now on." if pausing else "Workers take its jobs again."
    answer = await app.ask(f"{name} {target}?", text(effect), name)

    async def change(tx: Transaction[Any], who: dict[str, Any]) -> None:
        for each in await with_versions(client, [target], paused=not pausing):
            await (client.pause if pausing else client.resume)(tx, each, **who)

    await _carry_out(app, answer, change, f"{name}d: {target}")


async def pause_schedule(app: Top, name: str) -> None:
    client = app.client
    schedule = await app.guarded(lambda: client.get_schedule(name))
    if schedule is None:
        return
    pausing = schedule.status != "paused"
    verb = "pause" if pausing else "resume"
    ticks: list[Tick] = await app.guarded(lambda: client.preview(name, PREVIEWED)) or []
    explanation = lines("next ticks:\n" + "\n".join(local(tick.at) for tick in ticks))
    answer = await app.ask(f"{verb} {name}?", explanation, verb)
    act = client.pause_schedule if pausing else client.resume_schedule
    await _carry_out(app, answer, lambda tx, who: act(tx, name, **who), f"{verb}d: {name}")


async def fire(app: Top, name: str) -> None:
    answer = await app.ask(f"fire {name} now?", text("Besides its ticks."), "fire")
    await _carry_out(app, answer, lambda tx, who: app.client.trigger_schedule(tx, name, **who), f"fired: {name}")


async def set_limit(app: Top, chosen: str) -> None:
    name, key = _limit(chosen)
    fields = LIMIT if key is not None else (KEY, *LIMIT)
    explanation = text("Workers obey it at once. Jobs that are running go on.")

    async def change(answer: Answer) -> None:
        given = dict(answer.fields)
        about: dict[str, Any] = {"key": given.pop("key", "") or key, "by": app.by, "reason": answer.reason}
        async with app.client.transaction() as tx:
            await app.client.set_limit(tx, name, **limit_change(**given), **about)

    if await app.ask_until_done(f"change {_about(name, key)}", explanation, "change", change, fields=fields):
        app.tell(f"changed: {_about(name, key)}")


async def clear_limit(app: Top, chosen: str) -> None:
    name, key = _limit(chosen)
    explanation = text("What was set by hand is undone: what the code declares applies again.")
    answer = await app.ask(f"undo the change of {_about(name, key)}?", explanation, "undo")

    async def change(tx: Transaction[Any], who: dict[str, Any]) -> None:
        if not await app.client.clear_limit(tx, name, key=key, **who):
            raise InvalidArgument("nothing was set by hand")

    await _carry_out(app, answer, change, f"undone: {_about(name, key)}")


def _limit(chosen: str) -> tuple[str, str | None]:
    """The name of the limit and the key of a row."""
    scope, _, name = chosen.partition(":")
    return split_lane(name) if scope == "key" else (name, None)


def _about(name: str, key: str | None) -> str:
    return f"limit {name}" if key is None else f"limit {name}, key {key}"
