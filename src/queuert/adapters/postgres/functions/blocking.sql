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
    -- `done`: `unblock_more` may still be counting down the dependents that the chain had before.
    INSERT INTO {blocker} (job_id, position, chain_id, trace_context, done)
    SELECT edge.job_id, row_number() OVER (PARTITION BY edge.job_id ORDER BY edge.n), edge.chain_id, edge.trace,
        edge.within IS NULL AND last.status IS NOT DISTINCT FROM 'completed'
    FROM unnest(p_jobs, p_chains, p_within, p_traces) WITH ORDINALITY AS edge (job_id, chain_id, within, trace, n)
    LEFT JOIN LATERAL (
        SELECT c.status FROM {job} AS c WHERE c.chain_id = edge.chain_id ORDER BY c.chain_index DESC LIMIT 1
    ) AS last ON true;
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

-- Count down jobs, each by the number of its blockers that have completed. They are locked by id and
-- counted down by UPDATE, so two blockers that end at the same time both count. A job that is freed is
-- due now at the earliest: it does not overtake those that are ready.
CREATE OR REPLACE FUNCTION {count_down}(p_jobs uuid[], p_edges integer[], p_now timestamptz)
RETURNS TABLE (job_id uuid, type_name text, ready boolean) LANGUAGE plpgsql AS $body$
DECLARE
    v_freed uuid[];
