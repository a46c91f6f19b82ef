-- Reading under lock, trigger, retry, delete_chains.

CREATE FUNCTION {get_jobs_locked}(p_ids text[]) RETURNS TABLE ({job_types}) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
BEGIN
    PERFORM {lock_jobs}(p_ids::uuid[]);
    RETURN QUERY SELECT {job_columns} FROM {job} AS j LEFT JOIN {running} AS r ON r.job_id = j.id
    WHERE j.id = ANY (p_ids::uuid[]);
END $body$;

-- The current jobs are locked, and looked for again until they are still the current ones.
CREATE FUNCTION {get_chains_locked}(p_ids text[]) RETURNS TABLE ({chain_types}) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_ids uuid[];
    v_locked uuid[] := '{}';
BEGIN
    LOOP
        v_ids := array(
            SELECT last.id FROM unnest(p_ids::uuid[]) AS asked (chain_id)
            CROSS JOIN LATERAL (
                SELECT j.id FROM {job} AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
            ) AS last
            WHERE last.id <> ALL (v_locked)
        );
        EXIT WHEN cardinality(v_ids) = 0;
        PERFORM {lock_jobs}(v_ids);
        v_locked := v_locked || v_ids;
    END LOOP;
    RETURN QUERY {chains_query};
END $body$;

-- Make pending jobs due now; the ids of those that are pending and not running.
CREATE FUNCTION {trigger}(p_ids text[]) RETURNS SETOF text LANGUAGE plpgsql AS $body$
DECLARE
    v_now timestamptz;
    v_ids uuid[];
BEGIN
    PERFORM {lock_jobs}(p_ids::uuid[]);
    v_now := {clock};
    v_ids := array(
        SELECT j.id FROM {job} AS j WHERE j.id = ANY (p_ids::uuid[]) AND j.status = 'pending'
            AND NOT EXISTS (SELECT FROM {running} AS r WHERE r.job_id = j.id)
    );
    WITH early AS (
        DELETE FROM {later} AS l USING {job} AS j
        WHERE j.id = ANY (v_ids) AND l.type_name = j.type_name AND l.scheduled_at = j.scheduled_at AND l.id = j.id
        RETURNING l.type_name, l.priority, l.id, l.scheduled_at
    ), moved AS (
        INSERT INTO {ready} (type_name, priority, scheduled_at, id)
        SELECT e.type_name, e.priority, least(e.scheduled_at, v_now), e.id FROM early AS e
        RETURNING id, scheduled_at
    )
    UPDATE {job} AS j SET scheduled_at = moved.scheduled_at FROM moved WHERE j.id = moved.id;
    RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
END $body$;

-- Give failed jobs new attempts; the ids of those that had failed.
CREATE FUNCTION {retry}(p_ids text[]) RETURNS SETOF text LANGUAGE plpgsql AS $body$
DECLARE
    v_now timestamptz;
    v_ids uuid[];
BEGIN
    PERFORM FROM {job} WHERE id = ANY (p_ids::uuid[]) ORDER BY id FOR UPDATE;
    v_now := {clock};
    WITH revived AS (
        UPDATE {job} AS j SET status = 'pending', resting = NULL, attempt = 0, scheduled_at = v_now, completed_at = NULL,
            completed_by = NULL
        WHERE j.id = ANY (p_ids::uuid[]) AND j.status = 'failed'
        RETURNING j.id
    )
    SELECT array_agg(id) INTO v_ids FROM revived;
    IF v_ids IS NOT NULL THEN
        PERFORM {launch}(v_ids, v_now);
        RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
    END IF;
END $body$;

-- Rows of kind 'waiting' (a chain that is still needed, and the job that needs it), and then nothing is deleted; or of kind 'deleted', with the
-- chain's first and current job as they were. Named chains come first, in their order.
CREATE FUNCTION {delete_chains}(p_ids text[], p_cascade boolean)
RETURNS TABLE (kind text, chain text, job text, {chain_types}) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_chains uuid[];
    v_again uuid[];
    v_jobs uuid[];
BEGIN
    -- The in-flight rows of all jobs come before any job row; then the set is read again, until it has not changed meanwhile.
    LOOP
        WITH RECURSIVE wanted AS (
            SELECT j.id FROM unnest(p_ids::uuid[]) AS asked (id) JOIN {job} AS j ON j.id = asked.id AND j.chain_index = 0
            UNION
            SELECT b.chain_id FROM wanted JOIN {job} AS j ON j.chain_id = wanted.id JOIN {blocker} AS b ON b.job_id = j.id
            WHERE p_cascade
        )
        SELECT array_agg(id ORDER BY id) INTO v_again FROM wanted;
        IF v_again IS NULL THEN
            RETURN;
        END IF;
        EXIT WHEN v_again IS NOT DISTINCT FROM v_chains
            AND NOT EXISTS (SELECT FROM {job} AS j WHERE j.chain_id = ANY (v_again) AND j.id <> ALL (v_jobs));
        v_chains := v_again;
        v_jobs := array(SELECT j.id FROM {job} AS j WHERE j.chain_id = ANY (v_chains));
        PERFORM {lock_jobs}(v_jobs);
    END LOOP;
    RETURN QUERY
    SELECT 'waiting', b.chain_id::text, b.job_id::text, {no_chain_columns}
    FROM {blocker} AS b JOIN {job} AS j ON j.id = b.job_id
    WHERE b.chain_id = ANY (v_chains) AND j.chain_id <> ALL (v_chains) AND j.status IN ('blocked', 'pending', 'failed')
    ORDER BY b.chain_id, b.job_id;
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT 'deleted', NULL::text, NULL::text, chains.*
    FROM (SELECT v_chains::text[] AS ids) AS asked CROSS JOIN LATERAL ({chains_of_asked}) AS chains;
    -- Edges from jobs outside, which have ended for good, are cut; what the deleted jobs waited for has fewer dependents.
    UPDATE {job} AS j SET dependents = greatest(0, j.dependents - cut.edges)
    FROM (
        SELECT last.id, count(*) AS edges FROM {blocker} AS b
        CROSS JOIN LATERAL (
            SELECT c.id FROM {job} AS c WHERE c.chain_id = b.chain_id ORDER BY c.chain_index DESC LIMIT 1
        ) AS last
        WHERE b.job_id = ANY (v_jobs) AND b.chain_id <> ALL (v_chains)
        GROUP BY last.id
    ) AS cut
    WHERE j.id = cut.id;
    UPDATE {job} AS j SET blocker_count = j.blocker_count - cut.edges
    FROM (
        SELECT b.job_id, count(*) AS edges FROM {blocker} AS b
        WHERE b.chain_id = ANY (v_chains) AND b.job_id <> ALL (v_jobs) GROUP BY b.job_id
    ) AS cut
    WHERE j.id = cut.job_id;
    DELETE FROM {blocker} WHERE chain_id = ANY (v_chains);
    DELETE FROM {blocker} WHERE job_id = ANY (v_jobs);
    DELETE FROM {key} WHERE chain_id = ANY (v_chains);
    PERFORM {land}(v_jobs);
    DELETE FROM {job} WHERE id = ANY (v_jobs);
END $body$;
