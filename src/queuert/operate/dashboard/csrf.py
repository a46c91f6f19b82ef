"""Whether a form was sent by a page of ours.

Two checks, and both must pass: what the browser tells of where the request comes from, and a token
that only our pages contain. The token is made from the secret, so all processes accept it.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from urllib.parse import urlsplit

from queuert.operate.dashboard.access import Access
from queuert.operate.dashboard.messages import Request

FIELD = "token"
VALID = 24 * 3600
"""Seconds."""


def make_token(secret: bytes, access: Access, now: float | None = None) -> str:
    """For the forms of a page. Another person cannot use it."""
    moment = str(int(time.time() if now is None else now))
    return f"{moment}.{_sign(secret, access, moment)}"


def is_ours(request: Request, access: Access, secret: bytes | None, now: float | None = None) -> bool:
    """Whether a page of ours has sent this form to this person's browser."""
    if not _comes_from_us(request):
        return False
    if request.framework_token is not None:
        return True  # the framework has checked its own
    if secret is None:
        return False
    moment, _, signature = request.one(FIELD).partition(".")
    if not (moment.isascii() and moment.isdigit() and len(moment) < 16):
        return False
    fresh = 0 <= (time.time() if now is None else now) - int(moment) + 60 <= VALID
    return fresh and hmac.compare_digest(signature.encode(), _sign(secret, access, moment).encode())


def _sign(secret: bytes, access: Access, moment: str) -> str:
    text = f"queuert.dashboard\0{access.role}\0{access.name}\0{moment}"
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def _comes_from_us(request: Request) -> bool:
    """Browsers send `Sec-Fetch-Site` over HTTPS and to this machine, and `Origin` always with a
    form. What sends neither is not a browser that another site could use.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    if origin is None:
        return True
    # Without the scheme: a proxy that ends TLS does not always tell it.
    return origin != "null" and urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
