"""Jobs in the transactions of SQLAlchemy's sessions and connections.

`driver` is the driver of the providers in `provider`. Transactions and savepoints are those of
`queuert.adapters.postgres.drivers.session`. An async session is a sync one that runs in a greenlet,
so everything is written for sync objects. Only how a statement reaches the connection below differs
from one database driver to the next: that is in `dialects/`. `watching` notices commits and
savepoints. `handles` accepts what users pass in.
"""
