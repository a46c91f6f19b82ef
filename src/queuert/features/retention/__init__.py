"""How long ended chains are kept: pruning them, and archiving them before that.

Begin with `service`, which runs beside a worker; `pruning` is `client.prune`.
"""
