-- Functions that several operations are made of. They are volatile, so each of their statements sees what was committed
-- before it, also in the middle of a call (under READ COMMITTED).

-- Lock the in-flight row of a job, wherever it is. False: it has none, because it is blocked, has ended or is gone.
CREATE FUNCTION {lock_in_flight}(p_id uuid) RETURNS boolean LANGUAGE plpgsql AS $body$
DECLARE
    v_job record;
BEGIN
    LOOP
        SELECT type_name, priority, scheduled_at, status INTO v_job FROM {job} WHERE id = p_id;
        IF NOT FOUND OR v_job.status <> 'pending' THEN
            RETURN false;
        END IF;
        PERFORM FROM {running} WHERE job_id = p_id FOR UPDATE;
        IF FOUND THEN
            RETURN true;
        END IF;
        PERFORM FROM {ready} WHERE type_name = v_job.type_name AND priority = v_job.priority
            AND scheduled_at = v_job.scheduled_at AND id = p_id FOR UPDATE;
        IF FOUND THEN
            RETURN true;
        END IF;
        PERFORM FROM {later} WHERE type_name = v_job.type_name AND scheduled_at = v_job.scheduled_at
            AND id = p_id FOR UPDATE;
        IF FOUND THEN
            RETURN true;
        END IF;
        -- It has moved on between two of our looks. A snapshot that never changes will never show where to.
        IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            RAISE serialization_failure USING MESSAGE = 'could not serialize access due to concurrent update';
        END IF;
    END LOOP;
END $body$;

