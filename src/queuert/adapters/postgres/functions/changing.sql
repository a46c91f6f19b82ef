-- Changing chains from outside: trigger, set_priority, retry, cancel, delete. Locks: work items by chain, in-flight rows
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
        RETURNING l.type_name, l.priority, l.id, least(l.scheduled_at, v_now) AS scheduled_at, l.lane
    ), moved AS (
        INSERT INTO {ready} (type_name, priority, scheduled_at, id)
        SELECT e.type_name, e.priority, e.scheduled_at, e.id FROM early AS e WHERE e.lane IS NULL
    ), joined AS (
        INSERT INTO {line} (lane, priority, scheduled_at, id, type_name)
        SELECT e.lane, e.priority, e.scheduled_at, e.id, e.type_name FROM early AS e WHERE e.lane IS NOT NULL
    )
    UPDATE {job} AS j SET scheduled_at = e.scheduled_at FROM early AS e WHERE j.id = e.id;
    RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
END $body$;

-- Give blocked and pending jobs another priority; returns the ids of those that are not running. Rows
-- of `ready` are deleted and inserted, because the priority is part of their key. Primary keys.
CREATE OR REPLACE FUNCTION {set_priority}(p_ids text[], p_priority integer) RETURNS SETOF text LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_ids uuid[];
BEGIN
    PERFORM {lock_jobs}(p_ids::uuid[]);
    v_ids := array(
        SELECT j.id FROM {job} AS j WHERE j.id = ANY (p_ids::uuid[]) AND j.status IN ('blocked', 'pending')
            AND NOT EXISTS (SELECT FROM {running} AS r WHERE r.job_id = j.id)
    );
    WITH moved AS (
        DELETE FROM {ready} AS r USING {job} AS j
        WHERE j.id = ANY (v_ids) AND j.priority <> p_priority AND r.type_name = j.type_name AND r.priority = j.priority
            AND r.scheduled_at = j.scheduled_at AND r.id = j.id
        RETURNING r.type_name, r.scheduled_at, r.id
    )
    INSERT INTO {ready} (type_name, priority, scheduled_at, id) SELECT type_name, p_priority, scheduled_at, id FROM moved;
    WITH moved AS (
        DELETE FROM {line} AS e USING {job} AS j
        WHERE j.id = ANY (v_ids) AND j.priority <> p_priority AND e.lane = j.lane AND e.priority = j.priority
            AND e.scheduled_at = j.scheduled_at AND e.id = j.id
        RETURNING e.lane, e.scheduled_at, e.id, e.type_name
    )
    INSERT INTO {line} (lane, priority, scheduled_at, id, type_name) SELECT lane, p_priority, scheduled_at, id, type_name FROM moved;
    UPDATE {later} AS l SET priority = p_priority FROM {job} AS j
    WHERE j.id = ANY (v_ids) AND j.priority <> p_priority AND l.type_name = j.type_name AND l.scheduled_at = j.scheduled_at
        AND l.id = j.id;
    UPDATE {job} SET priority = p_priority WHERE id = ANY (v_ids) AND priority <> p_priority;
    RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
END $body$;

-- Give failed jobs new attempts; returns the ids of those that had failed. Locks jobs (primary
-- key).
CREATE OR REPLACE FUNCTION {retry}(p_ids text[], p_statistics boolean) RETURNS SETOF text LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_now timestamptz;
    v_ids uuid[];
BEGIN
    PERFORM FROM {job} WHERE id = ANY (p_ids::uuid[]) ORDER BY status = 'blocked', id FOR UPDATE;
    v_now := {clock};
    WITH revived AS (
        UPDATE {job} AS j SET status = 'pending', resting = NULL, attempt = 0, losses = 0, scheduled_at = v_now, completed_at = NULL,
            completed_by = NULL
        WHERE j.id = ANY (p_ids::uuid[]) AND j.status = 'failed'
        RETURNING j.id, j.type_name
    ), counted AS (
        INSERT INTO {tally} (at, type_name, what, number, since)
        SELECT v_now, revived.type_name, 'retried', count(*), '{}' FROM revived WHERE p_statistics GROUP BY revived.type_name
    )
    SELECT array_agg(id) INTO v_ids FROM revived;
    IF v_ids IS NOT NULL THEN
        PERFORM {enqueue}(v_ids, v_now);
        RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
    END IF;
END $body$;

-- The chains to cancel: the named ones and, with `p_cascade`, those that have a blocked job behind
-- one of them, and so on. OFFSET 0 keeps the planner to the written order: from a chain to the edges
-- that lead to it (index blocker_chain), from an edge to its job (primary key). Locks nothing.
CREATE OR REPLACE FUNCTION {cancel_set}(p_ids text[], p_cascade boolean) RETURNS uuid[] LANGUAGE plpgsql AS $body$
BEGIN
    RETURN array(
        WITH RECURSIVE wanted AS (
            -- <= 0: with "= 0" a plan made for small tables would walk the whole index of first
            -- jobs for one id.
            SELECT j.id FROM unnest(p_ids::uuid[]) AS asked (id) JOIN {job} AS j ON j.id = asked.id AND j.chain_index <= 0
            UNION
            SELECT above.chain_id FROM wanted
            CROSS JOIN LATERAL (SELECT b.job_id FROM {blocker} AS b WHERE b.chain_id = wanted.id OFFSET 0) AS edge
            CROSS JOIN LATERAL (SELECT j.chain_id, j.status FROM {job} AS j WHERE j.id = edge.job_id OFFSET 0) AS above
            WHERE p_cascade AND above.status = 'blocked'
        )
        SELECT id FROM wanted ORDER BY id
    );
END $body$;

