"""A small shop: an order is charged, and a receipt is sent."""

from __future__ import annotations

from queuert import Attempt, Backoff, Chain, EntryJob, Handlers, Job, JobError, Key, SyncAttempt


class Charge(EntryJob[str, "Send"], name="charge"):
    order_id: int
    amount: int = 10


class Send(Job[str], name="send"):
    order_id: int


class Rate(EntryJob[float], name="rate"):
    currency: str


class Convert(EntryJob[float], name="convert"):
    amount: float
    rate: Chain[Rate]


class Note(EntryJob[None], name="note"):
    text: str


JOBS = [Charge, Rate, Convert, Note]

WHO = Key[str]("who")

handlers = Handlers(backoff=Backoff(initial=60, multiplier=2, maximum=86_400))


@handlers.handles(Charge, max_attempts=5)
async def charge(attempt: Attempt[Charge]) -> str | Send:
    if attempt.job.amount < 0:
        raise JobError("REFUSED", "the amount is negative")
    if attempt.job.amount == 0:
        return "nothing to pay"
    async with attempt.complete() as tx:
        await attempt.client.start(tx, Note(text=f"charged {attempt.job.order_id}"))
        return Send(order_id=attempt.job.order_id)


@handlers.handles(Send)
async def send(attempt: Attempt[Send]) -> str:
    return f"sent {attempt.job.order_id}"


@handlers.handles(Convert)
async def convert(attempt: Attempt[Convert]) -> float:
    return attempt.job.amount * attempt.job.rate.output


@handlers.handles(Note)
def note(attempt: SyncAttempt[Note]) -> None:
    with attempt.prepare():
        pass
    with attempt.complete() as tx:
        if attempt.job.text == "rates":
            attempt.client.start(tx, Rate(currency="EUR"))
