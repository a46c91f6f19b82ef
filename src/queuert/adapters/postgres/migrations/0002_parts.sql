-- Functions that several operations are made of. They are volatile, so each of their statements sees what was committed
-- before it, also in the middle of a call (under READ COMMITTED).
--
-- Sessions keep the plans of these statements, and the small tables go from empty to a million rows and back within minutes. A plan made
-- for an empty table would be a scan or a hash of the whole of it, kept until the next ANALYZE. So every function that is called
-- from outside says {steady}: one plan for ever, that finds each row by an index. What follows from it: never join an array to an
-- array, that would be a loop in a loop.

-- Lock the in-flight row of a job, wherever it is. False: it has none, because it is blocked, has ended or is gone.
CREATE FUNCTION {lock_in_flight}(p_id uuid) RETURNS boolean LANGUAGE plpgsql AS $body$
DECLARE
    v_job record;
BEGIN
    FOR v_look IN 1..1000 LOOP
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
    -- Whoever moves a job makes us wait, so this takes two or three looks. A job that is nowhere was not written by us.
    RAISE data_corrupted USING MESSAGE = format('job %s is pending, but neither ready, nor due later, nor running', p_id);
END $body$;

-- Lock jobs against everybody: their in-flight rows in id order, then the keys that `p_chains` hold, then the jobs, those that are not blocked first, in id order. A job that
-- had no in-flight row and has become pending by the time its own row is locked would break that order: then everything is
-- given back, by leaving the inner block with an error, and done again.
CREATE FUNCTION {lock_jobs}(p_ids uuid[], p_chains uuid[] DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_ids uuid[] := array(SELECT DISTINCT asked FROM unnest(p_ids) AS asked ORDER BY asked);
    v_id uuid;
    v_in_flight integer;
    v_pending integer;
BEGIN
    LOOP
        BEGIN
            v_in_flight := 0;
            FOREACH v_id IN ARRAY v_ids LOOP
                IF {lock_in_flight}(v_id) THEN
                    v_in_flight := v_in_flight + 1;
                END IF;
            END LOOP;
            IF cardinality(p_chains) > 0 THEN
                -- The empty string keeps it from walking through all keys in their order, to find a few without sorting them.
                PERFORM FROM {key} AS k WHERE k.chain_id = ANY (p_chains) ORDER BY k.chain_type || '', k.key FOR UPDATE;
            END IF;
            PERFORM FROM {job} WHERE id = ANY (v_ids) ORDER BY status = 'blocked', id FOR UPDATE;
            -- Those whose in-flight row we hold are pending and stay so: any other one is too many.
            SELECT count(*) INTO v_pending FROM {job} WHERE id = ANY (v_ids) AND status = 'pending';
            IF v_pending = v_in_flight THEN
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

-- Lock the current jobs of chains, and the jobs `p_also` with them, in the order of job rows. If a chain has moved on by
-- then, everything is given back and done again with its new current job.
CREATE FUNCTION {lock_current}(p_chains uuid[], p_also uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_ids uuid[];
    v_again uuid[];
BEGIN
    LOOP
        BEGIN
            v_ids := array(
                SELECT last.id FROM unnest(p_chains) WITH ORDINALITY AS asked (chain_id, n)
                CROSS JOIN LATERAL (
                    SELECT j.id FROM {job} AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
                ) AS last
                ORDER BY asked.n
            );
            PERFORM FROM {job} WHERE id = ANY (v_ids || p_also) ORDER BY status = 'blocked', id FOR NO KEY UPDATE;
            v_again := array(
                SELECT last.id FROM unnest(p_chains) WITH ORDINALITY AS asked (chain_id, n)
                CROSS JOIN LATERAL (
                    SELECT j.id FROM {job} AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
                ) AS last
                ORDER BY asked.n
            );
            IF v_again = v_ids THEN
                RETURN;
            END IF;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            NULL;
        END;
    END LOOP;
END $body$;

-- What is wrong with edges (NULL: nothing); the current jobs of the chains are locked by the caller. `p_own` are the chains that the
-- edges' own jobs belong to, `p_new_types` the types of chains that the same call begins (NULL: the chain must be stored).
CREATE FUNCTION {check_edges}(p_jobs uuid[], p_own uuid[], p_chains uuid[], p_types text[], p_new_types text[])
RETURNS jsonb LANGUAGE plpgsql AS $body$
DECLARE
    v_problem jsonb;
BEGIN
    SELECT CASE
        WHEN coalesce(edge.new_type, j.type_name) IS NULL THEN
            jsonb_build_object('problem', 'blocker_not_found', 'job_id', edge.job_id, 'chain_id', edge.chain_id)
        ELSE
            jsonb_build_object('problem', 'blocker_type', 'chain_id', edge.chain_id, 'expected', edge.type_name,
                'actual', coalesce(edge.new_type, j.type_name))
        END
    INTO v_problem
    FROM unnest(p_jobs, p_own, p_chains, p_types, p_new_types) WITH ORDINALITY
        AS edge (job_id, own, chain_id, type_name, new_type, n)
    LEFT JOIN {job} AS j ON j.id = edge.chain_id AND {is_first} AND edge.chain_id <> edge.own
    WHERE coalesce(edge.new_type, j.type_name) IS DISTINCT FROM edge.type_name
    ORDER BY edge.n
    LIMIT 1;
    RETURN v_problem;
END $body$;

-- For each of `p_number` new jobs: how many edges it has, to how many chains that are not completed, and how many edges of the same
-- call point at it. `p_places` are the positions of the jobs that the edges start from, `p_within` those of the jobs that the
-- chain will come to by this very call (NULL: it stays where it is). By position, not by id: joining arrays to arrays takes the square.
CREATE FUNCTION {count_edges}(
    p_places integer[], p_chains uuid[], p_within integer[], p_number integer,
    OUT o_edges integer[], OUT o_waiting integer[], OUT o_dependents integer[]
) LANGUAGE plpgsql AS $body$
DECLARE
    v_job record;
    v_place integer;
BEGIN
    o_edges := array_fill(0, ARRAY[p_number]);
    o_waiting := o_edges;
    o_dependents := o_edges;
    FOR v_job IN
        SELECT edge.place, count(*)::integer AS edges,
            (count(*) FILTER (WHERE edge.within IS NOT NULL OR last.status IS DISTINCT FROM 'completed'))::integer AS waiting
        FROM unnest(p_places, p_chains, p_within) AS edge (place, chain_id, within)
        LEFT JOIN LATERAL (
            SELECT j.status FROM {job} AS j WHERE j.chain_id = edge.chain_id ORDER BY j.chain_index DESC LIMIT 1
        ) AS last ON true
        GROUP BY edge.place
    LOOP
        o_edges[v_job.place] := v_job.edges;
        o_waiting[v_job.place] := v_job.waiting;
    END LOOP;
    FOREACH v_place IN ARRAY p_within LOOP
        IF v_place IS NOT NULL THEN
            o_dependents[v_place] := o_dependents[v_place] + 1;
        END IF;
    END LOOP;
END $body$;

-- Store edges whose chains are locked. The chains' current jobs count them; they are updated, not only locked: a completer with an
-- older snapshot must fail rather than overlook the new edge.
CREATE FUNCTION {add_edges}(p_jobs uuid[], p_chains uuid[], p_within integer[], p_traces text[])
RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO {blocker} (job_id, position, chain_id, trace_context)
    SELECT edge.job_id, row_number() OVER (PARTITION BY edge.job_id ORDER BY edge.n), edge.chain_id, edge.trace
    FROM unnest(p_jobs, p_chains, p_traces) WITH ORDINALITY AS edge (job_id, chain_id, trace, n);
    UPDATE {job} AS j SET dependents = j.dependents + added.edges
    FROM (
        SELECT last.id, count(*) AS edges
        FROM unnest(p_chains, p_within) AS edge (chain_id, within)
        CROSS JOIN LATERAL (
            SELECT c.id FROM {job} AS c WHERE c.chain_id = edge.chain_id ORDER BY c.chain_index DESC LIMIT 1
        ) AS last
        WHERE edge.within IS NULL
        GROUP BY last.id
    ) AS added
    WHERE j.id = added.id;
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

-- Jobs as they are now, in the order of their ids' array. Volatile, like all of this: it also sees what the same statement has
-- changed before.
CREATE FUNCTION {read_jobs}(p_ids text[]) RETURNS TABLE ({job_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT {job_columns} FROM unnest(p_ids::uuid[]) WITH ORDINALITY AS asked (job_id, n)
    JOIN {job} AS j ON j.id = asked.job_id LEFT JOIN {running} AS r ON r.job_id = j.id
    ORDER BY asked.n;
END $body$;

-- Chains as they are now: their first and their current jobs.
CREATE FUNCTION {read_chains}(p_ids text[]) RETURNS TABLE ({chain_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY {chains_query};
END $body$;

-- Seconds until the next pending job of these types is due: 0 if one is ready. One step into each small table's key for each type.
CREATE FUNCTION {next_available_in}(p_types text[]) RETURNS double precision LANGUAGE plpgsql {steady} AS $body$
BEGIN
    RETURN (
        SELECT min(greatest(0, extract(epoch FROM due.scheduled_at - {clock})))::double precision
        FROM unnest(p_types) AS asked (type_name)
        CROSS JOIN LATERAL (
            (SELECT r.scheduled_at FROM {ready} AS r WHERE r.type_name = asked.type_name
                ORDER BY r.priority, r.scheduled_at, r.id LIMIT 1)
            UNION ALL
            (SELECT l.scheduled_at FROM {later} AS l WHERE l.type_name = asked.type_name ORDER BY l.scheduled_at, l.id LIMIT 1)
        ) AS due
    );
END $body$;
