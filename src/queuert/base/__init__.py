"""What every other room may use: arguments, ids, times, time limits, and how coroutines run.

Imports nothing of the package but `errors`. Begin with `times`, or `blocking` for sync and async.
"""
