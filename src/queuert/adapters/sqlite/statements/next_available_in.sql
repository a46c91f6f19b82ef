-- When the next job of these types is due, and whether dependents are to be freed: one look at a
-- table that is almost always empty. Locks nothing. Indexes job_ready and job_scheduled, one entry
-- of each per type.

-- read: earliest
SELECT min(
    coalesce((
        SELECT job.scheduled_at FROM {prefix}job AS job
        WHERE job.ready = 1 AND job.type_name = asked.value
        ORDER BY job.priority, job.scheduled_at LIMIT 1
    ), 9223372036854775807),
    coalesce((
        SELECT min(job.scheduled_at) FROM {prefix}job AS job
        WHERE job.ready = 0 AND job.type_name = asked.value
    ), 9223372036854775807)
) AS due, EXISTS (SELECT 1 FROM {prefix}unblocking)
FROM json_each(:types) AS asked
ORDER BY due
LIMIT 1;
