-- Deleting. The write lock is taken before the first read.

-- Which of the named chains exist. Primary key.
-- read: named
SELECT first.id
FROM json_each(:ids) AS asked
CROSS JOIN {prefix}job AS first ON first.id = asked.value AND first.chain_index = 0
ORDER BY asked.key;

-- These chains, the chains that their jobs wait (or waited) for, and so on. Index job_chain,
-- primary key of `blocker`.
-- read: cascade
WITH RECURSIVE doomed (id) AS (
    SELECT first.id
    FROM json_each(:ids) AS asked
    CROSS JOIN {prefix}job AS first ON first.id = asked.value AND first.chain_index = 0
    UNION
    SELECT edge.chain_id
    FROM doomed
    CROSS JOIN {prefix}job AS job ON job.chain_id = doomed.id
    CROSS JOIN {prefix}blocker AS edge ON edge.job_id = job.id
)
SELECT id FROM doomed;

-- Jobs of other chains that still need one of these. By blocker_chain and primary key.
-- read: waiting
SELECT edge.chain_id, edge.job_id
FROM json_each(:chains) AS doomed
CROSS JOIN {prefix}blocker AS edge ON edge.chain_id = doomed.value
CROSS JOIN {prefix}job AS job ON job.id = edge.job_id
WHERE job.status IN ('blocked', 'pending', 'running', 'failed')
    AND job.chain_id NOT IN (SELECT value FROM json_each(:chains))
ORDER BY doomed.key, edge.job_id;

-- By blocker_chain.
-- write: edges_to
DELETE FROM {prefix}blocker WHERE chain_id IN (SELECT value FROM json_each(:chains));

-- By job_chain and the blockers' primary key.
-- write: edges_from
DELETE FROM {prefix}blocker WHERE job_id IN (
    SELECT job.id
    FROM json_each(:chains) AS doomed
    CROSS JOIN {prefix}job AS job ON job.chain_id = doomed.value
);

-- A key that now belongs to a later chain is kept. Primary key of `key`.
-- write: keys
DELETE FROM {prefix}dedup WHERE (chain_type, key, chain_id) IN (
    SELECT first.chain_type, first.dedup_key, first.id
    FROM json_each(:chains) AS doomed
    CROSS JOIN {prefix}job AS first ON first.id = doomed.value
);

-- Primary key.
-- write: unblocking
DELETE FROM {prefix}unblocking WHERE chain_id IN (SELECT value FROM json_each(:chains));

-- By job_chain and the primary key.
-- write: attempts
DELETE FROM {prefix}attempt WHERE job_id IN (
    SELECT job.id
    FROM json_each(:chains) AS doomed
    CROSS JOIN {prefix}job AS job ON job.chain_id = doomed.value
);

-- By job_chain.
-- write: jobs
DELETE FROM {prefix}job WHERE chain_id IN (SELECT value FROM json_each(:chains));
