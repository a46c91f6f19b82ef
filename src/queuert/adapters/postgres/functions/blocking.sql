-- Edges: which chains a job waits for. The current job of a chain counts its dependents.

-- Returns the first problem with these edges, or NULL. The caller has locked the current jobs of
-- the chains. `p_own`: the chains that the edges' own jobs belong to. `p_new_types`: the types of
-- chains that the same call starts (NULL: the chain must be stored already). Looks up job's primary
-- key.
CREATE OR REPLACE FUNCTION {check_edges}(p_jobs uuid[], p_own uuid[], p_chains uuid[], p_types text[], p_new_types text[])
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
    -- <= 0: with "= 0" a plan made for small tables would walk the whole index of first jobs for
    -- one id.
    LEFT JOIN {job} AS j ON j.id = edge.chain_id AND j.chain_index <= 0 AND edge.chain_id <> edge.own
    WHERE coalesce(edge.new_type, j.type_name) IS DISTINCT FROM edge.type_name
    ORDER BY edge.n
    LIMIT 1;
    RETURN v_problem;
END $body$;

-- For each of `p_number` new jobs: its edges, how many of them lead to chains that are not
-- completed, and how many edges of the same call lead to it. `p_places`: the positions of the jobs
-- that the edges start from. `p_within`: the positions of the jobs that become the chains' current
-- ones by this call (NULL: no such job). By position, not by id: joining two arrays takes quadratic
-- time. Index job_chain.
CREATE OR REPLACE FUNCTION {count_edges}(
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

-- Store edges. The caller has locked the current jobs of the chains. Those jobs are updated, not
-- only locked: a completing transaction with an older snapshot must fail rather than miss the new
-- edge.
CREATE OR REPLACE FUNCTION {add_edges}(p_jobs uuid[], p_chains uuid[], p_within integer[], p_traces text[])
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

-- Release the dependents of chains that have just completed. The caller has locked their current
-- jobs, so no edge can be added now and this statement sees all of them (index blocker_chain).
-- Dependents are locked by id and counted down by UPDATE, so two blockers that end at the same time
-- both count.
CREATE OR REPLACE FUNCTION {unblock}(p_chains uuid[], p_now timestamptz)
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
    PERFORM {enqueue}(v_freed, p_now);
    RETURN QUERY SELECT j.id, j.type_name, j.scheduled_at <= p_now FROM {job} AS j WHERE j.id = ANY (v_freed) ORDER BY j.id;
END $body$;

-- The chains that a job waits or waited for, in their order, with their status now. Primary key of
-- `blocker`, index job_chain. Locks nothing.
CREATE OR REPLACE FUNCTION {blockers_of}(p_job uuid)
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
