"""Channels, keys, and the two scripts that keep wake hints."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from queuert.adapters.broadcast.messages import TOPICS, Topic
from queuert.errors import InvalidArgument, NotifyUnavailable

LONGEST_PAYLOAD = 60_000
"""Bytes. Redis takes far more, but hands a message to everybody in one piece."""

HINT_SECONDS = 60
"""How long a budget is known after it was last added to. Without one, everybody wakes."""

TIMEOUT = 5.0
"""Seconds for connecting, and for each answer, of clients that we make ourselves. The URL may say otherwise."""


class Script:
    """Runs by its digest; the server that does not know it, after SCRIPT FLUSH or a restart, is sent the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


PROVIDE = Script(f"""
for index, key in ipairs(KEYS) do
    redis.call('INCRBY', key, ARGV[index])
    redis.call('EXPIRE', key, {HINT_SECONDS})
end
""")
# A budget that is used up stays known, so that a crowd woken by one job does not all ask for it.
CONSUME = Script("""
local left = redis.call('GET', KEYS[1])
if not left then
    return 1
end
if tonumber(left) > 0 then
    redis.call('DECR', KEYS[1])
    return 1
end
return 0
""")


class Names:
    """The names of one installation's channels and keys."""

    def __init__(self, prefix: str) -> None:
        if not prefix or set(prefix) & set("{}\0"):
            raise InvalidArgument(f"the prefix of channels and keys must be a text without braces, got {prefix!r}")
        self.channels: dict[Topic, str] = {topic: f"{prefix}:{topic}" for topic in TOPICS}
        self.topics: dict[str, Topic] = {name: topic for topic, name in self.channels.items()}
        # What stands in braces decides on the slot in a Redis Cluster: one script may touch all of these keys.
        self._hint = f"{{{prefix}}}:wake-hint:"

    def hint(self, type_name: str) -> str:
        return self._hint + type_name

    def provided(self, counts: Mapping[str, int]) -> tuple[list[str], list[int]]:
        """Keys and arguments of `PROVIDE`."""
        added = {self.hint(name): count for name, count in counts.items() if count > 0}
        return list(added), list(added.values())


def from_url(client_class: Any, url: str, retry: Any) -> Any:
    """A client, made by us. `retry` says once, at once: the server may have been restarted since it was last used."""
    try:
        return client_class.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, retry=retry)
    except ValueError as error:  # the URL is not shown: there may be a password in it
        raise InvalidArgument(f"the URL of Redis must look like redis://user:password@host:6379/0 ({error})") from error


def text(value: Any) -> str:
    """A channel's name, from a client that decodes what it reads, or from one that does not."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def unavailable(error: Exception) -> NotifyUnavailable:
    return NotifyUnavailable(f"Redis does not take part: {str(error) or type(error).__name__}")
