-- Open and failed jobs by type. Locks nothing. Each count uses an index without completed jobs:
-- job_type_status, job_running, job_scheduled, job_ready. The types are found by one look at an index
-- for each, and of each type and status at most `limit` rows are read. -1: all of them. Among the
-- jobs that are due, the oldest of each priority comes first.

-- read: counts
WITH RECURSIVE
resting_type (name) AS (
    SELECT * FROM (
        SELECT type_name FROM {prefix}job INDEXED BY {prefix}job_type_status
        WHERE +status < 'pending' AND status <> 'completed' ORDER BY type_name LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT type_name FROM {prefix}job INDEXED BY {prefix}job_type_status
        WHERE +status < 'pending' AND status <> 'completed' AND type_name > kind.name ORDER BY type_name LIMIT 1
    )
    FROM resting_type AS kind WHERE kind.name IS NOT NULL
),
running_type (name) AS (
    SELECT * FROM (SELECT type_name FROM {prefix}job WHERE status = 'running' ORDER BY type_name LIMIT 1)
    UNION ALL
    SELECT (
        SELECT type_name FROM {prefix}job INDEXED BY {prefix}job_running
        WHERE status = 'running' AND type_name > kind.name ORDER BY type_name LIMIT 1
    )
    FROM running_type AS kind WHERE kind.name IS NOT NULL
),
scheduled_type (name) AS (
    SELECT * FROM (SELECT type_name FROM {prefix}job WHERE ready = 0 ORDER BY type_name LIMIT 1)
    UNION ALL
    SELECT (
        SELECT type_name FROM {prefix}job INDEXED BY {prefix}job_scheduled
        WHERE ready = 0 AND type_name > kind.name ORDER BY type_name LIMIT 1
    )
    FROM scheduled_type AS kind WHERE kind.name IS NOT NULL
),
ready_type (name) AS (
    SELECT * FROM (SELECT type_name FROM {prefix}job WHERE ready = 1 ORDER BY type_name LIMIT 1)
    UNION ALL
    SELECT (
        SELECT type_name FROM {prefix}job INDEXED BY {prefix}job_ready
        WHERE ready = 1 AND type_name > kind.name ORDER BY type_name LIMIT 1
    )
    FROM ready_type AS kind WHERE kind.name IS NOT NULL
),
line_type (name) AS (
    SELECT * FROM (SELECT type_name FROM {prefix}job WHERE ready = 2 ORDER BY type_name LIMIT 1)
    UNION ALL
    SELECT (
        SELECT type_name FROM {prefix}job INDEXED BY {prefix}job_line_type
        WHERE ready = 2 AND type_name > kind.name ORDER BY type_name LIMIT 1
    )
    FROM line_type AS kind WHERE kind.name IS NOT NULL
),
level (name, priority) AS (
    SELECT kind.name, (
        SELECT priority FROM {prefix}job INDEXED BY {prefix}job_ready
        WHERE ready = 1 AND type_name = kind.name ORDER BY priority LIMIT 1
    )
    FROM ready_type AS kind WHERE kind.name IS NOT NULL
    UNION ALL
    SELECT level.name, (
        SELECT priority FROM {prefix}job INDEXED BY {prefix}job_ready
        WHERE ready = 1 AND type_name = level.name AND priority > level.priority ORDER BY priority LIMIT 1
    )
    FROM level WHERE level.priority IS NOT NULL
    LIMIT CASE WHEN :limit < 0 THEN -1 ELSE (:limit + 1) * (SELECT count(*) FROM ready_type) END
)
SELECT kind.name, wanted.status, (
    SELECT count(*) FROM (
        SELECT 1 FROM {prefix}job INDEXED BY {prefix}job_type_status
        WHERE +status < 'pending' AND status <> 'completed' AND type_name = kind.name AND status = wanted.status
        LIMIT :limit
    )
), NULL
FROM resting_type AS kind CROSS JOIN (SELECT 'blocked' AS status UNION ALL SELECT 'failed') AS wanted
WHERE kind.name IS NOT NULL
UNION ALL
SELECT kind.name, 'running', (
    SELECT count(*) FROM (
        SELECT 1 FROM {prefix}job INDEXED BY {prefix}job_running
        WHERE status = 'running' AND type_name = kind.name LIMIT :limit
    )
), NULL
FROM running_type AS kind WHERE kind.name IS NOT NULL
UNION ALL
SELECT kind.name, 'pending', (
    SELECT count(*) FROM (
        SELECT 1 FROM {prefix}job INDEXED BY {prefix}job_scheduled
        WHERE ready = 0 AND type_name = kind.name LIMIT :limit
    )
), (
    SELECT scheduled_at FROM {prefix}job INDEXED BY {prefix}job_scheduled
    WHERE ready = 0 AND type_name = kind.name ORDER BY scheduled_at LIMIT 1
)
FROM scheduled_type AS kind WHERE kind.name IS NOT NULL
UNION ALL
SELECT kind.name, 'limited', (
    SELECT count(*) FROM (
        SELECT 1 FROM {prefix}job INDEXED BY {prefix}job_line_type WHERE ready = 2 AND type_name = kind.name LIMIT :limit
    )
), (
    SELECT scheduled_at FROM {prefix}job INDEXED BY {prefix}job_line_type
    WHERE ready = 2 AND type_name = kind.name ORDER BY scheduled_at LIMIT 1
)
FROM line_type AS kind WHERE kind.name IS NOT NULL
UNION ALL
SELECT kind.name, 'pending', (
    SELECT count(*) FROM (
        SELECT 1 FROM {prefix}job INDEXED BY {prefix}job_ready WHERE ready = 1 AND type_name = kind.name LIMIT :limit
    )
), NULL
FROM ready_type AS kind WHERE kind.name IS NOT NULL
UNION ALL
SELECT level.name, 'pending', 0, (
    SELECT scheduled_at FROM {prefix}job INDEXED BY {prefix}job_ready
    WHERE ready = 1 AND type_name = level.name AND priority = level.priority ORDER BY scheduled_at LIMIT 1
)
FROM level WHERE level.priority IS NOT NULL;
