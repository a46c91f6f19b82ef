-- Making jobs due on request. Each is one statement, which holds the write lock only while it runs.
-- Primary key.

-- write: trigger
UPDATE {prefix}job SET scheduled_at = min(scheduled_at, :now), ready = 1 + (lane IS NOT NULL)
WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'pending'
RETURNING {returned_columns};

-- write: retry
UPDATE {prefix}job SET
    status = 'pending', ready = 1 + (lane IS NOT NULL), attempt = 0, losses = 0, scheduled_at = :now, completed_at = NULL, completed_by = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'failed'
RETURNING {returned_columns};

-- write: set_priority
UPDATE {prefix}job SET priority = :priority
WHERE id IN (SELECT value FROM json_each(:ids)) AND status IN ('blocked', 'pending')
RETURNING {returned_columns};

-- write: repair
UPDATE {prefix}job SET
    status = 'pending', ready = 1 + (:lane IS NOT NULL), attempt = 0, losses = 0, scheduled_at = :now, completed_at = NULL, completed_by = NULL,
    input = :input, lane = :lane, weight = :weight, deadline = coalesce(:deadline, iif(deadline > :now, deadline, NULL))
WHERE id = :id AND status IN ('failed', 'cancelled', 'expired')
RETURNING {returned_columns};
