-- The workers. The table has one row for each. Jobs of one worker are found by job_running, which has
-- only running jobs.

-- By primary key.
-- write: register
INSERT INTO {prefix}worker (id, registered_at, seen_at, horizon, process, has_file)
VALUES (:worker, :now, :now, :horizon, :process, :has_file)
ON CONFLICT (id) DO UPDATE SET
    seen_at = excluded.seen_at,
    horizon = max({prefix}worker.horizon, excluded.horizon),
    process = excluded.process,
    has_file = excluded.has_file
RETURNING id, registered_at, seen_at, horizon, process, has_file;

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
WHERE id = :worker AND NOT EXISTS (SELECT 1 FROM {prefix}job WHERE status = 'running' AND leased_by = :worker);

-- read: known
SELECT 1 FROM {prefix}worker WHERE id = :worker;

-- write: clean
DELETE FROM {prefix}worker
WHERE seen_at <= :limit
    AND NOT EXISTS (SELECT 1 FROM {prefix}job WHERE status = 'running' AND leased_by = {prefix}worker.id)
RETURNING id;

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

-- read: list
SELECT id, registered_at, seen_at, horizon, process, has_file FROM {prefix}worker ORDER BY id;
