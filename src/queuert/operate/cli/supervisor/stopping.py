"""How long a worker process may take to stop."""

from __future__ import annotations

STOPS_WITHIN = 60.0
"""Seconds, until the worker is known: it knows how long it may take."""
STOP_GRACE = 5.0
"""Seconds beyond what the worker may take, for the rest of the process."""
