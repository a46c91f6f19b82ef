-- Limits by key. Claims run under the write lock: what was read stays true until the commit.

-- The lanes of a limit that have jobs which are due, in their order, after one of them. Each is one
-- look at index job_line.
-- read: waiting
WITH RECURSIVE known (lane) AS (
    SELECT (SELECT lane FROM {prefix}job WHERE ready = 2 AND lane > :after AND lane < :end ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT lane FROM {prefix}job WHERE ready = 2 AND lane > known.lane AND lane < :end ORDER BY lane LIMIT 1)
    FROM known WHERE known.lane IS NOT NULL
)
SELECT lane FROM known WHERE lane IS NOT NULL LIMIT :number;

-- Primary keys.
-- read: states
SELECT asked.value, lane.tag, lane.begun, lane.begun_at, lane.closed_until, lane.holder, change.rule
FROM json_each(:lanes) AS asked
LEFT JOIN {prefix}lane AS lane ON lane.lane = asked.value
LEFT JOIN {prefix}limit_change AS change ON change.lane = asked.value;

-- The weight of the first job of each lane. Index job_line.
-- read: weights
SELECT asked.value, job.weight FROM json_each(:lanes) AS asked
CROSS JOIN {prefix}job AS job ON job.rowid = (
    SELECT head.rowid FROM {prefix}job AS head WHERE head.ready = 2 AND head.lane = asked.value
    ORDER BY head.priority, head.scheduled_at, head.id LIMIT 1
);

-- Index job_running, which has only running jobs.
-- read: running
SELECT lane, id FROM {prefix}job INDEXED BY {prefix}job_running WHERE status = 'running' AND lane IS NOT NULL
ORDER BY last_attempt_at, id;

-- The newest declaration that workers still have, and what was set for all lanes. Primary keys.
-- read: rule
SELECT
    (SELECT rule FROM {prefix}limit_declared WHERE name = :limit_name
        ORDER BY last_seen_at >= :alive DESC, first_seen_at DESC, digest DESC LIMIT 1),
    (SELECT rule FROM {prefix}limit_change WHERE lane = :limit_name);

-- The begins that make room for the next ones, if they are old enough, and the oldest that is known.
-- `lanes` holds [lane, the last one that does not count, how many]. Primary key.
-- read: begins
SELECT json_extract(asked.value, '$[0]'), 1, begun.seq, begun.at FROM json_each(:lanes) AS asked
CROSS JOIN {prefix}begun AS begun ON begun.lane = json_extract(asked.value, '$[0]')
    AND begun.seq > json_extract(asked.value, '$[1]')
    AND begun.seq <= json_extract(asked.value, '$[1]') + json_extract(asked.value, '$[2]')
UNION ALL
SELECT json_extract(asked.value, '$[0]'), 0, oldest.seq, oldest.at FROM json_each(:lanes) AS asked
CROSS JOIN {prefix}begun AS oldest ON oldest.lane = json_extract(asked.value, '$[0]') AND oldest.seq = (
    SELECT min(first.seq) FROM {prefix}begun AS first WHERE first.lane = json_extract(asked.value, '$[0]')
);

-- The first jobs of each lane, so many. `lanes` holds [lane, the job that holds it]. Index job_line,
-- primary key.
-- read: heads
SELECT asked.key, job.rowid, job.type_name, job.priority, job.scheduled_at, job.id
FROM json_each(:lanes) AS asked
CROSS JOIN {prefix}job AS job ON job.rowid IN (
    SELECT head.rowid FROM {prefix}job AS head
    WHERE head.ready = 2 AND head.lane = json_extract(asked.value, '$[0]') AND head.type_name IN (SELECT value FROM json_each(:types))
    ORDER BY head.priority, head.scheduled_at, head.id
    LIMIT :number
)
WHERE json_extract(asked.value, '$[1]') IS NULL
UNION ALL
SELECT asked.key, job.rowid, job.type_name, job.priority, job.scheduled_at, job.id
FROM json_each(:lanes) AS asked
CROSS JOIN {prefix}job AS job ON job.id = json_extract(asked.value, '$[1]')
WHERE job.ready = 2 AND +job.type_name IN (SELECT value FROM json_each(:types))
ORDER BY 1, 4, 5, 6;

-- The first jobs without a limit. `types` holds [name, queue priority]. Index job_ready.
-- read: beside
SELECT json_extract(asked.value, '$[1]') AS queue_priority, job.priority, job.scheduled_at, job.id
FROM json_each(:types) AS asked
CROSS JOIN {prefix}job AS job ON job.rowid IN (
    SELECT head.rowid FROM {prefix}job AS head
    WHERE head.ready = 1 AND head.type_name = json_extract(asked.value, '$[0]') AND head.scheduled_at <= :now
    ORDER BY head.priority, head.scheduled_at, head.id
    LIMIT :number
)
ORDER BY queue_priority, job.priority, job.scheduled_at, job.id
LIMIT :number;

-- What holds an ordered lane, or has taken its place. Primary key.
-- read: holder
SELECT id, status, lane, continued_to, ready FROM {prefix}job WHERE id = :id;

