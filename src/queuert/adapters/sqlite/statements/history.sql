-- What happened to jobs. There is one writer at a time, so rows can be added up at once.

-- `tallies` holds [grain, at, type_name, what, bucket, number, seconds, fine]. Primary key. One fine
-- bucket, as a single job has it, is added in place: merging two objects takes several times as long.
-- write: add
INSERT INTO {prefix}history (grain, at, type_name, what, bucket, number, seconds, fine)
SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
    json_extract(value, '$[4]'), json_extract(value, '$[5]'), json_extract(value, '$[6]'), json_extract(value, '$[7]')
FROM json_each(:tallies)
WHERE true
ON CONFLICT (grain, at, type_name, what, bucket) DO UPDATE SET
    number = number + excluded.number,
    seconds = seconds + excluded.seconds,
    fine = CASE
        WHEN excluded.fine IS NULL OR fine IS NULL THEN coalesce(fine, excluded.fine)
        WHEN instr(excluded.fine, ',') = 0 THEN json_set(
            fine, '$.' || substr(excluded.fine, 3, instr(excluded.fine, '":') - 3),
            coalesce(json_extract(fine, '$.' || substr(excluded.fine, 3, instr(excluded.fine, '":') - 3)), 0)
                + json_extract(excluded.fine, '$.' || substr(excluded.fine, 3, instr(excluded.fine, '":') - 3))
        )
        ELSE (
            SELECT json_group_object(bucket, together) FROM (
                SELECT one.key AS bucket, sum(one.value) AS together FROM (
                    SELECT key, value FROM json_each(fine) UNION ALL SELECT key, value FROM json_each(excluded.fine)
                ) AS one GROUP BY one.key
            )
        )
    END;

-- Primary key, once for each grain.
-- read: steps
SELECT type_name, at / :step * :step AS step_at, what, bucket, sum(number), sum(seconds)
FROM {prefix}history
WHERE grain IN (60, 3600, 86400) AND at >= :since AND (:type IS NULL OR type_name = :type)
GROUP BY type_name, step_at, what, bucket
HAVING sum(number) <> 0
UNION ALL
SELECT history.type_name, history.at / :step * :step AS step_at, history.what, 1000 + each.key AS number_of, sum(each.value), 0.0
FROM {prefix}history AS history CROSS JOIN json_each(history.fine) AS each
WHERE history.grain IN (60, 3600, 86400) AND history.at >= :since AND (:type IS NULL OR history.type_name = :type)
GROUP BY history.type_name, step_at, history.what, number_of
HAVING sum(each.value) <> 0
ORDER BY 1, 2, 3, 4;

-- Primary key.
-- read: old
SELECT at, type_name, what, bucket, number, seconds, fine FROM {prefix}history WHERE grain = :grain AND at < :before
ORDER BY at, type_name, what, bucket LIMIT :limit;

-- `keys` holds [at, type_name, what, bucket]. Primary key.
-- write: remove
DELETE FROM {prefix}history WHERE (grain, at, type_name, what, bucket) IN (
    SELECT
        :grain, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
        json_extract(value, '$[3]')
    FROM json_each(:keys)
);

-- Claims of these jobs. Primary key.
-- read: claims
SELECT job.id, job.type_name, job.last_attempt_at, job.scheduled_at, job.attempt
FROM json_each(:ids) AS asked
CROSS JOIN {prefix}job AS job ON job.id = asked.value AND +job.status = 'running';

-- Claims in these chains. By job_chain.
-- read: claims_in
SELECT job.id, job.type_name, job.last_attempt_at, job.scheduled_at, job.attempt
FROM json_each(:chains) AS asked
CROSS JOIN {prefix}job AS job ON job.chain_id = asked.value AND +job.status = 'running';

-- Claims of a worker, except those of jobs that it holds. By job_running.
-- read: claims_of
SELECT job.id, job.type_name, job.last_attempt_at, job.scheduled_at, job.attempt
FROM {prefix}job AS job INDEXED BY {prefix}job_running
WHERE job.status = 'running' AND job.leased_by = :worker AND job.id NOT IN (SELECT value FROM json_each(:held));
