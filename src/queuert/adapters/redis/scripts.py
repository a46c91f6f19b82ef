"""The two scripts that keep wake hints."""

from __future__ import annotations

import hashlib

from queuert.adapters.broadcast.provider import HINT_SECONDS


class Script:
    """Runs by its digest.

    If the server does not know the digest, after SCRIPT FLUSH or a restart, the text is sent.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


# A key that another program has written, with something that is no budget, is overwritten. It must
# not stop the message that follows. A budget ends some time after it was last added to.
PROVIDE = Script(f"""
for index, key in ipairs(KEYS) do
    local number = redis.pcall('INCRBY', key, ARGV[index])
    if type(number) == 'table' then
        redis.call('SET', key, ARGV[index])
    end
    redis.call('EXPIRE', key, {HINT_SECONDS})
end
""")
# A budget that is used up is kept, so that one job does not make every idle worker query the
# database. What is no budget counts as none.
CONSUME = Script("""
local left = redis.pcall('GET', KEYS[1])
local number = type(left) == 'string' and tonumber(left)
if not number then
    return 1
end
if number > 0 then
    redis.pcall('DECR', KEYS[1])
    return 1
end
return 0
""")
