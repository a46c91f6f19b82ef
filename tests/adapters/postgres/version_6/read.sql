-- Reading by id. Primary keys, and job_chain for the current job of a chain.

-- read: jobs
SELECT * FROM "public"."queuert_read_jobs"(:ids::text[]);

-- read: chains
SELECT * FROM "public"."queuert_read_chains"(:ids::text[]);

-- write: chains_locked
SELECT * FROM "public"."queuert_get_chains_locked"(:ids::text[]);

-- read: blockers
SELECT asked.id, b.chain_id, b.chain_type, b.status, b.output, b.trace_context
FROM unnest(:ids::text[]) AS asked (id) CROSS JOIN LATERAL "public"."queuert_blockers_of"(asked.id::uuid) AS b
ORDER BY asked.id, b.place;

-- read: next_available_in
SELECT "public"."queuert_next_available_in"(:types::text[]);

-- What is in flight is counted in the small tables, what rests by job_resting: completed jobs are not looked at.
-- read: stats
SELECT type_name, status, sum(number)::bigint, max(oldest)::double precision FROM (
    SELECT type_name, 'pending' AS status, count(*) AS number, extract(epoch FROM clock_timestamp() - min(scheduled_at)) AS oldest
    FROM "public"."queuert_ready" GROUP BY type_name
    UNION ALL
    SELECT type_name, 'pending', count(*), CASE WHEN min(scheduled_at) <= clock_timestamp() THEN extract(epoch FROM clock_timestamp() - min(scheduled_at)) END
    FROM "public"."queuert_later" GROUP BY type_name
    UNION ALL
    SELECT type_name, 'running', count(*), NULL FROM "public"."queuert_running" GROUP BY type_name
    UNION ALL
    SELECT type_name, resting, count(*), NULL FROM "public"."queuert_job" WHERE resting IN ('blocked', 'failed') GROUP BY type_name, resting
) AS counted
GROUP BY type_name, status;
