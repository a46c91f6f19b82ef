"""A web page for people who operate jobs: see docs/dashboard.md.

from queuert.dashboard import Access, Dashboard

dashboard = Dashboard(client, title="shop", secret=SECRET, access=who)
app.mount("/jobs", dashboard.asgi)
"""

from queuert.operate.dashboard import Access, Dashboard

__all__ = ["Access", "Dashboard"]
