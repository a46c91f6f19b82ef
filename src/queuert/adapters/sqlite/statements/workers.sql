-- The workers. The table has one row for each. Jobs of one worker are found by job_running, which has
-- only running jobs.

-- By primary key.
-- write: register
INSERT INTO {prefix}worker (id, registered_at, seen_at, process, horizon)
VALUES (:worker, :now, :now, :process, :horizon)
ON CONFLICT (id) DO UPDATE SET
    seen_at = excluded.seen_at,
    process = excluded.process,
    horizon = max(horizon, excluded.horizon)
RETURNING id, registered_at, seen_at, horizon, process;

-- By primary key.
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

-- read: list
SELECT id, registered_at, seen_at, horizon, process FROM {prefix}worker ORDER BY id;
