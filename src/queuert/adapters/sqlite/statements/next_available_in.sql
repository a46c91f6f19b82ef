-- When the next job of these types is due, whether dependents are to be freed, and whether something
-- is paused: one look each at two tables that are almost always empty. Locks nothing. Indexes
-- job_ready, job_line_type and job_scheduled, one entry of each per type.

-- read: earliest
SELECT min(
    coalesce((
        SELECT job.scheduled_at FROM {prefix}job AS job
        WHERE job.ready = 1 AND job.type_name = asked.value
        ORDER BY job.priority, job.scheduled_at LIMIT 1
    ), 9223372036854775807),
    coalesce((
        SELECT min(job.scheduled_at) FROM {prefix}job AS job
        WHERE job.ready = 2 AND job.type_name = asked.value
    ), 9223372036854775807),
    coalesce((
        SELECT min(job.scheduled_at) FROM {prefix}job AS job
        WHERE job.ready = 0 AND job.type_name = asked.value
    ), 9223372036854775807)
) AS due, EXISTS (SELECT 1 FROM {prefix}unblocking), EXISTS (SELECT 1 FROM {prefix}pause)
FROM json_each(:types) AS asked
ORDER BY due
LIMIT 1;
