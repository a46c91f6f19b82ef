-- The workers. The table has one row for each. Jobs of one worker are found by job_running, which has
-- only running jobs.

-- By primary key.
-- write: register
INSERT INTO {prefix}worker (id, registered_at, seen_at, horizon, process, has_file, about)
VALUES (:worker, :now, :now, :horizon, :process, :has_file, :about)
ON CONFLICT (id) DO UPDATE SET
    seen_at = excluded.seen_at,
    horizon = max({prefix}worker.horizon, excluded.horizon),
    process = excluded.process,
    has_file = excluded.has_file,
    about = coalesce(excluded.about, about),
    stopped_at = NULL;

-- The file of the database; empty if it has none.
-- read: database
SELECT file FROM pragma_database_list WHERE name = 'main';

-- By primary key.
-- read: horizons
SELECT id, horizon, has_file FROM {prefix}worker WHERE id IN (SELECT value FROM json_each(:workers));

-- Only for workers without a file. By primary key.
-- write: move
UPDATE {prefix}worker SET horizon = max(horizon, :horizon) WHERE id = :worker RETURNING 1;

-- write: forget
DELETE FROM {prefix}worker
WHERE id = :worker AND NOT EXISTS (SELECT 1 FROM {prefix}job WHERE status = 'running' AND leased_by = :worker)
RETURNING about;

-- Its row is still there: it left jobs behind.
-- write: stopped
UPDATE {prefix}worker SET stopped_at = :now WHERE id = :worker RETURNING 1;

-- read: unseen
SELECT id, seen_at, about FROM {prefix}worker
WHERE seen_at <= :limit
    AND NOT EXISTS (SELECT 1 FROM {prefix}job WHERE status = 'running' AND leased_by = {prefix}worker.id);

-- By primary key.
-- write: remove
DELETE FROM {prefix}worker WHERE id IN (SELECT value FROM json_each(:workers));

-- `handled`: lists of type, time, host and release. By primary key.
-- write: keep_handled
INSERT INTO {prefix}last_handled (type_name, seen_at, host, release)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(:handled) WHERE true
ON CONFLICT (type_name) DO UPDATE SET seen_at = excluded.seen_at, host = excluded.host, release = excluded.release
WHERE {prefix}last_handled.seen_at <= excluded.seen_at;

-- By primary key.
-- read: last_handled
SELECT type_name, seen_at, host, release FROM {prefix}last_handled WHERE type_name IN (SELECT value FROM json_each(:types));

-- The processes of all other workers.
-- read: processes
SELECT id, process FROM {prefix}worker WHERE id <> :worker AND process IS NOT NULL;

-- Which of these workers have running jobs of these types. Index job_running.
-- read: with_jobs
SELECT DISTINCT job.leased_by
FROM json_each(:types) AS asked
CROSS JOIN {prefix}job AS job INDEXED BY {prefix}job_running ON job.status = 'running' AND job.type_name = asked.value
WHERE job.leased_by IN (SELECT value FROM json_each(:workers))
ORDER BY job.leased_by;

-- All workers, or one of them.
-- read: list
SELECT id, registered_at, seen_at, horizon, process, has_file, about, stopped_at FROM {prefix}worker
WHERE :worker IS NULL OR id = :worker ORDER BY id;

-- How many jobs are running under each worker's name. Index job_running.
-- read: held
SELECT leased_by, count(*) FROM {prefix}job INDEXED BY {prefix}job_running WHERE status = 'running' GROUP BY leased_by;
