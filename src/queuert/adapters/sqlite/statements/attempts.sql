-- Attempts that failed or were lost.

-- Before the jobs are changed. `ended` holds [job_id, token, code, message]. Primary key.
-- write: note
INSERT OR REPLACE INTO {prefix}attempt (job_id, ended_at, number, begun_at, worker, outcome, code, message)
SELECT
    job.id, :now, job.attempt, job.last_attempt_at, job.leased_by, :outcome, json_extract(asked.value, '$[2]'),
    json_extract(asked.value, '$[3]')
FROM json_each(:ended) AS asked
CROSS JOIN {prefix}job AS job ON job.id = json_extract(asked.value, '$[0]')
WHERE +job.status = 'running'
    AND (json_extract(asked.value, '$[1]') IS NULL OR job.token = json_extract(asked.value, '$[1]'));

-- All but the last ones of each job. Primary key.
-- write: trim
DELETE FROM {prefix}attempt WHERE job_id IN (SELECT value FROM json_each(:jobs)) AND ended_at < (
    SELECT last.ended_at FROM {prefix}attempt AS last WHERE last.job_id = {prefix}attempt.job_id
    ORDER BY last.ended_at DESC LIMIT 1 OFFSET :kept - 1
);

-- Primary key.
-- read: of_job
SELECT number, outcome, begun_at, ended_at, worker, code, message FROM {prefix}attempt WHERE job_id = :job
ORDER BY ended_at, number;

-- Jobs that are about to be put back, and have begun: see reap.put_back. Primary key.
-- write: lost
INSERT OR REPLACE INTO {prefix}attempt (job_id, ended_at, number, begun_at, worker, outcome, code, message)
SELECT job.id, :now, job.attempt, job.last_attempt_at, job.leased_by, 'lost', :code, :message
FROM json_each(:ids) AS asked
CROSS JOIN {prefix}job AS job ON job.id = asked.value
LEFT JOIN json_each(:horizons) AS known ON json_extract(known.value, '$[0]') = job.leased_by
WHERE +job.status = 'running' AND NOT coalesce(job.ordinal > json_extract(known.value, '$[1]'), job.ordinal = {not_begun}, 0)
    AND (job.leased_until <= :now OR job.leased_by IN (SELECT value FROM json_each(:dead)));
