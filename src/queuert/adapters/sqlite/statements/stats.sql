-- Open and failed jobs by type. Locks nothing. Each count uses an index without completed jobs:
-- job_status, job_running, job_scheduled, job_ready.

-- read: counts
SELECT type_name, status, count(*), NULL
FROM {prefix}job INDEXED BY {prefix}job_status
WHERE status <> 'completed' AND status IN ('blocked', 'failed')
GROUP BY type_name, status
UNION ALL
SELECT type_name, 'running', count(*), NULL FROM {prefix}job WHERE status = 'running' GROUP BY type_name
UNION ALL
SELECT type_name, 'pending', count(*), min(scheduled_at) FROM {prefix}job WHERE ready = 0 GROUP BY type_name
UNION ALL
SELECT type_name, 'pending', count(*), min(scheduled_at) FROM {prefix}job WHERE ready = 1 GROUP BY type_name;
