-- Putting back jobs whose lease has ended, or whose worker has. The read locks nothing, because there is rarely anything
-- to reap. The update takes the write lock and checks each job again.

-- The oldest of each type, merged. By job_running, then by rowid.
-- read: ended
SELECT job.id, job.leased_by
FROM json_each(:types) AS asked
CROSS JOIN {prefix}job AS job ON job.rowid IN (
    SELECT head.rowid
    FROM {prefix}job AS head
    WHERE head.status = 'running' AND head.type_name = asked.value AND head.leased_until <= :now
        AND head.id NOT IN (SELECT value FROM json_each(:ignored))
    ORDER BY head.leased_until, head.id
    LIMIT :limit
)
ORDER BY job.leased_until, job.id
LIMIT :limit;

-- The same, and jobs of dead workers: by job_running, every running job of the types.
-- read: ended_or_dead
SELECT job.id, job.leased_by
FROM json_each(:types) AS asked
CROSS JOIN {prefix}job AS job INDEXED BY {prefix}job_running ON job.status = 'running' AND job.type_name = asked.value
WHERE (job.leased_until <= :now OR job.leased_by IN (SELECT value FROM json_each(:dead)))
    AND job.id NOT IN (SELECT value FROM json_each(:ignored))
ORDER BY job.leased_until, job.id
LIMIT :limit;

-- `horizons` holds [worker, horizon] of those that are known. A job above the horizon of its worker has
-- not begun: it is put back as it was before the claim. `delays` holds [type, [microseconds after its first
-- loss, its second one, …]]; the last one is for all later ones. By primary key.
-- write: put_back
WITH held AS MATERIALIZED (
    SELECT job.id, coalesce(job.ordinal > json_extract(known.value, '$[1]'), job.ordinal = {not_begun}, 0) AS unbegun, (
        SELECT json_extract(of_type.value, '$[1][' || min(job.losses, json_array_length(of_type.value, '$[1]') - 1) || ']')
        FROM json_each(:delays) AS of_type WHERE json_extract(of_type.value, '$[0]') = job.type_name
    ) AS delay
    FROM json_each(:ids) AS asked
    CROSS JOIN {prefix}job AS job ON job.id = asked.value
    LEFT JOIN json_each(:horizons) AS known ON json_extract(known.value, '$[0]') = job.leased_by
)
UPDATE {prefix}job SET
    status = 'pending',
    ready = CASE WHEN held.unbegun OR coalesce(held.delay, 0) = 0 THEN (scheduled_at <= :now) * (1 + (lane IS NOT NULL)) ELSE 0 END,
    scheduled_at = CASE WHEN held.unbegun OR coalesce(held.delay, 0) = 0 THEN scheduled_at ELSE :now + held.delay END,
    losses = losses + NOT held.unbegun,
    leased_by = NULL,
    leased_until = NULL,
    token = NULL,
    queue = NULL,
    attempt = attempt - held.unbegun,
    last_attempt_at = CASE WHEN held.unbegun THEN earlier_attempt_at ELSE last_attempt_at END,
    last_error = CASE WHEN held.unbegun THEN last_error ELSE :error END
FROM held
WHERE {prefix}job.id = held.id AND +{prefix}job.status = 'running'
    AND (leased_until <= :now OR leased_by IN (SELECT value FROM json_each(:dead)))
RETURNING {returned_columns};
