"""The engine that client and worker share: transactions, sessions, and what happens after a commit.

Imports `jobs`, `ports`, `records` and `base`; never an adapter. Begin with `sessions`.
"""
