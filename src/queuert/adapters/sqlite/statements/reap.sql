-- Putting back jobs whose lease has ended. The look locks nothing, since nearly always there is nothing to be found;
-- the update takes the write lock and believes only what is still so.

-- The oldest of each type, merged. By job_running.
-- read: ended
SELECT json_extract(head.value, '$[0]') AS id, json_extract(head.value, '$[1]') AS leased_until
FROM json_each(:types) AS asked
CROSS JOIN json_each((
    SELECT json_group_array(json_array(id, leased_until)) FROM (
        SELECT job.id, job.leased_until
        FROM {prefix}job AS job
        WHERE job.status = 'running' AND job.type_name = asked.value AND job.leased_until <= :now
            AND job.id NOT IN (SELECT value FROM json_each(:ignored))
        ORDER BY job.leased_until, job.id
        LIMIT :limit
    )
)) AS head
ORDER BY leased_until, id
LIMIT :limit;

-- By primary key.
-- write: put_back
UPDATE {prefix}job SET
    status = 'pending',
    ready = scheduled_at <= :now,
    leased_by = NULL,
    leased_until = NULL,
    token = NULL,
    last_error = :error
WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'running' AND leased_until <= :now
RETURNING {returned_columns};
