"""Firing schedules: a task of each worker, beside its main loop."""
