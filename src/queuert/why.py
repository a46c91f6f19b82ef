"""Why a job is not running: what `client.why(chain)` returns.

Each reason is a class of its own. `str(reason)` tells what it is, and `reason.remedy` what would
end it.
"""

from queuert.features.why import (
    BeingUnblocked,
    Blocked,
    BlockingChain,
    ClusterFull,
    Ended,
    FailedBefore,
    Holder,
    InLine,
    LimitClosed,
    LimitFull,
    Lost,
    NotDue,
    NoWorker,
    OrderHeld,
    PastDeadline,
    Paused,
    QueueFull,
    Reason,
    Running,
    SlotsBusy,
    Why,
)

__all__ = [
    "BeingUnblocked",
    "Blocked",
    "BlockingChain",
    "ClusterFull",
    "Ended",
    "FailedBefore",
    "Holder",
    "InLine",
    "LimitClosed",
    "LimitFull",
    "Lost",
    "NoWorker",
    "NotDue",
    "OrderHeld",
    "PastDeadline",
    "Paused",
    "QueueFull",
    "Reason",
    "Running",
    "SlotsBusy",
    "Why",
]
