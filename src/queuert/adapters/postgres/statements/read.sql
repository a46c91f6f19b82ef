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

-- The last column is one look at a table that is almost always empty.
-- read: next_available_in
SELECT found.next_in, found.paused, EXISTS (SELECT FROM {unblocking}) FROM {next_available}(:types::text[], :queues::text[]) AS found;

-- In-flight jobs are counted in the small tables, resting jobs by job_resting_type. Completed jobs
-- are not read. The types are found by one look at an index for each, and of each type and status at
-- most `limit` rows are read. NULL: all of them. Among the jobs that are due, the oldest of each
-- priority comes first.
-- read: stats
WITH RECURSIVE ready_type (name) AS (
    (SELECT r.type_name FROM {ready} AS r ORDER BY r.type_name LIMIT 1)
    UNION ALL
    SELECT (SELECT r.type_name FROM {ready} AS r WHERE r.type_name > kind.name ORDER BY r.type_name LIMIT 1)
    FROM ready_type AS kind WHERE kind.name IS NOT NULL
), line_type (name) AS (
    (SELECT e.type_name FROM {line} AS e ORDER BY e.type_name LIMIT 1)
    UNION ALL
    SELECT (SELECT e.type_name FROM {line} AS e WHERE e.type_name > kind.name ORDER BY e.type_name LIMIT 1)
    FROM line_type AS kind WHERE kind.name IS NOT NULL
), later_type (name) AS (
    (SELECT l.type_name FROM {later} AS l ORDER BY l.type_name LIMIT 1)
    UNION ALL
    SELECT (SELECT l.type_name FROM {later} AS l WHERE l.type_name > kind.name ORDER BY l.type_name LIMIT 1)
    FROM later_type AS kind WHERE kind.name IS NOT NULL
), resting_type (name) AS (
    (SELECT j.type_name FROM {job} AS j WHERE j.resting IS NOT NULL ORDER BY j.type_name, j.resting, j.id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.type_name FROM {job} AS j WHERE j.resting IS NOT NULL AND j.type_name > kind.name
        ORDER BY j.type_name, j.resting, j.id LIMIT 1
    )
    FROM resting_type AS kind WHERE kind.name IS NOT NULL
)
SELECT counted.name, counted.status, counted.number, extract(epoch FROM {clock} - counted.since)::double precision
FROM (
    SELECT kind.name, 'pending' AS status, (
        SELECT count(*) FROM (
            SELECT FROM {ready} AS r WHERE r.type_name = kind.name
            ORDER BY r.priority, r.scheduled_at, r.id LIMIT :limit::bigint
        ) AS found
    ) AS number, (
        WITH RECURSIVE level (priority) AS (
            (SELECT r.priority FROM {ready} AS r WHERE r.type_name = kind.name ORDER BY r.priority LIMIT 1)
            UNION ALL
            SELECT (
                SELECT r.priority FROM {ready} AS r WHERE r.type_name = kind.name AND r.priority > level.priority
                ORDER BY r.priority LIMIT 1
            )
            FROM level WHERE level.priority IS NOT NULL
        )
        SELECT min((
            SELECT r.scheduled_at FROM {ready} AS r
            WHERE r.type_name = kind.name AND r.priority = each.priority
                AND r.scheduled_at > '-infinity' AND r.scheduled_at < 'infinity'
            ORDER BY r.scheduled_at LIMIT 1
        ))
        FROM (SELECT level.priority FROM level LIMIT :limit::bigint) AS each
    ) AS since
    FROM ready_type AS kind WHERE kind.name IS NOT NULL
    UNION ALL
    SELECT kind.name, 'limited', (
        SELECT count(*) FROM (
            SELECT FROM {line} AS e WHERE e.type_name = kind.name ORDER BY e.scheduled_at LIMIT :limit::bigint
        ) AS found
    ), (
        SELECT e.scheduled_at FROM {line} AS e
        WHERE e.type_name = kind.name AND e.scheduled_at > '-infinity' AND e.scheduled_at < 'infinity' ORDER BY e.scheduled_at LIMIT 1
    )
    FROM line_type AS kind WHERE kind.name IS NOT NULL
    UNION ALL
    SELECT kind.name, 'pending', (
        SELECT count(*) FROM (
            SELECT FROM {later} AS l WHERE l.type_name = kind.name ORDER BY l.scheduled_at, l.id LIMIT :limit::bigint
        ) AS found
    ), (
        SELECT CASE WHEN l.scheduled_at <= {clock} THEN l.scheduled_at END FROM {later} AS l
        WHERE l.type_name = kind.name AND l.scheduled_at > '-infinity' ORDER BY l.scheduled_at LIMIT 1
    )
    FROM later_type AS kind WHERE kind.name IS NOT NULL
    UNION ALL
    SELECT r.type_name, 'running', count(*), NULL FROM {running} AS r GROUP BY r.type_name
    UNION ALL
    SELECT kind.name, wanted.status, (
        SELECT count(*) FROM (
            SELECT FROM {job} AS j WHERE j.type_name = kind.name AND j.resting = wanted.status
            ORDER BY j.id LIMIT :limit::bigint
        ) AS found
    ), NULL
    FROM resting_type AS kind CROSS JOIN (VALUES ('blocked'), ('failed')) AS wanted (status) WHERE kind.name IS NOT NULL
) AS counted;

-- The chains that deduplication keys refer to. For each chain type that has keys, one lookup in the
-- primary key of `key`.
-- read: keys
WITH RECURSIVE kind (name) AS (
    (SELECT k.chain_type FROM {key} AS k ORDER BY k.chain_type LIMIT 1)
    UNION ALL
    SELECT (SELECT k.chain_type FROM {key} AS k WHERE k.chain_type > kind.name ORDER BY k.chain_type LIMIT 1)
    FROM kind WHERE kind.name IS NOT NULL
)
SELECT found.chain_id::text FROM kind
CROSS JOIN LATERAL (SELECT k.chain_id FROM {key} AS k WHERE k.chain_type = kind.name AND k.key = ANY (:keys::text[]) OFFSET 0) AS found;

-- Attempts that failed or were lost. Primary key.
-- read: attempts
SELECT number, outcome, begun_at, ended_at, worker, code, message FROM {attempt} WHERE job_id = :job::text::uuid
ORDER BY ended_at, number;
