-- Archiving what has been kept long enough. Runs under the write lock.

-- Which of the types have chains that wait to be archived. Index kept_archive.
-- read: waiting
SELECT asked.value FROM json_each(:types) AS asked
WHERE EXISTS (SELECT 1 FROM {prefix}kept AS k WHERE k.archive = asked.value);

-- Whether any chain waits to be archived. Index kept_archive.
-- read: any
SELECT EXISTS (SELECT 1 FROM {prefix}kept WHERE archive IS NOT NULL);

-- Index kept_archive.
-- read: count
SELECT count(*) FROM (SELECT 1 FROM {prefix}kept WHERE archive = :type LIMIT :counted);

-- Index kept_archive.
-- read: take
SELECT chain_id FROM {prefix}kept WHERE archive = :type ORDER BY chain_id LIMIT :limit;

-- Index job_chain.
-- read: jobs
SELECT {job_columns}
FROM json_each(:chains) AS asked
CROSS JOIN {prefix}job AS job ON job.chain_id = asked.value
ORDER BY asked.key, job.chain_index;

-- Index job_chain, primary key of `blocker`.
-- read: blockers
SELECT edge.job_id, edge.chain_id
FROM json_each(:chains) AS asked
CROSS JOIN {prefix}job AS job ON job.chain_id = asked.value
CROSS JOIN {prefix}blocker AS edge ON edge.job_id = job.id
ORDER BY edge.job_id, edge.position;

-- Index job_chain, primary key of `attempt`.
-- read: attempts
SELECT a.job_id, a.number, a.outcome, a.begun_at, a.ended_at, a.worker, a.code, a.message
FROM json_each(:chains) AS asked
CROSS JOIN {prefix}job AS job ON job.chain_id = asked.value
CROSS JOIN {prefix}attempt AS a ON a.job_id = job.id
ORDER BY a.job_id, a.ended_at, a.number;

-- `rows` holds [chain_id, chain_type, status, created_at, ended_at, place, chain].
-- write: store
INSERT INTO {prefix}archived (chain_id, chain_type, status, created_at, ended_at, archived_at, place, chain)
SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
    json_extract(value, '$[4]'), :now, json_extract(value, '$[5]'), json_extract(value, '$[6]')
FROM json_each(:rows);

-- How many of the oldest ones are too old. Primary key.
-- read: old
SELECT count(*) FROM (SELECT archived_at FROM {prefix}archived WHERE number > 0 ORDER BY number LIMIT :limit) WHERE archived_at < :before;

-- Primary key.
-- write: drop
DELETE FROM {prefix}archived WHERE number IN (
    SELECT number FROM (SELECT number, archived_at FROM {prefix}archived WHERE number > 0 ORDER BY number LIMIT :limit)
    WHERE archived_at < :before
);

-- Index archived_chain.
-- read: get
SELECT chain_id, chain_type, status, created_at, ended_at, archived_at, place, CAST(chain AS BLOB) FROM {prefix}archived
WHERE chain_id IN (SELECT value FROM json_each(:ids)) ORDER BY number;

-- write: failed
UPDATE {prefix}retention SET archive_error = :error, archive_failed_at = CASE WHEN :error IS NOT NULL THEN :now END
WHERE type_name = :type AND (archive_error IS NOT NULL OR :error IS NOT NULL);
