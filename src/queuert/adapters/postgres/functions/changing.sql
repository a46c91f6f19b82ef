-- Changing chains from outside: trigger, retry, delete. Locks: work items by chain, in-flight rows
-- by id, keys, jobs by id.

-- Make pending jobs due now; returns the ids of those that are pending and not running. Primary
-- keys.
CREATE OR REPLACE FUNCTION {trigger}(p_ids text[]) RETURNS SETOF text LANGUAGE plpgsql {steady} AS $body$
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

-- Give failed jobs new attempts; returns the ids of those that had failed. Locks jobs (primary
-- key).
CREATE OR REPLACE FUNCTION {retry}(p_ids text[]) RETURNS SETOF text LANGUAGE plpgsql {steady} AS $body$
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
        PERFORM {enqueue}(v_ids, v_now);
        RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
    END IF;
END $body$;

-- The chains to delete: the named ones and, with `p_cascade`, those that their jobs wait for, and
-- so on. OFFSET 0 keeps the planner to the written order: from a chain to its jobs (index
-- job_chain), from a job to its edges (primary key of `blocker`). Locks nothing.
CREATE OR REPLACE FUNCTION {deletion_set}(p_ids text[], p_cascade boolean) RETURNS uuid[] LANGUAGE plpgsql AS $body$
BEGIN
    RETURN array(
        WITH RECURSIVE wanted AS (
            -- <= 0: with "= 0" a plan made for small tables would walk the whole index of first
            -- jobs for one id.
            SELECT j.id FROM unnest(p_ids::uuid[]) AS asked (id) JOIN {job} AS j ON j.id = asked.id AND j.chain_index <= 0
            UNION
            SELECT edge.chain_id FROM wanted
            CROSS JOIN LATERAL (SELECT j.id FROM {job} AS j WHERE j.chain_id = wanted.id OFFSET 0) AS member
            CROSS JOIN LATERAL (SELECT b.chain_id FROM {blocker} AS b WHERE b.job_id = member.id OFFSET 0) AS edge
            WHERE p_cascade
        )
        SELECT id FROM wanted ORDER BY id
    );
END $body$;

-- Returns rows of kind 'waiting' (a chain that is still needed, and the job that needs it), and
-- then nothing is deleted; or rows of kind 'deleted', with the chain's first and current job as
-- they were. Indexes: job_chain, blocker_chain, key_chain.
CREATE OR REPLACE FUNCTION {delete_chains}(p_ids text[], p_cascade boolean)
RETURNS TABLE (kind text, chain text, job text, {chain_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_chains uuid[];
    v_jobs uuid[];
    v_again uuid[];
BEGIN
    -- All rows are locked before any is changed: work items, in-flight rows, keys, jobs. If the set has grown
    -- meanwhile, by a continuation for example, all locks are released and taken again: the
    -- in-flight rows of the new jobs come before the job rows that we have locked.
    LOOP
        BEGIN
            v_chains := {deletion_set}(p_ids, p_cascade);
            IF cardinality(v_chains) = 0 THEN
                RETURN;
            END IF;
            v_jobs := array(SELECT j.id FROM {job} AS j WHERE j.chain_id = ANY (v_chains) ORDER BY j.chain_id, j.chain_index);
            PERFORM FROM {unblocking} WHERE chain_id = ANY (v_chains) ORDER BY chain_id FOR UPDATE;
            PERFORM {lock_jobs}(v_jobs, v_chains);
            v_again := array(SELECT j.id FROM {job} AS j WHERE j.chain_id = ANY (v_chains) ORDER BY j.chain_id, j.chain_index);
            EXIT WHEN v_again = v_jobs AND {deletion_set}(p_ids, p_cascade) = v_chains;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            NULL;
        END;
    END LOOP;
    -- No edge to these chains can be added now: adding one updates the current job of the chain.
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
    -- Edges from jobs outside of the set are deleted too; those jobs have ended for good. The
    -- counts of edges across its border stay too high: `dependents` of chains that the deleted jobs
    -- waited for, and `blocker_count` of jobs that waited for the deleted chains. That costs one
    -- index lookup. Correcting them could deadlock with a completion that waits for the jobs we
    -- have locked.
    DELETE FROM {blocker} WHERE chain_id = ANY (v_chains);
    DELETE FROM {blocker} WHERE job_id = ANY (v_jobs);
    DELETE FROM {key} WHERE chain_id = ANY (v_chains);
    DELETE FROM {unblocking} WHERE chain_id = ANY (v_chains);
    PERFORM {dequeue}(v_jobs);
    DELETE FROM {job} WHERE id = ANY (v_jobs);
END $body$;
