"""Schedules: what clients change (`changing`), what workers declare (`declaring`) and fire
(`firing`).

A schedule is written only if it has not changed since it was read. The second writer reads it
again, and decides again.
"""