-- Lock jobs against everybody: their in-flight rows in id order, then the jobs in id order. A job that had no in-flight row
-- and has become pending by the time its own row is locked would break that order: then everything is given back, by
-- leaving the inner block with an error, and done again.
CREATE FUNCTION {lock_jobs}(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_id uuid;
    v_in_flight uuid[];
    v_moved boolean;
BEGIN
    LOOP
        BEGIN
            v_in_flight := '{}';
            FOR v_id IN SELECT DISTINCT asked FROM unnest(p_ids) AS asked ORDER BY asked LOOP
                IF {lock_in_flight}(v_id) THEN
                    v_in_flight := v_in_flight || v_id;
                END IF;
            END LOOP;
            PERFORM FROM {job} WHERE id = ANY (p_ids) ORDER BY id FOR UPDATE;
            SELECT bool_or(status = 'pending' AND id <> ALL (v_in_flight)) INTO v_moved
            FROM {job} WHERE id = ANY (p_ids);
            IF NOT coalesce(v_moved, false) THEN
                RETURN;
            END IF;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            NULL;
        END;
    END LOOP;
END $body$;

-- Take jobs out of flight; their rows are locked by the caller.
CREATE FUNCTION {land}(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    DELETE FROM {running} WHERE job_id = ANY (p_ids);
    DELETE FROM {ready} AS r USING {job} AS j
    WHERE j.id = ANY (p_ids) AND r.type_name = j.type_name AND r.priority = j.priority
        AND r.scheduled_at = j.scheduled_at AND r.id = j.id;
    DELETE FROM {later} AS l USING {job} AS j
    WHERE j.id = ANY (p_ids) AND l.type_name = j.type_name AND l.scheduled_at = j.scheduled_at AND l.id = j.id;
END $body$;

-- Put pending jobs into flight, as their time says.
CREATE FUNCTION {launch}(p_ids uuid[], p_now timestamptz) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO {ready} (type_name, priority, scheduled_at, id)
    SELECT type_name, priority, scheduled_at, id FROM {job} WHERE id = ANY (p_ids) AND scheduled_at <= p_now;
    INSERT INTO {later} (type_name, scheduled_at, id, priority)
    SELECT type_name, scheduled_at, id, priority FROM {job} WHERE id = ANY (p_ids) AND scheduled_at > p_now;
END $body$;

-- Lock the current jobs of chains, in id order, and follow those that moved on while they were waited for.
CREATE FUNCTION {lock_current}(p_chains uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_ids uuid[];
    v_locked uuid[] := '{}';
BEGIN
    LOOP
        SELECT array_agg(last.id) INTO v_ids
        FROM unnest(p_chains) AS asked (chain_id)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
        ) AS last
        WHERE last.id <> ALL (v_locked);
        IF v_ids IS NULL THEN
            RETURN;
        END IF;
        PERFORM FROM {job} WHERE id = ANY (v_ids) ORDER BY id FOR NO KEY UPDATE;
        v_locked := v_locked || v_ids;
    END LOOP;
END $body$;

-- What is wrong with edges to chains that are stored (NULL: nothing), after locking the current jobs of those chains.
-- `p_new` are chains that the same call creates, `p_jobs` the jobs that the edges start from, `p_own` those jobs' own chains.
CREATE FUNCTION {check_edges}(
    p_jobs uuid[], p_own uuid[], p_chains uuid[], p_types text[], p_new uuid[], p_new_types text[]
)
RETURNS jsonb LANGUAGE plpgsql AS $body$
DECLARE
    v_problem jsonb;
BEGIN
    PERFORM {lock_current}(array(SELECT DISTINCT asked FROM unnest(p_chains) AS asked WHERE asked <> ALL (p_new)));
    SELECT CASE
        WHEN found.type_name IS NULL THEN
            jsonb_build_object('problem', 'blocker_not_found', 'job_id', edge.job_id, 'chain_id', edge.chain_id)
        ELSE
            jsonb_build_object('problem', 'blocker_type', 'chain_id', edge.chain_id, 'expected', edge.type_name,
                'actual', found.type_name)
        END
    INTO v_problem
    FROM unnest(p_jobs, p_own, p_chains, p_types) WITH ORDINALITY AS edge (job_id, own, chain_id, type_name, n)
    LEFT JOIN LATERAL (
        SELECT j.type_name FROM {job} AS j
        WHERE j.id = edge.chain_id AND j.chain_index = 0 AND edge.chain_id <> edge.own AND edge.chain_id <> ALL (p_new)
        UNION ALL
        SELECT new.type_name FROM unnest(p_new, p_new_types) WITH ORDINALITY AS new (id, type_name, n)
        WHERE new.id = edge.chain_id
            AND new.n < (SELECT min(own.n) FROM unnest(p_new) WITH ORDINALITY AS own (id, n) WHERE own.id = edge.job_id)
    ) AS found ON true
    WHERE found.type_name IS DISTINCT FROM edge.type_name
    ORDER BY edge.n
    LIMIT 1;
    RETURN v_problem;
END $body$;

-- Free the dependents of chains that have just completed. The caller holds their current jobs, so no edge can be added now,
-- and this statement sees all that were. Counted down by UPDATE, in id order: two blockers that end at once both count.
CREATE FUNCTION {unblock}(p_chains uuid[], p_now timestamptz)
RETURNS TABLE (job_id uuid, type_name text, ready boolean) LANGUAGE plpgsql AS $body$
DECLARE
    v_jobs uuid[];
    v_edges integer[];
    v_freed uuid[];
BEGIN
    SELECT array_agg(waiting.id ORDER BY waiting.id), array_agg(waiting.edges ORDER BY waiting.id)
    INTO v_jobs, v_edges
    FROM (
        SELECT b.job_id AS id, count(*)::integer AS edges FROM {blocker} AS b
        WHERE b.chain_id = ANY (p_chains) GROUP BY b.job_id
    ) AS waiting;
    IF v_jobs IS NULL THEN
        RETURN;
    END IF;
    PERFORM FROM {job} AS j WHERE j.id = ANY (v_jobs) AND j.status = 'blocked' ORDER BY j.id FOR NO KEY UPDATE;
    WITH counted AS (
        UPDATE {job} AS j SET
            blockers_left = j.blockers_left - waiting.edges,
            status = CASE WHEN j.blockers_left <= waiting.edges THEN 'pending' ELSE 'blocked' END,
            resting = CASE WHEN j.blockers_left <= waiting.edges THEN NULL ELSE 'blocked' END
        FROM unnest(v_jobs, v_edges) AS waiting (id, edges)
        WHERE j.id = waiting.id AND j.status = 'blocked'
        RETURNING j.id, j.status
    )
    SELECT array_agg(id) INTO v_freed FROM counted WHERE status = 'pending';
    IF v_freed IS NULL THEN
        RETURN;
    END IF;
    PERFORM {launch}(v_freed, p_now);
    RETURN QUERY SELECT j.id, j.type_name, j.scheduled_at <= p_now FROM {job} AS j WHERE j.id = ANY (v_freed) ORDER BY j.id;
END $body$;

-- The chains that a job has as blockers, in the order they were named, as they are now.
CREATE FUNCTION {blockers_of}(p_job uuid)
RETURNS TABLE (place integer, chain_id text, chain_type text, status text, output text, trace_context text)
LANGUAGE sql STABLE AS $body$
    SELECT b.position, b.chain_id::text, j.chain_type, CASE WHEN r.job_id IS NULL THEN j.status ELSE 'running' END,
        j.output::text, b.trace_context
    FROM {blocker} AS b
    CROSS JOIN LATERAL (
        SELECT c.id, c.chain_type, c.status, c.output FROM {job} AS c
        WHERE c.chain_id = b.chain_id ORDER BY c.chain_index DESC LIMIT 1
    ) AS j
    LEFT JOIN {running} AS r ON r.job_id = j.id
    WHERE b.job_id = p_job ORDER BY b.position
$body$;
