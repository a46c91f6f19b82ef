-- Reading under lock, trigger, retry, delete_chains.

-- The current jobs are locked. If a chain has moved on by then, everything is given back, and its new current job is locked.
CREATE FUNCTION {get_chains_locked}(p_ids text[]) RETURNS TABLE ({chain_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_ids uuid[];
    v_again uuid[];
BEGIN
    LOOP
        BEGIN
            v_ids := array(
                SELECT last.id FROM unnest(p_ids::uuid[]) WITH ORDINALITY AS asked (chain_id, n)
                CROSS JOIN LATERAL (
                    SELECT j.id FROM {job} AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
                ) AS last
                ORDER BY asked.n
            );
            PERFORM {lock_jobs}(v_ids);
            v_again := array(
                SELECT last.id FROM unnest(p_ids::uuid[]) WITH ORDINALITY AS asked (chain_id, n)
                CROSS JOIN LATERAL (
                    SELECT j.id FROM {job} AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
                ) AS last
                ORDER BY asked.n
            );
            EXIT WHEN v_again = v_ids;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            NULL;
        END;
    END LOOP;
    RETURN QUERY SELECT * FROM {read_chains}(p_ids);
END $body$;

-- Make pending jobs due now; the ids of those that are pending and not running.
CREATE FUNCTION {trigger}(p_ids text[]) RETURNS SETOF text LANGUAGE plpgsql {steady} AS $body$
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
CREATE FUNCTION {retry}(p_ids text[]) RETURNS SETOF text LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_now timestamptz;
    v_ids uuid[];
BEGIN
    PERFORM FROM {job} WHERE id = ANY (p_ids::uuid[]) ORDER BY status = 'blocked', id FOR UPDATE;
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

-- The chains to delete: those named, and with `p_cascade` those that their jobs wait for, and so on. OFFSET 0 keeps the planner to the order
-- in which it stands here: from a chain to its jobs, from a job to its edges.
CREATE FUNCTION {chains_to_delete}(p_ids text[], p_cascade boolean) RETURNS uuid[] LANGUAGE plpgsql AS $body$
BEGIN
    RETURN array(
        WITH RECURSIVE wanted AS (
            SELECT j.id FROM unnest(p_ids::uuid[]) AS asked (id) JOIN {job} AS j ON j.id = asked.id AND {is_first}
            UNION
            SELECT edge.chain_id FROM wanted
            CROSS JOIN LATERAL (SELECT j.id FROM {job} AS j WHERE j.chain_id = wanted.id OFFSET 0) AS member
            CROSS JOIN LATERAL (SELECT b.chain_id FROM {blocker} AS b WHERE b.job_id = member.id OFFSET 0) AS edge
            WHERE p_cascade
        )
        SELECT id FROM wanted ORDER BY id
    );
END $body$;

-- Rows of kind 'waiting' (a chain that is still needed, and the job that needs it), and then nothing is deleted; or of kind 'deleted', with the
-- chain's first and current job as they were. Named chains come first, in their order.
CREATE FUNCTION {delete_chains}(p_ids text[], p_cascade boolean)
RETURNS TABLE (kind text, chain text, job text, {chain_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_chains uuid[];
    v_jobs uuid[];
    v_again uuid[];
BEGIN
    -- All that will be touched is locked before anything is: in-flight rows, keys, jobs. If the set has grown by then, by a continuation
    -- for one, everything is given back and done again: the newcomers' in-flight rows come before the jobs that we hold.
    LOOP
        BEGIN
            v_chains := {chains_to_delete}(p_ids, p_cascade);
            IF cardinality(v_chains) = 0 THEN
                RETURN;
            END IF;
            v_jobs := array(SELECT j.id FROM {job} AS j WHERE j.chain_id = ANY (v_chains) ORDER BY j.chain_id, j.chain_index);
            PERFORM {lock_jobs}(v_jobs, v_chains);
            v_again := array(SELECT j.id FROM {job} AS j WHERE j.chain_id = ANY (v_chains) ORDER BY j.chain_id, j.chain_index);
            EXIT WHEN v_again = v_jobs AND {chains_to_delete}(p_ids, p_cascade) = v_chains;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            NULL;
        END;
    END LOOP;
    -- No edge to these chains can be added now: whoever adds one updates the current job of the chain.
    RETURN QUERY
    SELECT 'waiting', b.chain_id::text, b.job_id::text, {no_chain_columns}
    FROM {blocker} AS b
    CROSS JOIN LATERAL (SELECT o.chain_id, o.status FROM {job} AS o WHERE o.id = b.job_id OFFSET 0) AS j
    WHERE b.chain_id = ANY (v_chains) AND j.chain_id <> ALL (v_chains) AND j.status IN ('blocked', 'pending', 'failed')
    ORDER BY b.chain_id, b.job_id;
    IF FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT 'deleted', NULL::text, NULL::text, chains.* FROM {read_chains}(v_chains::text[]) AS chains;
    -- Edges from jobs outside, which have ended for good, are cut. The counts of edges outside of the set, `dependents` of what the deleted jobs
    -- waited for and `blocker_count` of those that had waited for them, stay too high, which costs one look into an index. To
    -- correct them would mean to wait for those rows: for a completion that in turn waits for the jobs we hold.
    DELETE FROM {blocker} WHERE chain_id = ANY (v_chains);
    DELETE FROM {blocker} WHERE job_id = ANY (v_jobs);
    DELETE FROM {key} WHERE chain_id = ANY (v_chains);
    PERFORM {land}(v_jobs);
    DELETE FROM {job} WHERE id = ANY (v_jobs);
END $body$;
