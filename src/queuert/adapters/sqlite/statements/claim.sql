-- Claiming. Runs under the write lock, so caps are exact and no row can be taken twice.

-- Make jobs ready that have become due, longest due first. The number per type is limited: if very
-- many jobs become due at once, one long transaction would block all other writers. The next claims
-- promote the rest. Index job_scheduled.
-- write: promote
UPDATE {prefix}job SET ready = 1 + (lane IS NOT NULL)
WHERE rowid IN (
    SELECT due.rowid
    FROM json_each(:types) AS asked
    CROSS JOIN {prefix}job AS due ON due.rowid IN (
        SELECT job.rowid
        FROM {prefix}job AS job
        WHERE job.ready = 0 AND job.type_name = asked.value AND job.scheduled_at <= :now
        ORDER BY job.scheduled_at
        LIMIT :bound
    )
);

-- Running jobs by queue and type. Index job_running, which has only running jobs.
-- read: running
SELECT queue, type_name, count(*) FROM {prefix}job WHERE status = 'running' GROUP BY queue, type_name;

-- The first ready jobs of each type, merged. `types` holds [name, queue priority]. SQLite has no
-- LATERAL: an IN with a correlated subquery does the same. Index job_ready, then rowid.
-- read: candidates
SELECT job.rowid, asked.key, json_extract(asked.value, '$[1]') AS queue_priority
FROM json_each(:types) AS asked
CROSS JOIN {prefix}job AS job ON job.rowid IN (
    SELECT head.rowid
    FROM {prefix}job AS head
    WHERE head.ready = 1 AND head.type_name = json_extract(asked.value, '$[0]') AND head.scheduled_at <= :now
    ORDER BY head.priority, head.scheduled_at, head.id
    LIMIT :head
)
ORDER BY queue_priority, job.priority, job.scheduled_at, job.id, asked.key
LIMIT :total;

-- When the next job becomes due. Index job_scheduled, one entry for each type.
-- read: next
SELECT (
    SELECT min(job.scheduled_at)
    FROM {prefix}job AS job
    WHERE job.ready = 0 AND job.type_name = asked.value AND job.scheduled_at > :now
) AS due
FROM json_each(:types) AS asked
WHERE due IS NOT NULL
ORDER BY due
LIMIT 1;

-- `taken` holds [rowid, end of the lease, queue]; the position in it makes the token and, from
-- `at_once` on, the ordinal. A number of attempts that was written by hand must not be too large to
-- be counted: that would fail the claim of all others.
-- write: take
UPDATE {prefix}job SET
    status = 'running',
    ready = NULL,
    attempt = min(attempt, 2147483646) + 1,
    earlier_attempt_at = last_attempt_at,
    last_attempt_at = :now,
    leased_by = :worker,
    leased_until = json_extract(taken.value, '$[1]'),
    token = :first_token + taken.key,
    queue = json_extract(taken.value, '$[2]'),
    -- An older version starts the attempts again without the losses.
    losses = min(losses, attempt),
    ordinal = CASE WHEN min(losses, attempt) >= {alone_after} THEN {not_begun} WHEN taken.key >= :at_once THEN :first_ordinal + taken.key END
FROM json_each(:taken) AS taken
WHERE {prefix}job.rowid = json_extract(taken.value, '$[0]')
RETURNING {returned_columns}, earlier_attempt_at;
