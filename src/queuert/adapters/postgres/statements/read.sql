-- Reading by id. Primary keys, and job_chain for the current job of a chain.

-- read: jobs
SELECT * FROM {read_jobs}(:ids::text[]);

-- read: chains
SELECT * FROM {read_chains}(:ids::text[]);

-- write: chains_locked
SELECT * FROM {lock_chains}(:ids::text[]);

-- read: blockers
SELECT asked.id, b.chain_id, b.chain_type, b.status, b.output, b.trace_context
FROM unnest(:ids::text[]) AS asked (id) CROSS JOIN LATERAL {blockers_of}(asked.id::uuid) AS b
ORDER BY asked.id, b.place;

-- The second column is one look at a table that is almost always empty.
-- read: next_available_in
SELECT {next_available}(:types::text[]), EXISTS (SELECT FROM {unblocking});

-- In-flight jobs are counted in the small tables, resting jobs by job_resting. Completed jobs are
-- not read.
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
