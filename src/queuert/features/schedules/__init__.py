"""Schedules: when they fire (`times`, `planning`), what is stored, and changing and firing them.

Begin with `times`, then `firing`; `service` runs beside a worker.
"""
