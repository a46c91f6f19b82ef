-- Ending jobs and putting them back. Runs under the write lock.

-- `items` holds [id, token, status, completed_by, output, continued_to, error, scheduled_at, uncounted,
-- give_back]; what is left out at the end is null or false, and most items have only the first five. A
-- token must be the job's current one. Without a token, the job must not have ended.
-- Returns also how many jobs wait (or waited) for the chain. Primary key, index blocker_chain.
-- write: apply
WITH item AS MATERIALIZED (
    SELECT
        json_extract(value, '$[0]') AS id,
        json_extract(value, '$[1]') AS token,
        json_extract(value, '$[2]') AS status,
        json_extract(value, '$[3]') AS completed_by,
        json_extract(value, '$[4]') AS output,
        json_extract(value, '$[5]') AS continued_to,
        json_extract(value, '$[6]') AS error,
        json_extract(value, '$[7]') AS scheduled_at,
        coalesce(json_extract(value, '$[8]'), 0) AS uncounted,
        coalesce(json_extract(value, '$[9]'), 0) AS give_back
    FROM json_each(:items)
)
UPDATE {prefix}job SET
    status = item.status,
    ready = CASE WHEN item.status = 'pending'
        THEN (coalesce(item.scheduled_at, {prefix}job.scheduled_at) <= :now) * (1 + (lane IS NOT NULL)) END,
    scheduled_at = coalesce(item.scheduled_at, {prefix}job.scheduled_at),
    attempt = attempt - item.uncounted,
    last_attempt_at = CASE WHEN item.give_back THEN earlier_attempt_at ELSE last_attempt_at END,
    completed_at = CASE WHEN item.status <> 'pending' THEN :now END,
    completed_by = item.completed_by,
    continued_to = item.continued_to,
    leased_by = NULL,
    leased_until = NULL,
    token = NULL,
    queue = NULL,
    output = item.output,
    last_error = CASE WHEN item.status <> 'completed' THEN coalesce(item.error, last_error) END
FROM item
WHERE {prefix}job.id = item.id
    AND ({prefix}job.token = item.token
        OR (item.token IS NULL AND {prefix}job.status IN ('blocked', 'pending', 'running')))
RETURNING id, chain_id, (SELECT count(*) FROM {prefix}blocker AS edge WHERE edge.chain_id = {prefix}job.chain_id), type_name,
    last_attempt_at;

-- Count down the dependents of completed chains. A job becomes pending when its last blocker
-- completes, and is due now at the earliest. Index blocker_chain, primary key.
-- write: unblock
UPDATE {prefix}job SET
    blockers_left = blockers_left - freed.number,
    status = CASE WHEN blockers_left > freed.number THEN 'blocked' ELSE 'pending' END,
    scheduled_at = CASE WHEN blockers_left <= freed.number THEN max(scheduled_at, :now) ELSE scheduled_at END,
    ready = CASE WHEN blockers_left <= freed.number THEN (scheduled_at <= :now) * (1 + (lane IS NOT NULL)) END
FROM (
    SELECT edge.job_id, count(*) AS number
    FROM json_each(:chains) AS completed
    CROSS JOIN {prefix}blocker AS edge ON edge.chain_id = completed.value
    GROUP BY edge.job_id
) AS freed
WHERE {prefix}job.id = freed.job_id AND {prefix}job.status = 'blocked'
RETURNING id, type_name, ready;

-- Chains without a key that no job has as a blocker. Primary key, index blocker_chain.
-- read: not_asked_for
SELECT first.id FROM json_each(:chains) AS asked
CROSS JOIN {prefix}job AS first ON first.id = asked.value AND first.dedup_key IS NULL
WHERE NOT EXISTS (SELECT 1 FROM {prefix}blocker AS edge WHERE edge.chain_id = asked.value);
