-- Deleting what has been kept long enough. Runs under the write lock.

-- Written only if something has changed: the primary key tells.
-- write: store
INSERT INTO {prefix}retention (type_name, completed, failed, cancelled, expired, archived, months, stored_at)
SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'), json_extract(value, '$[6]'), :now
FROM json_each(:policies)
WHERE true
ON CONFLICT (type_name) DO UPDATE SET
    completed = excluded.completed,
    failed = excluded.failed,
    cancelled = excluded.cancelled,
    expired = excluded.expired,
    archived = excluded.archived,
    months = excluded.months,
    stored_at = excluded.stored_at,
    walked = NULL,
    archive_error = NULL,
    archive_failed_at = NULL
WHERE ({prefix}retention.completed, {prefix}retention.failed, {prefix}retention.cancelled, {prefix}retention.expired,
    {prefix}retention.archived, {prefix}retention.months)
    IS NOT (excluded.completed, excluded.failed, excluded.cancelled, excluded.expired, excluded.archived, excluded.months)
RETURNING type_name;

-- read: policies
SELECT type_name, completed, failed, cancelled, expired, archived, months, stored_at, walked, archive_error, archive_failed_at
FROM {prefix}retention ORDER BY type_name;

-- read: state
SELECT (SELECT count(*) FROM (SELECT 1 FROM {prefix}kept LIMIT :counted)), pruned_at, lap_type, lap_id, lap_began_at, lap_ended_at
FROM (SELECT 1) LEFT JOIN {prefix}pruning;

-- write: progress
INSERT OR REPLACE INTO {prefix}pruning (one, pruned_at, lap_type, lap_id, lap_began_at, lap_ended_at)
VALUES (1, :now, :lap_type, :lap_id, :lap_began_at, :lap_ended_at);

-- Index kept_due.
-- read: noted
SELECT chain_id, chain_type, key, due_at FROM {prefix}kept WHERE due_at <= :now ORDER BY due_at LIMIT :limit;

-- Index job_first.
-- read: walk
SELECT id FROM {prefix}job
WHERE chain_index = 0 AND type_name = :type AND id > :after AND id < :until
ORDER BY id LIMIT :limit;

-- write: walked
UPDATE {prefix}retention SET walked = :walked WHERE type_name = :type;

-- Index job_first.
-- read: lap
SELECT id FROM {prefix}job WHERE chain_index = 0 AND type_name = :type AND id > :after ORDER BY id LIMIT :limit;

-- What decides whether a chain is due. Primary key, index job_chain.
-- read: chains
SELECT first.id, first.type_name, first.created_at, current.status, current.completed_at
FROM json_each(:ids) AS asked
CROSS JOIN {prefix}job AS first ON first.id = asked.value AND first.chain_index = 0
CROSS JOIN {prefix}job AS current ON current.rowid = {current_of_first};

-- Chains whose dependents are not all freed. Primary key.
-- read: unblocking
SELECT chain_id FROM {prefix}unblocking WHERE chain_id IN (SELECT value FROM json_each(:chains));

-- Keys that have to match for longer. Primary key.
-- write: outlive
UPDATE {prefix}dedup SET ended = (
    SELECT current.status FROM {prefix}job AS current WHERE current.chain_id = {prefix}dedup.chain_id
    ORDER BY current.chain_index DESC LIMIT 1
)
WHERE window_chain = chain_id AND until > :now AND (chain_type, key, chain_id) IN (
    SELECT first.chain_type, first.dedup_key, first.id
    FROM json_each(:chains) AS doomed
    CROSS JOIN {prefix}job AS first ON first.id = doomed.value
)
RETURNING chain_id, until, chain_type, key;

-- A key that now belongs to a later chain is kept. What an older version has left in a row that it
-- has taken over is not valid. Primary key.
-- write: keys
DELETE FROM {prefix}dedup WHERE (ended IS NULL OR window_chain IS NOT chain_id) AND (chain_type, key, chain_id) IN (
    SELECT first.chain_type, first.dedup_key, first.id
    FROM json_each(:chains) AS doomed
    CROSS JOIN {prefix}job AS first ON first.id = doomed.value
);

-- Their chains are gone, and now their windows have ended. Primary key.
-- write: forget_keys
DELETE FROM {prefix}dedup WHERE ended IS NOT NULL AND until <= :now AND (chain_type, key, chain_id) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(:keys)
);

-- By job_chain.
-- read: count
SELECT first.chain_type, count(DISTINCT first.id), count(*)
FROM json_each(:chains) AS doomed
CROSS JOIN {prefix}job AS first ON first.id = doomed.value
CROSS JOIN {prefix}job AS job ON job.chain_id = first.id
GROUP BY first.chain_type
ORDER BY first.chain_type;

-- `notes` holds [chain_id, due_at, chain_type, key, archive]. Primary key.
-- write: note
INSERT INTO {prefix}kept (chain_id, due_at, chain_type, key, archive)
SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
    json_extract(value, '$[4]')
FROM json_each(:notes)
WHERE true
ON CONFLICT (chain_id) DO UPDATE SET
    due_at = excluded.due_at, chain_type = excluded.chain_type, key = excluded.key, archive = excluded.archive;

-- Primary key.
-- write: strike_out
DELETE FROM {prefix}kept WHERE chain_id IN (SELECT value FROM json_each(:chains));
