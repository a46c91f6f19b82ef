"""Generate the sync client from the async one, so that its methods are written once.

    python tools/make_sync.py            write src/queuert/client/sync_client.py
    python tools/make_sync.py --check    exit 1 if that file is out of date

Text substitution is enough, because the client has no logic of its own: it awaits what
`client/base.py` makes, which both clients share.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CLIENT = Path(__file__).parent.parent / "src" / "queuert" / "client"
SOURCE, TARGET = CLIENT / "client.py", CLIENT / "sync_client.py"

HEADER = '''"""The sync client: the same methods without `await`, for Django, Flask, scripts and threads.

Written by tools/make_sync.py from client.py: change that file instead, and run `make format`.
"""'''

REPLACEMENTS = [
    ('"""The async client."""', HEADER),
    (
        "Made by `queuert.connect`; use it in an `async with` block.",
        "Made by `queuert.connect_sync`; use it in a `with` block.",
    ),
    ("AsyncExitStack", "ExitStack"),
    ("push_async_callback", "callback"),
    ("AsyncIterator, Callable, Iterable", "Callable, Iterable, Iterator"),
    ("AsyncIterator", "Iterator"),
    ("AbstractAsyncContextManager", "AbstractContextManager"),
    ("OnlyAsync", "OnlySync"),
    ("async_context", "context"),
    ("async def ", "def "),
    ("async with ", "with "),
    ("async for ", "for "),
    ("            for item in page.items:\n                yield item\n", "            yield from page.items\n"),
    ("await ", ""),
    ("import Sessions, Tx", "import Sessions, SyncSessions, Tx"),
    ("= Sessions(", "= SyncSessions("),
    (
        "from queuert.base.contexts import",
        "from queuert.base.blocking import Blocking, run_blocking\nfrom queuert.base.contexts import",
    ),
    ("ChainWaiting", "SyncChainWaiting"),
    ("AsyncSubmissions", "SyncSubmissions"),
    ("explain_timeout", "explain_timeout_sync"),
    ("hears_itself(self._sessions.channel)", "self._sessions.channel.run(hears_itself)"),
    ("blocking=False", "blocking=True"),
    (
        "channel: NotifyAdapter = BoundedNotify(notify)",
        "channel = notify if isinstance(notify, SyncNotify) else SyncNotify(BoundedNotify(notify))",
    ),
    ("notify: NotifyAdapter,", "notify: NotifyAdapter | SyncNotify,"),
    (
        "from queuert.ports.state import StateAdapter\n",
        "from queuert.ports.state import StateAdapter\nfrom queuert.ports.sync_notify import SyncNotify\n",
    ),
    ("StateAdapter", "SyncStateAdapter"),
    ("class Client(", "class SyncClient("),
    ("Completion", "SyncCompletion"),
    ("__aenter__", "__enter__"),
    ("__aexit__", "__exit__"),
    ("self._read_failed_blockers, self._ended_chains, poll_interval", "self._read_failed_blockers, poll_interval"),
]

# In the sync client, each waiting thread polls on its own, so reading for all waiters at once is
# not needed.
ASYNC_ONLY = re.compile(r"    async def _ended_chains.*?\n\n(?=    async def)", re.DOTALL)

# What the sessions do is written once, as coroutines and async blocks.
AWAITED_SESSIONS = re.compile(r"await ((?:self\.(?:_sessions|_submissions)\.\w+|archive_all)\(.*\))$", re.MULTILINE)
SESSION_BLOCKS = re.compile(r"return (self\._sessions\.\w+\(.*\))$", re.MULTILINE)


def make_sync(source: str) -> str:
    text = ASYNC_ONLY.sub("", source)
    text = SESSION_BLOCKS.sub(r"return Blocking(\1)", text)
    text = AWAITED_SESSIONS.sub(r"run_blocking(\1)", text)
    for old, new in REPLACEMENTS:
        if old not in text:
            raise SystemExit(f"tools/make_sync.py: {old!r} is no longer in client.py: update REPLACEMENTS")
        text = text.replace(old, new)
    return text


def main() -> None:
    wanted = make_sync(SOURCE.read_text())
    if "--check" not in sys.argv:
        TARGET.write_text(wanted)
    elif not TARGET.exists() or squeezed(TARGET.read_text()) != squeezed(wanted):
        raise SystemExit("client/sync_client.py is out of date: run `make format`")


def squeezed(text: str) -> str:
    """The text without the white space and trailing commas that the formatter controls."""
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s+", "", text))


if __name__ == "__main__":
    main()
