-- The workers. The table has one row for each, found by its primary key. Jobs of one worker are found
-- by a scan of `running`, which is small.

-- The lock is stored only if it is held in this database: a worker may listen on another server.
-- Locks the worker's own row.
-- write: register
INSERT INTO {worker} AS w (id, registered_at, seen_at, server_started, lock_key, lock_server, horizon)
SELECT :worker::text, at.now, at.now, server.started, held.lock_key, CASE WHEN held.lock_key IS NOT NULL THEN server.started END,
    :horizon::bigint
FROM (SELECT {clock} AS now) AS at
CROSS JOIN (SELECT pg_postmaster_start_time() AS started) AS server
CROSS JOIN (
    SELECT max(l.objid::bigint) AS lock_key FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.granted AND l.classid = {worker_space} AND l.objsubid = 2
        AND l.objid::bigint = :lock_key::bigint
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
) AS held
ON CONFLICT (id) DO UPDATE SET
    seen_at = excluded.seen_at,
    server_started = excluded.server_started,
    lock_key = excluded.lock_key,
    lock_server = excluded.lock_server,
    silent_since = NULL,
    horizon = greatest(w.horizon, excluded.horizon)
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

-- read: list
SELECT id, registered_at, seen_at, horizon, server_started, lock_key, silent_since, process FROM {worker} ORDER BY id;
