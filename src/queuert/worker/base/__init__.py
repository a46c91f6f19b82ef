"""What the other rooms of the worker share: aborting, failures, and the next turn of the main loop.

Begin with `next_turn`.
"""
