-- The workers. The table has one row for each, found by its primary key. Jobs of one worker are found
-- by a scan of `running`, which is small.

-- Locks the worker's own rows.
-- write: register
SELECT id, registered_at, seen_at, horizon, server_started, lock_key, silent_since, process, about, state, held
FROM {register}(
    :worker::text, :lock_key::bigint, :horizon::bigint, :types::text[], :about::text, :seen_every::double precision, :overdue::double precision
);

-- Nothing waits for the disk: if the server crashes, the row's `server_started` shows that this may
-- be lost. Locks the worker's own row.
-- write: move
UPDATE {worker} SET horizon = greatest(horizon, :horizon::bigint)
WHERE id = :worker::text AND set_config('synchronous_commit', 'off', true) IS NOT NULL
RETURNING ctid::text;

-- The same for a row whose place is known. Under an old snapshot all its versions stay, and by its
-- id each of them would be looked at.
-- write: move_at
UPDATE {worker} SET horizon = greatest(horizon, :horizon::bigint)
WHERE ctid = :place::text::tid AND id = :worker::text AND set_config('synchronous_commit', 'off', true) IS NOT NULL
RETURNING ctid::text;

-- The row of a worker that still has jobs is kept. Locks that row.
-- write: forget
SELECT {forget_worker}(:worker::text);

-- write: clean
SELECT {clean_workers}(:unseen_for::double precision);

-- write: dead
SELECT {dead_workers}(:worker::text, :types::text[], :grace::double precision);

-- read: list
SELECT id, registered_at, seen_at, horizon, server_started, lock_key, silent_since, process, about, state, held
FROM {known_workers}(NULL, :seen_every::double precision, :overdue::double precision, true);

-- read: handled
SELECT DISTINCT asked.name
FROM {known_workers}(NULL, :seen_every::double precision, :overdue::double precision, false) AS k
CROSS JOIN unnest(:types::text[]) AS asked (name)
WHERE k.state = 'alive' AND (k.types IS NULL OR asked.name = ANY (k.types));

-- Scans both tables, which have a row for each worker.
-- read: places
SELECT handled.name, count(*) FILTER (WHERE a.id < :worker::text)::integer, count(*)::integer
FROM {worker_about} AS a
JOIN {worker} AS w ON w.id = a.id
CROSS JOIN unnest(a.types) AS handled (name)
WHERE handled.name = ANY (:types::text[]) AND a.stopped_at IS NULL AND w.silent_since IS NULL
    AND w.seen_at > {clock} - make_interval(secs => :late::double precision)
GROUP BY handled.name;

-- Of the workers that are known, and of those whose rows are gone. Scans `worker_about`; primary keys.
-- read: last_handled
SELECT DISTINCT ON (told.type_name) told.type_name, told.seen_at, told.host, told.release
FROM (
    SELECT asked.name, coalesce(w.seen_at, a.told_at), a.about::json ->> 'host', a.about::json ->> 'release'
    FROM unnest(:types::text[]) AS asked (name)
    JOIN {worker_about} AS a ON asked.name = ANY (a.types)
    LEFT JOIN {worker} AS w ON w.id = a.id
    UNION ALL
    SELECT l.type_name, l.seen_at, l.host, l.release FROM {last_handled} AS l WHERE l.type_name = ANY (:types::text[])
) AS told (type_name, seen_at, host, release)
ORDER BY told.type_name, told.seen_at DESC;
