"""Schedules: jobs that start again and again."""
