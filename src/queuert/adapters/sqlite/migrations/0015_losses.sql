-- How many attempts of a job were lost with their worker.
-- oldest: 1

ALTER TABLE {prefix}job ADD COLUMN losses INTEGER NOT NULL DEFAULT 0;

-- The column is the last one of the view.
DROP VIEW {prefix}jobs;

CREATE VIEW {prefix}jobs AS
SELECT
    id,
    type_name AS job_type,
    status,
    chain_id,
    chain_type,
    chain_index,
    priority,
    attempt AS attempt_number,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', scheduled_at / 1000000.0, 'unixepoch') AS scheduled_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', last_attempt_at / 1000000.0, 'unixepoch') AS last_attempt_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', completed_at / 1000000.0, 'unixepoch') AS completed_at,
    completed_by,
    continued_to,
    leased_by,
    strftime('%Y-%m-%dT%H:%M:%fZ', leased_until / 1000000.0, 'unixepoch') AS leased_until,
    strftime('%Y-%m-%dT%H:%M:%fZ', deadline / 1000000.0, 'unixepoch') AS deadline,
    dedup_key,
    blockers_left,
    input,
    output,
    last_error,
    min(losses, attempt) AS losses
FROM {prefix}job;
