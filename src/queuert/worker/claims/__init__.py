"""Which jobs this worker holds: claiming, waking, leases, and the jobs of dead workers.

Begin with `filling`.
"""