-- `begins` holds [lane, number, time].
-- write: begin
INSERT INTO {prefix}begun (lane, seq, at)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(:begins);

-- `lanes` holds [lane, the last begin that need not be known]. Primary key.
-- write: forget
DELETE FROM {prefix}begun WHERE (lane, seq) IN (
    SELECT begun.lane, begun.seq FROM json_each(:lanes) AS asked
    CROSS JOIN {prefix}begun AS begun ON begun.lane = json_extract(asked.value, '$[0]') AND begun.seq <= json_extract(asked.value, '$[1]')
);

-- `lanes` holds [lane, tag, begun, begun_at, closed_until, holder, keep_until]. A lane without jobs has
-- no turn. Index job_line.
-- write: store
INSERT OR REPLACE INTO {prefix}lane (lane, tag, begun, begun_at, closed_until, holder, keep_until)
SELECT json_extract(value, '$[0]'),
    CASE WHEN EXISTS (SELECT 1 FROM {prefix}job WHERE ready = 2 AND lane = json_extract(value, '$[0]')) THEN json_extract(value, '$[1]') END,
    json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'), json_extract(value, '$[6]')
FROM json_each(:lanes);

-- Some lanes after this one, in the order of the primary key.
-- read: some
SELECT lane FROM {prefix}lane WHERE lane > :after ORDER BY lane LIMIT :number;

-- Lanes whose jobs are gone: they lose their turns, and those that need not be known are deleted.
-- write: close_empty
UPDATE {prefix}lane SET tag = NULL WHERE lane IN (SELECT value FROM json_each(:lanes)) AND tag IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM {prefix}job AS job WHERE job.ready = 2 AND job.lane = {prefix}lane.lane);

-- write: drop
DELETE FROM {prefix}lane WHERE lane IN (SELECT value FROM json_each(:lanes))
    AND tag IS NULL AND holder IS NULL AND coalesce(keep_until, 0) < :now AND coalesce(closed_until, 0) < :now
RETURNING lane;

-- write: drop_begins
DELETE FROM {prefix}begun WHERE lane IN (SELECT value FROM json_each(:lanes));

-- write: close
INSERT INTO {prefix}lane (lane, closed_until) SELECT job.lane, json_extract(asked.value, '$[1]')
FROM json_each(:closed) AS asked CROSS JOIN {prefix}job AS job ON job.id = json_extract(asked.value, '$[0]') AND job.lane IS NOT NULL
WHERE job.token = json_extract(asked.value, '$[2]')
ON CONFLICT (lane) DO UPDATE SET closed_until = max(coalesce(closed_until, 0), excluded.closed_until);

-- write: declare
INSERT INTO {prefix}limit_declared (name, digest, rule, types, first_seen_at, last_seen_at)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'), :now, :now
FROM json_each(:declared)
WHERE true
ON CONFLICT (name, digest) DO UPDATE SET
    first_seen_at = iif(last_seen_at < :alive, :now, first_seen_at),
    last_seen_at = :now;

-- read: known
SELECT name, types FROM {prefix}limit_declared ORDER BY name;

-- write: change
INSERT INTO {prefix}limit_change (lane, rule) VALUES (:lane, :rule)
ON CONFLICT (lane) DO UPDATE SET rule = excluded.rule;

-- read: changed
SELECT rule FROM {prefix}limit_change WHERE lane = :lane;

-- write: clear
DELETE FROM {prefix}limit_change WHERE lane = :lane RETURNING lane;

-- Index job_line.
-- read: count
SELECT count(*) FROM (SELECT 1 FROM {prefix}job WHERE ready = 2 AND lane = :lane LIMIT :counted);

-- Those that come before this one. Index job_line.
-- read: before
SELECT count(*) FROM (
    SELECT 1 FROM {prefix}job WHERE ready = 2 AND lane = :lane AND (priority, scheduled_at, id) < (:priority, :at, :id) LIMIT :counted
);

-- Limits and lanes after this text. Primary keys, index job_line, index job_running.
-- read: list
WITH RECURSIVE known (lane) AS (
    SELECT :after
    UNION ALL
    SELECT (
        SELECT min(each.lane) FROM (
            SELECT min(name) AS lane FROM {prefix}limit_declared WHERE name > known.lane
            UNION ALL
            SELECT min(lane) FROM {prefix}limit_change WHERE lane > known.lane
            UNION ALL
            SELECT min(lane) FROM {prefix}lane WHERE lane > known.lane
            UNION ALL
            SELECT (SELECT lane FROM {prefix}job WHERE ready = 2 AND lane > known.lane ORDER BY lane LIMIT 1)
            UNION ALL
            SELECT min(value) FROM json_each(:running) WHERE value > known.lane
        ) AS each
    )
    FROM known WHERE known.lane IS NOT NULL
)
SELECT lane, (SELECT count(*) FROM (SELECT 1 FROM {prefix}job WHERE ready = 2 AND lane = known.lane LIMIT :counted))
FROM known WHERE lane IS NOT NULL LIMIT :number OFFSET 1;
