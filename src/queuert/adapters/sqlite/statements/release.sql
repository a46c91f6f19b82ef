-- Giving back jobs that a worker does not know of.

-- By job_running, then by rowid.
-- write: unknown
UPDATE {prefix}job SET
    status = 'pending',
    ready = (scheduled_at <= :now) * (1 + (lane IS NOT NULL)),
    attempt = attempt - 1,
    last_attempt_at = earlier_attempt_at,
    leased_by = NULL,
    leased_until = NULL,
    token = NULL,
    queue = NULL
WHERE rowid IN (
    SELECT claimed.rowid FROM {prefix}job AS claimed INDEXED BY {prefix}job_running
    WHERE claimed.status = 'running' AND claimed.leased_by = :worker
        AND claimed.id NOT IN (SELECT value FROM json_each(:held))
)
RETURNING {returned_columns};
