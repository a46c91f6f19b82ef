"""A web page for people who operate jobs: see docs/dashboard.md.

from queuert.dashboard import Access, Dashboard

dashboard = Dashboard(client, title="shop", secret=SECRET, access=who)
app.mount("/jobs", dashboard.asgi)
"""

from __future__ import annotations

from queuert.operate.dashboard.access import Access
from queuert.operate.dashboard.dashboard import Dashboard

__all__ = ["Access", "Dashboard"]
