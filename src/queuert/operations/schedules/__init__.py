"""Schedules: what clients change (`changing`), what workers declare (`declaring`) and fire
(`firing`).

A schedule is written only if it is as it was when it was read. Who comes second reads it again, and
decides anew.
"""