BEGIN
    PERFORM FROM {job} AS j WHERE j.id = ANY (p_jobs) AND j.status = 'blocked' ORDER BY j.id FOR NO KEY UPDATE;
    WITH counted AS (
        UPDATE {job} AS j SET
            blockers_left = j.blockers_left - waiting.edges,
            status = CASE WHEN j.blockers_left <= waiting.edges THEN 'pending' ELSE 'blocked' END,
            resting = CASE WHEN j.blockers_left <= waiting.edges THEN NULL ELSE 'blocked' END,
            scheduled_at = CASE WHEN j.blockers_left <= waiting.edges THEN greatest(j.scheduled_at, p_now) ELSE j.scheduled_at END
        FROM unnest(p_jobs, p_edges) AS waiting (id, edges)
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

-- Release the dependents of chains that have just completed. The caller has locked their current
-- jobs, so no edge can be added now and this statement sees all of them (index blocker_chain).
CREATE OR REPLACE FUNCTION {unblock}(p_chains uuid[], p_now timestamptz)
RETURNS TABLE (job_id uuid, type_name text, ready boolean) LANGUAGE plpgsql AS $body$
DECLARE
    v_jobs uuid[];
    v_edges integer[];
BEGIN
    SELECT array_agg(waiting.id ORDER BY waiting.id), array_agg(waiting.edges ORDER BY waiting.id)
    INTO v_jobs, v_edges
    FROM (
        SELECT b.job_id AS id, count(*)::integer AS edges FROM {blocker} AS b
        WHERE b.chain_id = ANY (p_chains) GROUP BY b.job_id
    ) AS waiting;
    IF v_jobs IS NOT NULL THEN
        RETURN QUERY SELECT * FROM {count_down}(v_jobs, v_edges, p_now);
    END IF;
END $body$;

-- The same if there are many dependents: only the first `p_most` edges of `p_chains`, by chain and
-- job, and all edges of `p_all`. For each chain with edges left, a work item is stored, before the
-- dependents are locked (see `unblock_more`).
CREATE OR REPLACE FUNCTION {unblock_some}(p_chains uuid[], p_all uuid[], p_most integer, p_now timestamptz)
RETURNS TABLE (job_id uuid, type_name text, ready boolean) LANGUAGE plpgsql AS $body$
DECLARE
    v_left integer := p_most;
    v_chain uuid;
    v_some uuid[];
    v_all uuid[];
    v_jobs uuid[];
    v_edges integer[];
BEGIN
    v_all := array(SELECT b.job_id FROM {blocker} AS b WHERE b.chain_id = ANY (p_all));
    FOR v_chain IN SELECT DISTINCT asked FROM unnest(p_chains) AS asked ORDER BY asked LOOP
        v_some := array(SELECT b.job_id FROM {blocker} AS b WHERE b.chain_id = v_chain ORDER BY b.job_id LIMIT v_left + 1);
        IF cardinality(v_some) > v_left THEN
            INSERT INTO {unblocking} (chain_id, next_id) VALUES (v_chain, v_some[v_left + 1])
            ON CONFLICT (chain_id) DO UPDATE SET next_id = excluded.next_id;
            v_some := v_some[1:v_left];
        END IF;
        v_all := v_all || v_some;
        v_left := v_left - cardinality(v_some);
    END LOOP;
    SELECT array_agg(waiting.id ORDER BY waiting.id), array_agg(waiting.edges ORDER BY waiting.id)
    INTO v_jobs, v_edges
    FROM (SELECT edge AS id, count(*)::integer AS edges FROM unnest(v_all) AS edge GROUP BY edge) AS waiting;
    IF v_jobs IS NOT NULL THEN
        RETURN QUERY SELECT * FROM {count_down}(v_jobs, v_edges, p_now);
    END IF;
END $body$;

-- Take the next edges of a work item, at most `p_limit`. Returns the jobs that are free now, and at
-- last a row with the chain and `more`; no row if there is no item, or if others have locked all of them. Locks:
-- the item (locked ones are skipped), then dependents by id.
--
-- Jobs are not counted down here: their blockers are counted again, after the job is locked. A chain
-- that completes at the same time either has to wait for that lock, and is not completed for this
-- statement, or it has a work item with that job still to come. So each edge counts once, and what
-- an older version has stored or left frees nothing too early: an edge that was added after the
-- completion, or the item of a chain that was deleted.
CREATE OR REPLACE FUNCTION {unblock_more}(p_limit integer)
RETURNS TABLE (id text, type_name text, ready boolean, more boolean) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_chain uuid;
    v_next uuid;
    v_jobs uuid[];
    v_freed uuid[];
BEGIN
    SELECT u.chain_id, u.next_id INTO v_chain, v_next FROM {unblocking} AS u
    ORDER BY u.chain_id LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_jobs := array(
        SELECT b.job_id FROM {blocker} AS b WHERE b.chain_id = v_chain AND b.job_id >= v_next AND b.done IS NOT TRUE
        ORDER BY b.job_id LIMIT p_limit + 1
    );
    IF cardinality(v_jobs) > p_limit THEN
        UPDATE {unblocking} AS u SET next_id = v_jobs[p_limit + 1] WHERE u.chain_id = v_chain;
        v_jobs := v_jobs[1:p_limit];
    ELSE
        DELETE FROM {unblocking} AS u WHERE u.chain_id = v_chain;
    END IF;
    PERFORM FROM {job} AS j WHERE j.id = ANY (v_jobs) AND j.status = 'blocked' ORDER BY j.id FOR NO KEY UPDATE;
    v_now := {clock};
    WITH counted AS (
        UPDATE {job} AS j SET
            blockers_left = waiting.edges,
            status = CASE WHEN waiting.edges = 0 THEN 'pending' ELSE 'blocked' END,
            resting = CASE WHEN waiting.edges > 0 THEN 'blocked' END,
            scheduled_at = CASE WHEN waiting.edges = 0 THEN greatest(j.scheduled_at, v_now) ELSE j.scheduled_at END
        FROM unnest(v_jobs) AS asked (id)
        CROSS JOIN LATERAL (
            SELECT count(*)::integer AS edges FROM {blocker} AS b
            CROSS JOIN LATERAL (
                SELECT c.status FROM {job} AS c WHERE c.chain_id = b.chain_id ORDER BY c.chain_index DESC LIMIT 1
            ) AS last
            WHERE b.job_id = asked.id AND b.done IS NOT TRUE AND (
                last.status <> 'completed'
                OR EXISTS (SELECT FROM {unblocking} AS u WHERE u.chain_id = b.chain_id AND u.next_id <= b.job_id)
            )
        ) AS waiting
        WHERE j.id = asked.id AND j.status = 'blocked'
        RETURNING j.id, j.status
    )
    SELECT array_agg(counted.id) INTO v_freed FROM counted WHERE counted.status = 'pending';
    IF v_freed IS NOT NULL THEN
        PERFORM {enqueue}(v_freed, v_now);
        RETURN QUERY SELECT j.id::text, j.type_name, j.scheduled_at <= v_now, NULL::boolean
        FROM {job} AS j WHERE j.id = ANY (v_freed) ORDER BY j.id;
    END IF;
    RETURN QUERY SELECT v_chain::text, NULL::text, NULL::boolean, EXISTS (SELECT FROM {unblocking});
END $body$;

-- The chains that a job waits or waited for, in their order, with their status now. Primary keys of
-- `blocker` and, only for pending jobs, of `running`; index job_chain. Locks nothing.
CREATE OR REPLACE FUNCTION {blockers_of}(p_job uuid)
RETURNS TABLE (place integer, chain_id text, chain_type text, status text, output text, trace_context text)
LANGUAGE sql STABLE AS $body$
    SELECT b.position, b.chain_id::text, j.chain_type,
        CASE WHEN j.status = 'pending' AND EXISTS (SELECT FROM {running} AS r WHERE r.job_id = j.id) THEN 'running' ELSE j.status END,
        j.output::text, b.trace_context
    FROM {blocker} AS b
    CROSS JOIN LATERAL (
        SELECT c.id, c.chain_type, c.status, c.output FROM {job} AS c
        WHERE c.chain_id = b.chain_id ORDER BY c.chain_index DESC LIMIT 1
    ) AS j
    WHERE b.job_id = p_job ORDER BY b.position
$body$;
