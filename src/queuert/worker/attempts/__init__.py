"""From a claimed job to its settlement: calling the handler, its phases, and its result.

Begin with `attempts`, then `execution`.
"""
