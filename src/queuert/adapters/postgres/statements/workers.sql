-- The workers. The table has one row for each, found by its primary key. Jobs of one worker are found
-- by a scan of `running`, which is small.

-- The lock is stored only if it is held in this database: a worker may listen on another server.
-- Locks the worker's own row.
-- write: register
INSERT INTO {worker} AS w (id, registered_at, seen_at, horizon, server_started, lock_key, lock_server)
SELECT :worker::text, this.now, this.now, :horizon::bigint, server.started, held.lock_key, CASE WHEN held.lock_key IS NOT NULL THEN server.started END
FROM (SELECT {clock} AS now) AS this
CROSS JOIN (SELECT {server_run} AS started) AS server
CROSS JOIN (SELECT max(key) AS lock_key FROM unnest({worker_locks}()) AS key WHERE key = :lock_key::bigint) AS held
ON CONFLICT (id) DO UPDATE SET
    seen_at = excluded.seen_at,
    horizon = greatest(w.horizon, excluded.horizon),
    server_started = excluded.server_started,
    lock_key = excluded.lock_key,
    lock_server = excluded.lock_server,
    silent_since = NULL
RETURNING w.id, w.registered_at, w.seen_at, w.horizon, w.server_started, w.lock_key, w.silent_since, w.process;

-- Nothing waits for the disk: if the server crashes, the row's `server_started` shows that this may
-- be lost. Locks the worker's own row.
-- write: move
UPDATE {worker} SET horizon = greatest(horizon, :horizon::bigint)
WHERE id = :worker::text AND set_config('synchronous_commit', 'off', true) IS NOT NULL
RETURNING true;

-- The row of a worker that still has jobs is kept. Locks that row.
-- write: forget
WITH kept AS (
    UPDATE {worker} AS w SET lock_key = NULL, lock_server = NULL, silent_since = NULL
    WHERE w.id = :worker::text AND EXISTS (SELECT FROM {running} AS r WHERE r.worker = w.id)
    RETURNING w.id
), gone AS (
    DELETE FROM {worker} AS w
    WHERE w.id = :worker::text AND NOT EXISTS (SELECT FROM {running} AS r WHERE r.worker = w.id)
)
SELECT id FROM kept;

-- write: clean
DELETE FROM {worker} WHERE id IN (
    SELECT w.id FROM {worker} AS w
    WHERE w.seen_at <= {clock} - make_interval(secs => :unseen_for::double precision)
        AND NOT EXISTS (SELECT FROM {running} AS r WHERE r.worker = w.id)
    FOR UPDATE SKIP LOCKED
)
RETURNING id;

-- write: dead
SELECT {dead_workers}(:worker::text, :types::text[], :grace::double precision);

-- read: list
SELECT id, registered_at, seen_at, horizon, server_started, lock_key, silent_since, process FROM {worker} ORDER BY id;
