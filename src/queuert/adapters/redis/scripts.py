"""The two scripts that keep wake hints."""

from __future__ import annotations

import hashlib

HINT_SECONDS = 60
"""How long a budget is known after it was last added to. Without one, every worker wakes."""


class Script:
    """Runs by its digest.

    If the server does not know the digest, after SCRIPT FLUSH or a restart, the text is sent.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


PROVIDE = Script(f"""
for index, key in ipairs(KEYS) do
    redis.call('INCRBY', key, ARGV[index])
    redis.call('EXPIRE', key, {HINT_SECONDS})
end
""")
# A budget that is used up is kept, so that one job does not make every idle worker query the
# database.
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