-- Whether a failed job holds its lane. That lane is closed, unless the job waited in line and was
-- failed by hand: then the next claim closes it, and until then its turn is looked for among those
-- of the limit. Primary keys.
CREATE OR REPLACE FUNCTION {stops_lane}(p_id uuid, p_lane text) RETURNS boolean LANGUAGE plpgsql STABLE AS $body$
DECLARE
    v_name text := split_part(p_lane, E'\x1f', 1);
BEGIN
    RETURN EXISTS (
        SELECT FROM {lane} AS l
        CROSS JOIN LATERAL {own_rule}({limit_rule}(v_name), true, p_lane) AS own
        CROSS JOIN LATERAL {lane_holder}(
            p_lane, CASE WHEN l.open THEN (SELECT t.holder FROM {turn} AS t WHERE t.name = v_name AND t.lane = p_lane) ELSE l.holder END
        ) AS h
        WHERE l.lane = p_lane AND (own.rule ->> 'ordered')::boolean AND h.id = p_id
    );
END $body$;

-- Cancel chains that have not ended, and failed ones that hold an ordered lane. Returns rows of kind
-- 'missing' (an id that no chain has), and then nothing is changed; or the chains that were
-- cancelled, as they are now, with the kind 'running' or 'waiting': what their current job was.
-- Primary keys, job_chain, blocker_chain.
CREATE OR REPLACE FUNCTION {cancel_chains}(p_ids text[], p_cascade boolean, p_statistics boolean)
RETURNS TABLE (kind text, chain text, {chain_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_chains uuid[];
    v_jobs uuid[];
    v_missed uuid;
    v_open uuid[];
    v_running uuid[];
    v_waiting uuid[];
    v_now timestamptz;
BEGIN
    -- The whole set is found first, and its current jobs are locked at once. If it is another one by
    -- then, because a job was freed or a chain moved on, all locks are released and taken again.
    LOOP
        BEGIN
            v_chains := {cancel_set}(p_ids, p_cascade);
            v_jobs := {current_jobs}(v_chains);
            v_missed := {try_lock}(v_jobs);
            EXIT WHEN v_missed IS NULL AND {cancel_set}(p_ids, p_cascade) = v_chains AND {current_jobs}(v_chains) = v_jobs;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            PERFORM {wait_for}(v_missed);
        END;
    END LOOP;
    -- No edge to these chains can be added now: adding one updates the current job of the chain.
    RETURN QUERY
    SELECT 'missing', asked.id, {no_chain_columns} FROM unnest(p_ids) AS asked (id)
    WHERE NOT EXISTS (SELECT FROM {job} AS j WHERE j.id = asked.id::uuid AND j.chain_index <= 0 OFFSET 0);
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT array_agg(j.id), array_agg(j.chain_id) FILTER (WHERE r.job_id IS NOT NULL),
        array_agg(j.chain_id) FILTER (WHERE r.job_id IS NULL)
    INTO v_open, v_running, v_waiting
    FROM unnest(v_jobs) AS asked (id)
    JOIN {job} AS j ON j.id = asked.id
        AND (j.status IN ('blocked', 'pending') OR (j.status = 'failed' AND j.lane IS NOT NULL AND {stops_lane}(j.id, j.lane)))
    LEFT JOIN {running} AS r ON r.job_id = j.id;
    IF v_open IS NULL THEN
        RETURN;
    END IF;
    v_now := {clock};
    WITH ended AS (
        UPDATE {job} AS j SET
            status = 'cancelled',
            resting = 'cancelled',
            completed_at = v_now,
            completed_by = NULL,
            attempt = j.attempt + (r.job_id IS NOT NULL)::integer,
            last_attempt_at = coalesce(r.started_at, j.last_attempt_at)
        FROM unnest(v_open) AS asked (id) LEFT JOIN {running} AS r ON r.job_id = asked.id
        WHERE j.id = asked.id
        RETURNING j.type_name, r.started_at
    )
    INSERT INTO {tally} (at, type_name, what, number, since)
    SELECT v_now, e.type_name, 'cancelled', count(*),
        coalesce(array_agg(e.started_at) FILTER (WHERE e.started_at IS NOT NULL), '{}')
    FROM ended AS e WHERE p_statistics GROUP BY e.type_name;
    PERFORM {dequeue}(v_open);
    RETURN QUERY SELECT 'running', NULL::text, chains.* FROM {read_chains}(v_running::text[]) AS chains;
    RETURN QUERY SELECT 'waiting', NULL::text, chains.* FROM {read_chains}(v_waiting::text[]) AS chains;
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
CREATE OR REPLACE FUNCTION {delete_chains}(p_ids text[], p_cascade boolean, p_statistics boolean)
RETURNS TABLE (kind text, chain text, job text, {chain_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_chains uuid[];
    v_jobs uuid[];
    v_again uuid[];
    v_missed uuid;
    v_now timestamptz;
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
            v_missed := {try_lock}(v_jobs, v_chains);
            v_again := array(SELECT j.id FROM {job} AS j WHERE j.chain_id = ANY (v_chains) ORDER BY j.chain_id, j.chain_index);
            EXIT WHEN v_missed IS NULL AND v_again = v_jobs AND {deletion_set}(p_ids, p_cascade) = v_chains;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            PERFORM {wait_for}(v_missed);
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
    DELETE FROM {attempt} WHERE job_id = ANY (v_jobs);
    IF p_statistics THEN
        v_now := {clock};
        INSERT INTO {tally} (at, type_name, what, number, since)
        SELECT v_now, r.type_name, 'deleted', count(*), array_agg(r.started_at)
        FROM {running} AS r WHERE r.job_id = ANY (v_jobs) GROUP BY r.type_name;
    END IF;
    PERFORM {dequeue}(v_jobs);
    DELETE FROM {job} WHERE id = ANY (v_jobs);
END $body$;
