"""One room for each feature: records of its own, rules, and what runs beside a worker.

Imports `engine` and what lies below it. A room may use another room, but not in a circle.
"""
