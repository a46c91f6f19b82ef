-- Cancelling. The write lock is taken before the first read.

-- Which of the named chains exist. Primary key.
-- read: named
SELECT first.id
FROM json_each(:ids) AS asked
CROSS JOIN {prefix}job AS first ON first.id = asked.value AND first.chain_index = 0;

-- These chains, the chains whose blocked jobs wait for them, and so on. Index blocker_chain, primary
-- key.
-- read: cascade
WITH RECURSIVE doomed (id) AS (
    SELECT first.id
    FROM json_each(:ids) AS asked
    CROSS JOIN {prefix}job AS first ON first.id = asked.value AND first.chain_index = 0
    UNION
    SELECT job.chain_id
    FROM doomed
    CROSS JOIN {prefix}blocker AS edge ON edge.chain_id = doomed.id
    CROSS JOIN {prefix}job AS job ON job.id = edge.job_id AND +job.status = 'blocked'
)
SELECT id FROM doomed;

-- Failed jobs that stop their key. Primary key.
-- write: failed
UPDATE {prefix}job SET status = 'cancelled', completed_at = :now, completed_by = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'failed';
