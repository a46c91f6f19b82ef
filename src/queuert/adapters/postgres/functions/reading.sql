-- Reading by id. Nothing is locked. Volatile, like all functions here: they also see what the same
-- statement has changed.

-- Jobs, in the order of `p_ids`. Primary keys.
CREATE OR REPLACE FUNCTION {read_jobs}(p_ids text[]) RETURNS TABLE ({job_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT {job_columns} FROM unnest(p_ids::uuid[]) WITH ORDINALITY AS asked (job_id, n)
    JOIN {job} AS j ON j.id = asked.job_id LEFT JOIN {running} AS r ON r.job_id = j.id
    ORDER BY asked.n;
END $body$;

-- Chains: their first and their current jobs. Primary key, index job_chain.
CREATE OR REPLACE FUNCTION {read_chains}(p_ids text[]) RETURNS TABLE ({chain_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT {first_columns}, {current_columns}
    FROM unnest(p_ids::uuid[]) AS asked_id
    -- <= 0: with "= 0" a plan made for small tables would walk the whole index of first jobs for
    -- one id.
    JOIN {job} AS first ON first.id = asked_id AND first.chain_index <= 0
    LEFT JOIN {running} AS first_run ON first_run.job_id = first.id
    CROSS JOIN LATERAL (
        SELECT last.* FROM {job} AS last WHERE last.chain_id = first.id ORDER BY last.chain_index DESC LIMIT 1
    ) AS current
    LEFT JOIN {running} AS current_run ON current_run.job_id = current.id;
END $body$;

-- Seconds until the next pending job of these types is due (0: one is ready), or until a pause of
-- them ends; and the pauses. For each type that is not paused, one lookup in the primary keys of
-- `ready` and `later`, and in line_type, whether its lane is open or not; one look at `pause`, which is almost always empty.
CREATE OR REPLACE FUNCTION {next_available}(p_types text[], p_queues text[], OUT next_in double precision, OUT paused text)
LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_shut integer[];
    v_until timestamptz;
BEGIN
    IF EXISTS (SELECT FROM {pause}) THEN
        SELECT found.shut, found.until, found.paused INTO v_shut, v_until, paused FROM {pauses_of}(p_types, p_queues, {clock}) AS found;
    END IF;
    next_in := (
        SELECT min(greatest(0, extract(epoch FROM greatest(due.scheduled_at, {clock}) - {clock})))::double precision
        FROM unnest(p_types) WITH ORDINALITY AS asked (type_name, n)
        CROSS JOIN LATERAL (
            -- Any of them will do. The last one, because under an old snapshot the entries of jobs
            -- that were claimed are at the head of the index.
            (SELECT '-infinity' FROM {ready} AS r WHERE r.type_name = asked.type_name
                ORDER BY r.priority DESC, r.scheduled_at DESC, r.id DESC LIMIT 1)
            UNION ALL
            (SELECT e.scheduled_at FROM {line} AS e WHERE e.type_name = asked.type_name ORDER BY e.scheduled_at LIMIT 1)
            UNION ALL
            (SELECT l.scheduled_at FROM {later} AS l WHERE l.type_name = asked.type_name AND l.scheduled_at < 'infinity'
                ORDER BY l.scheduled_at, l.id LIMIT 1)
        ) AS due (scheduled_at)
        WHERE asked.n <> ALL (coalesce(v_shut, '{}'))
    );
    IF v_until IS NOT NULL THEN
        next_in := least(next_in, greatest(0, extract(epoch FROM v_until - {clock})));
    END IF;
END $body$;
