-- Pausing and resuming. The table is almost always empty.

-- write: clean
DELETE FROM {prefix}pause WHERE until <= :now;

-- A target that is paused already keeps its `since`. Primary key.
-- write: pause
INSERT INTO {prefix}pause (scope, name, since, until, reason, paused_by, cancel_running)
VALUES (:scope, :target, :now, :until, :reason, :by, :cancel_running)
ON CONFLICT (scope, name) DO UPDATE SET
    until = excluded.until,
    reason = excluded.reason,
    paused_by = excluded.paused_by,
    cancel_running = excluded.cancel_running
RETURNING scope, name, since, until, reason, paused_by, cancel_running;

-- Primary key.
-- write: resume
DELETE FROM {prefix}pause WHERE scope = :scope AND name = :target
RETURNING scope, name, since, until, reason, paused_by, cancel_running;

-- Read by every claim.
-- read: list
SELECT scope, name, since, until, reason, paused_by, cancel_running FROM {prefix}pause
WHERE until IS NULL OR until > :now
ORDER BY scope, name;
