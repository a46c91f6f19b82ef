-- Storing jobs. The write lock is taken before the first read, so what was read stays true until
-- the commit.

-- The chains that have the keys (each by the position of its key) and the chains that are named as
-- blockers. A chain that the same operation continues is not completed, although its last stored
-- job is. Primary keys of `key` and `job`, index job_chain.
-- read: look
SELECT 'key', asked.key, first.id, first.type_name, iif(current.continued_to IS NULL, current.status, 'pending'),
    first.created_at
FROM json_each(:keys) AS asked
CROSS JOIN {prefix}dedup AS dedup
    ON dedup.chain_type = json_extract(asked.value, '$[0]') AND dedup.key = json_extract(asked.value, '$[1]')
CROSS JOIN {prefix}job AS first ON first.id = dedup.chain_id
CROSS JOIN {prefix}job AS current ON current.rowid = {current_of_first}
UNION ALL
SELECT 'blocker', asked.key, first.id, first.type_name, iif(current.continued_to IS NULL, current.status, 'pending'),
    first.created_at
FROM json_each(:blockers) AS asked
CROSS JOIN {prefix}job AS first ON first.id = asked.value AND first.chain_index = 0
CROSS JOIN {prefix}job AS current ON current.rowid = {current_of_first};

-- An id that exists already returns no row. Then the caller rolls everything back.
-- write: insert
INSERT INTO {prefix}job (
    id, type_name, chain_id, chain_type, chain_index, status, ready, priority, created_at, scheduled_at,
    deadline, dedup_key, blockers_left, trace_context, chain_trace_context, input
)
SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
    json_extract(value, '$[6]'), json_extract(value, '$[7]'), :now, json_extract(value, '$[8]'),
    json_extract(value, '$[9]'), json_extract(value, '$[10]'), json_extract(value, '$[11]'),
    json_extract(value, '$[12]'), json_extract(value, '$[13]'), json_extract(value, '$[14]')
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
INSERT INTO {prefix}dedup (chain_type, key, chain_id)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
FROM json_each(:keys)
WHERE true
ON CONFLICT DO UPDATE SET chain_id = excluded.chain_id;
