-- Reading by id. Primary keys, and job_chain for the current job of a chain.

-- read: jobs
SELECT {job_columns} FROM {job} AS j LEFT JOIN {running} AS r ON r.job_id = j.id WHERE j.id = ANY (:ids::text[]::uuid[]);

-- write: jobs_locked
SELECT * FROM {get_jobs_locked}(:ids::text[]);

-- read: chains
{chains_by_ids};

-- write: chains_locked
SELECT * FROM {get_chains_locked}(:ids::text[]);

-- read: blockers
SELECT asked.id, b.chain_id, b.chain_type, b.status, b.output, b.trace_context
FROM unnest(:ids::text[]) AS asked (id) CROSS JOIN LATERAL {blockers_of}(asked.id::uuid) AS b
ORDER BY asked.id, b.place;

-- The next pending job of these types: 0 if one is ready. One step into each small table's key for each type.
-- read: next_available_in
SELECT min(greatest(0, extract(epoch FROM due.scheduled_at - {clock})))::double precision
FROM unnest(:types::text[]) AS asked (type_name)
CROSS JOIN LATERAL (
    (SELECT r.scheduled_at FROM {ready} AS r WHERE r.type_name = asked.type_name
        ORDER BY r.priority, r.scheduled_at, r.id LIMIT 1)
    UNION ALL
    (SELECT l.scheduled_at FROM {later} AS l WHERE l.type_name = asked.type_name ORDER BY l.scheduled_at, l.id LIMIT 1)
) AS due;

-- What is in flight is counted in the small tables, what rests by job_resting: completed jobs are not looked at.
-- read: stats
SELECT type_name, status, sum(number)::bigint, max(oldest)::double precision FROM (
    SELECT type_name, 'pending' AS status, count(*) AS number, extract(epoch FROM {clock} - min(scheduled_at)) AS oldest
    FROM {ready} GROUP BY type_name
    UNION ALL
    SELECT type_name, 'pending', count(*), CASE WHEN min(scheduled_at) <= {clock} THEN extract(epoch FROM {clock} - min(scheduled_at)) END
    FROM {later} GROUP BY type_name
    UNION ALL
    SELECT type_name, 'running', count(*), NULL FROM {running} GROUP BY type_name
    UNION ALL
    SELECT type_name, resting, count(*), NULL FROM {job} WHERE resting IN ('blocked', 'failed') GROUP BY type_name, resting
) AS counted
GROUP BY type_name, status;
