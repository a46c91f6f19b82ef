"""What would end a reason, in the words of those who look at a page and press a button."""

from __future__ import annotations

from queuert.features.why import Blocked, Ended, FailedBefore, LimitClosed, LimitFull, NotDue, Paused, Reason, Running


def remedy_of(reason: Reason) -> str:
    """The same as `reason.remedy`, without calls of the client."""
    match reason:
        case Ended(status="failed"):
            return "correct its input, or repair the cause, then retry it"
        case NotDue():
            return "it runs by itself then, unless you make it due now"
        case FailedBefore():
            return "it is tried again by itself then; when the cause is gone, you can make it due now"
        case Blocked(forever=True):
            return "retry the chain that failed, or cancel this one"
        case Blocked():
            return "it goes on when all of them are completed: look at the first one"
        case Paused(until=None):
            return f"resume {reason.target}"
        case Paused():
            return f"it ends by itself then, unless you resume {reason.target} before"
        case LimitFull():
            return "it is taken when one of them has ended, in turn; or raise the limit"
        case LimitClosed():
            return "wait until then, or raise the rate of the limit"
        case Running(state="alive"):
            return "it ends by itself; if it hangs, cancel it, or restart that worker"
        case _:
            return reason.remedy
