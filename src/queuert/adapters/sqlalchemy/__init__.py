"""Jobs in the transactions of SQLAlchemy's sessions and connections.

SQLAlchemy is one for all its drivers, sync or async: an async session is a sync one that runs in a greenlet. So `core`
is written once, over sync objects; `provider` calls it, `async_provider` calls it by `run_sync`. Only how a statement
reaches the connection beneath is different for each driver: `drivers/` has that, made of the adapters for these.
`watching` hears of commits and savepoints; `handles` takes what users hand in.
"""
