-- Storing jobs. The write lock is taken before the first read, so what was read stays true until
-- the commit.

-- The chains that have the keys (each by the position of its key), also if they were pruned and the
-- key outlives them, and the chains that are named as blockers. A chain that the same operation
-- continues is not completed, although its last stored job is. Besides: whether the chain has not
-- begun, whether it has no blockers either, and when it was due at first. Primary keys of `key`,
-- `job` and `blocker`, index job_chain.
-- read: look
SELECT 'key', asked.key, first.id, first.type_name, iif(current.continued_to IS NULL, current.status, 'pending'),
    first.created_at, first.status IN ('blocked', 'pending') AND first.last_attempt_at IS NULL,
    first.status = 'pending' AND first.last_attempt_at IS NULL
        AND NOT EXISTS (SELECT 1 FROM {prefix}blocker AS edge WHERE edge.job_id = first.id),
    iif(dedup.window_chain = dedup.chain_id, dedup.started_at, first.created_at)
FROM json_each(:keys) AS asked
CROSS JOIN {prefix}dedup AS dedup
    ON dedup.chain_type = json_extract(asked.value, '$[0]') AND dedup.key = json_extract(asked.value, '$[1]')
CROSS JOIN {prefix}job AS first ON first.id = dedup.chain_id
CROSS JOIN {prefix}job AS current ON current.rowid = {current_of_first}
UNION ALL
SELECT 'pruned', asked.key, dedup.chain_id, dedup.chain_type, dedup.ended, dedup.started_at, 0, 0, dedup.started_at
FROM json_each(:keys) AS asked
CROSS JOIN {prefix}dedup AS dedup
    ON dedup.chain_type = json_extract(asked.value, '$[0]') AND dedup.key = json_extract(asked.value, '$[1]')
WHERE dedup.ended IS NOT NULL AND dedup.window_chain = dedup.chain_id
UNION ALL
SELECT 'blocker', asked.key, first.id, first.type_name, iif(current.continued_to IS NULL, current.status, 'pending'),
    first.created_at, 0, 0, first.created_at
FROM json_each(:blockers) AS asked
CROSS JOIN {prefix}job AS first ON first.id = asked.value AND first.chain_index = 0
CROSS JOIN {prefix}job AS current ON current.rowid = {current_of_first};

-- An id that exists already returns no row. Then the caller rolls everything back.
-- write: insert
INSERT INTO {prefix}job (
    id, type_name, chain_id, chain_type, chain_index, status, ready, priority, created_at, scheduled_at,
    deadline, dedup_key, blockers_left, trace_context, chain_trace_context, lane, input, weight
)
SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
    json_extract(value, '$[6]'), json_extract(value, '$[7]'), :now, json_extract(value, '$[8]'),
    json_extract(value, '$[9]'), json_extract(value, '$[10]'), json_extract(value, '$[11]'),
    json_extract(value, '$[12]'), json_extract(value, '$[13]'), json_extract(value, '$[14]'),
    json_extract(value, '$[15]'), json_extract(value, '$[16]')
FROM json_each(:jobs)
WHERE true
ON CONFLICT DO NOTHING
RETURNING id;

-- write: wait_for
INSERT INTO {prefix}blocker (job_id, position, chain_id, trace_context, done)
SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]')
FROM json_each(:edges);

-- write: hold_keys
INSERT INTO {prefix}dedup (chain_type, key, chain_id, window_chain, started_at, until)
SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]')
FROM json_each(:keys)
WHERE true
ON CONFLICT DO UPDATE SET
    chain_id = excluded.chain_id,
    window_chain = excluded.window_chain,
    started_at = excluded.started_at,
    until = excluded.until,
    ended = NULL;

-- Change jobs that have not begun. NULL for the time or the input: it stays. The end of the window
-- is counted from the start of the chain, and is the latest time. Primary key of `job`.
-- write: replace
UPDATE {prefix}job AS job SET
    scheduled_at = coalesce(max(:now, min(new.at, job.created_at + new.window)), job.scheduled_at),
    ready = (coalesce(min(new.at, job.created_at + new.window), job.scheduled_at) <= :now)
        * (1 + (iif(new.input IS NULL, job.lane, new.lane) IS NOT NULL)),
    lane = iif(new.input IS NULL, job.lane, new.lane),
    weight = iif(new.input IS NULL, job.weight, new.weight),
    priority = coalesce(new.priority, job.priority),
    deadline = iif(new.input IS NULL, job.deadline, new.deadline),
    input = coalesce(new.input, job.input)
FROM (
    SELECT
        json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS at, json_extract(value, '$[2]') AS window,
        json_extract(value, '$[3]') AS priority, json_extract(value, '$[4]') AS deadline,
        json_extract(value, '$[5]') AS input, json_extract(value, '$[6]') AS lane,
        json_extract(value, '$[7]') AS weight
    FROM json_each(:jobs)
) AS new
WHERE job.id = new.id;
