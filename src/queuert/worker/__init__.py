"""The worker: it claims jobs, runs their handlers and settles them.

Inside, imports go from the top: the worker itself, then claims > attempts > policy > handlers >
base. Begin with `run`, the main loop.
"""
