-- Making jobs due on request. Each is one statement, which holds the write lock only while it runs.
-- Primary key.

-- write: trigger
UPDATE {prefix}job SET scheduled_at = min(scheduled_at, :now), ready = 1
WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'pending'
RETURNING {returned_columns};

-- write: retry
UPDATE {prefix}job SET
    status = 'pending', ready = 1, attempt = 0, scheduled_at = :now, completed_at = NULL, completed_by = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'failed'
RETURNING {returned_columns};
