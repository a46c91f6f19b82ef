"""What may be claimed and begun: the settings of a worker, its limits, and claiming ahead.

Begin with `claiming`.
"""
