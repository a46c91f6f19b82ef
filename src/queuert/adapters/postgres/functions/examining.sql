-- Comparing what must agree in the tables (`exam_…`), and repairing it (`put_right`).
--
-- The functions `exam_…` are stable: each call reads everything in the snapshot of the caller's
-- statement. They lock nothing, read at most `p_limit` rows of one table in the order of an index,
-- and stop after `p_seconds`, so that the snapshot does not get old. They return what is wrong, and
-- at last a row without a kind: the number of rows that were read, and the place to go on from. That
-- place is null at the end of the table. Places are JSON arrays, and come back as `p_after`.

-- Claims. Primary keys of `running` and `job`.
CREATE OR REPLACE FUNCTION {exam_running}(p_after text[], p_limit integer, p_seconds double precision)
RETURNS TABLE (kind text, id text, detail text, place text) LANGUAGE plpgsql STABLE {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_until timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
    v_row record;
    v_rows integer := 0;
    v_late boolean := false;
BEGIN
    FOR v_row IN
        SELECT r.job_id, r.type_name, j.id AS job, j.status, j.type_name AS job_type
        FROM (
            SELECT e.job_id, e.type_name FROM {running} AS e
            WHERE e.job_id > coalesce(p_after[1], '00000000-0000-0000-0000-000000000000')::uuid ORDER BY e.job_id LIMIT p_limit
        ) AS r
        LEFT JOIN {job} AS j ON j.id = r.job_id
    LOOP
        v_rows := v_rows + 1;
        IF v_row.job IS NULL OR v_row.status <> 'pending' THEN
            RETURN QUERY SELECT 'stray', v_row.job_id::text, format('in the running jobs, although it is %s', coalesce(v_row.status, 'not stored')),
                json_build_array('running')::text;
        ELSIF v_row.type_name <> v_row.job_type THEN
            RETURN QUERY SELECT 'misfiled', v_row.job_id::text, format('running as %s, but its type is %s', v_row.type_name, v_row.job_type),
                json_build_array('running')::text;
        END IF;
        v_late := clock_timestamp() > v_until;
        EXIT WHEN v_late;
    END LOOP;
    RETURN QUERY SELECT NULL, v_rows::text, NULL,
        CASE WHEN v_rows > 0 AND (v_late OR v_rows = p_limit) THEN json_build_array(v_row.job_id)::text END;
END $body$;

-- Jobs that are ready. Primary keys.
CREATE OR REPLACE FUNCTION {exam_ready}(p_after text[], p_limit integer, p_seconds double precision)
RETURNS TABLE (kind text, id text, detail text, place text) LANGUAGE plpgsql STABLE {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_until timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
    v_row record;
    v_rows integer := 0;
    v_late boolean := false;
BEGIN
    FOR v_row IN
        SELECT r.*, j.id AS job, j.status, n.job_id AS running,
            (j.type_name, j.priority, j.scheduled_at) IS DISTINCT FROM (r.type_name, r.priority, r.scheduled_at) AS differs
        FROM (
            SELECT e.type_name, e.priority, e.scheduled_at, e.id FROM {ready} AS e
            WHERE (e.type_name, e.priority, e.scheduled_at, e.id) > (
                coalesce(p_after[1], ''), coalesce(p_after[2]::integer, -2147483648), coalesce(p_after[3]::timestamptz, '-infinity'),
                coalesce(p_after[4], '00000000-0000-0000-0000-000000000000')::uuid
            )
            ORDER BY e.type_name, e.priority, e.scheduled_at, e.id LIMIT p_limit
        ) AS r
        LEFT JOIN {job} AS j ON j.id = r.id
        LEFT JOIN {running} AS n ON n.job_id = r.id
    LOOP
        v_rows := v_rows + 1;
        IF v_row.job IS NULL OR v_row.status <> 'pending' OR v_row.running IS NOT NULL THEN
            RETURN QUERY SELECT 'stray', v_row.id::text,
                format('in the ready jobs, although it is %s', CASE WHEN v_row.running IS NULL THEN coalesce(v_row.status, 'not stored') ELSE 'running' END),
                json_build_array('ready', v_row.type_name, v_row.priority, v_row.scheduled_at)::text;
        ELSIF v_row.differs THEN
            RETURN QUERY SELECT 'misfiled', v_row.id::text, 'in the ready jobs with another type, priority or time than its own',
                json_build_array('ready', v_row.type_name, v_row.priority, v_row.scheduled_at)::text;
        END IF;
        v_late := clock_timestamp() > v_until;
        EXIT WHEN v_late;
    END LOOP;
    RETURN QUERY SELECT NULL, v_rows::text, NULL, CASE WHEN v_rows > 0 AND (v_late OR v_rows = p_limit)
        THEN json_build_array(v_row.type_name, v_row.priority, v_row.scheduled_at, v_row.id)::text END;
END $body$;

-- Jobs that are not due yet, or were not when they were stored. Primary keys.
CREATE OR REPLACE FUNCTION {exam_later}(p_after text[], p_limit integer, p_seconds double precision)
RETURNS TABLE (kind text, id text, detail text, place text) LANGUAGE plpgsql STABLE {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_until timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
    v_row record;
    v_rows integer := 0;
    v_late boolean := false;
BEGIN
    FOR v_row IN
        SELECT l.*, j.id AS job, j.status,
            CASE WHEN n.job_id IS NOT NULL THEN 'running' WHEN r.id IS NOT NULL THEN 'ready' END AS elsewhere,
            (j.type_name, j.priority, j.scheduled_at) IS DISTINCT FROM (l.type_name, l.priority, l.scheduled_at) AS differs
        FROM (
            SELECT e.type_name, e.scheduled_at, e.id, e.priority FROM {later} AS e
            WHERE (e.type_name, e.scheduled_at, e.id) > (
                coalesce(p_after[1], ''), coalesce(p_after[2]::timestamptz, '-infinity'),
                coalesce(p_after[3], '00000000-0000-0000-0000-000000000000')::uuid
            )
            ORDER BY e.type_name, e.scheduled_at, e.id LIMIT p_limit
        ) AS l
        LEFT JOIN {job} AS j ON j.id = l.id
        LEFT JOIN {running} AS n ON n.job_id = l.id
        LEFT JOIN {ready} AS r ON r.type_name = j.type_name AND r.priority = j.priority AND r.scheduled_at = j.scheduled_at AND r.id = j.id
    LOOP
        v_rows := v_rows + 1;
        IF v_row.job IS NULL OR v_row.status <> 'pending' OR v_row.elsewhere IS NOT NULL THEN
            RETURN QUERY SELECT 'stray', v_row.id::text,
                format('in the later jobs, although it is %s', coalesce(v_row.elsewhere, v_row.status, 'not stored')),
                json_build_array('later', v_row.type_name, v_row.priority, v_row.scheduled_at)::text;
        ELSIF v_row.differs THEN
            RETURN QUERY SELECT 'misfiled', v_row.id::text, 'in the later jobs with another type, priority or time than its own',
                json_build_array('later', v_row.type_name, v_row.priority, v_row.scheduled_at)::text;
        END IF;
        v_late := clock_timestamp() > v_until;
        EXIT WHEN v_late;
    END LOOP;
    RETURN QUERY SELECT NULL, v_rows::text, NULL, CASE WHEN v_rows > 0 AND (v_late OR v_rows = p_limit)
        THEN json_build_array(v_row.type_name, v_row.scheduled_at, v_row.id)::text END;
END $body$;

-- What a blocked job waits for: edges to chains that are not completed, and to chains that do not
-- exist. `being_freed`: one of the chains has a work item (see `unblock_more`), so the count may be
-- behind. `forgotten`: a chain that is not completed, and whose current job knows of no dependents.
-- Primary keys of `blocker` and `unblocking`, index job_chain. Stable: it is used by the function
-- below, and after the lock of the job by `put_right`, in one statement each.
CREATE OR REPLACE FUNCTION {waits_for}(p_job uuid)
RETURNS TABLE (edges integer, waiting integer, missing uuid, being_freed boolean, forgotten uuid) LANGUAGE plpgsql STABLE AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT count(*)::integer,
        (count(*) FILTER (WHERE last.status IS DISTINCT FROM 'completed' AND b.done IS NOT TRUE))::integer,
        (array_agg(b.chain_id) FILTER (WHERE last.id IS NULL))[1],
        coalesce(bool_or(u.chain_id IS NOT NULL), false),
        (array_agg(last.id) FILTER (WHERE last.status <> 'completed' AND last.dependents = 0))[1]
    FROM {blocker} AS b
    LEFT JOIN LATERAL (
        SELECT c.id, c.status, c.dependents FROM {job} AS c WHERE c.chain_id = b.chain_id ORDER BY c.chain_index DESC LIMIT 1
    ) AS last ON true
    LEFT JOIN {unblocking} AS u ON u.chain_id = b.chain_id
    WHERE b.job_id = p_job;
END $body$;

-- Blocked jobs. Index job_resting, and the function above.
CREATE OR REPLACE FUNCTION {exam_blocked}(p_after text[], p_limit integer, p_seconds double precision)
RETURNS TABLE (kind text, id text, detail text, place text) LANGUAGE plpgsql STABLE {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_until timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
    v_row record;
    v_rows integer := 0;
    v_late boolean := false;
BEGIN
    -- With "resting = 'blocked'" a plan for a small table might walk the primary key.
    FOR v_row IN
        SELECT j.id, j.status, j.blockers_left, j.blocker_count, w.*
        FROM (
            SELECT c.id, c.status, c.blockers_left, c.blocker_count FROM {job} AS c
            WHERE (c.resting, c.id) > ('blocked', coalesce(p_after[1], '00000000-0000-0000-0000-000000000000')::uuid)
                AND c.resting IS NOT NULL AND c.resting <= 'blocked'
            ORDER BY c.resting, c.id LIMIT p_limit
        ) AS j
        CROSS JOIN LATERAL {waits_for}(j.id) AS w
    LOOP
        v_rows := v_rows + 1;
        IF v_row.status <> 'blocked' THEN
            RETURN QUERY SELECT 'mislabelled', v_row.id::text, format('listed as blocked, but it is %s', v_row.status), NULL;
        ELSE
            IF v_row.missing IS NOT NULL THEN
                RETURN QUERY SELECT 'blocker_missing', v_row.id::text, format('waits for chain %s, which is not stored', v_row.missing), NULL;
            END IF;
            IF v_row.blockers_left <> v_row.waiting AND NOT v_row.being_freed THEN
                RETURN QUERY SELECT 'miscounted', v_row.id::text, format('waits for %s chains, but counts %s', v_row.waiting, v_row.blockers_left), NULL;
            END IF;
            IF v_row.forgotten IS NOT NULL THEN
                RETURN QUERY SELECT 'forgotten', v_row.forgotten::text, format('does not know that job %s waits for its chain', v_row.id), NULL;
            END IF;
            IF v_row.blocker_count < v_row.edges THEN
                RETURN QUERY SELECT 'unread', v_row.id::text, format('has %s blockers, but counts %s', v_row.edges, v_row.blocker_count), NULL;
            END IF;
        END IF;
        v_late := clock_timestamp() > v_until;
        EXIT WHEN v_late;
    END LOOP;
    RETURN QUERY SELECT NULL, v_rows::text, NULL,
        CASE WHEN v_rows > 0 AND (v_late OR v_rows = p_limit) THEN json_build_array(v_row.id)::text END;
END $body$;

-- Deduplication keys. Primary keys.
CREATE OR REPLACE FUNCTION {exam_keys}(p_after text[], p_limit integer, p_seconds double precision)
RETURNS TABLE (kind text, id text, detail text, place text) LANGUAGE plpgsql STABLE {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_until timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
    v_row record;
    v_rows integer := 0;
    v_late boolean := false;
BEGIN
    FOR v_row IN
        SELECT k.*, j.id AS job, (j.chain_type, j.dedup_key) IS DISTINCT FROM (k.chain_type, k.key) AS differs
        FROM (
            SELECT e.chain_type, e.key, e.chain_id, e.ended IS NOT NULL AND e.window_chain = e.chain_id AS outlives FROM {key} AS e
            WHERE (e.chain_type, e.key) > (coalesce(p_after[1], ''), coalesce(p_after[2], ''))
            ORDER BY e.chain_type, e.key LIMIT p_limit
        ) AS k
        LEFT JOIN {job} AS j ON j.id = k.chain_id AND j.chain_index <= 0
    LOOP
        v_rows := v_rows + 1;
        IF v_row.job IS NULL AND v_row.outlives IS TRUE THEN
            NULL;  -- the chain was pruned, and the key still has to match
        ELSIF v_row.job IS NULL THEN
            RETURN QUERY SELECT 'stray_key', v_row.chain_id::text, format('key %L of %s', v_row.key, v_row.chain_type),
                json_build_array(v_row.chain_type, v_row.key)::text;
        ELSIF v_row.differs THEN
            RETURN QUERY SELECT 'wrong_key', v_row.chain_id::text, format('key %L of %s', v_row.key, v_row.chain_type), NULL;
        END IF;
        v_late := clock_timestamp() > v_until;
        EXIT WHEN v_late;
    END LOOP;
    RETURN QUERY SELECT NULL, v_rows::text, NULL,
        CASE WHEN v_rows > 0 AND (v_late OR v_rows = p_limit) THEN json_build_array(v_row.chain_type, v_row.key)::text END;
END $body$;

-- All edges. Primary keys.
CREATE OR REPLACE FUNCTION {exam_edges}(p_after text[], p_limit integer, p_seconds double precision)
RETURNS TABLE (kind text, id text, detail text, place text) LANGUAGE plpgsql STABLE {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_until timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
    v_row record;
    v_rows integer := 0;
    v_late boolean := false;
BEGIN
    FOR v_row IN
        SELECT b.*, j.id AS job, j.status, c.id AS chain
        FROM (
            SELECT e.job_id, e.position, e.chain_id FROM {blocker} AS e
            WHERE (e.job_id, e.position) > (coalesce(p_after[1], '00000000-0000-0000-0000-000000000000')::uuid, coalesce(p_after[2]::integer, -1))
            ORDER BY e.job_id, e.position LIMIT p_limit
        ) AS b
        LEFT JOIN {job} AS j ON j.id = b.job_id
        LEFT JOIN {job} AS c ON c.id = b.chain_id AND c.chain_index <= 0
    LOOP
        v_rows := v_rows + 1;
        IF v_row.job IS NULL THEN
            RETURN QUERY SELECT 'stray_edge', v_row.job_id::text, format('waits for chain %s', v_row.chain_id),
                json_build_array(v_row.position)::text;
        ELSIF v_row.chain IS NULL AND v_row.status IN ('pending', 'failed') THEN
            RETURN QUERY SELECT 'blocker_missing', v_row.job_id::text, format('needs the output of chain %s, which is not stored', v_row.chain_id), NULL;
        END IF;
        v_late := clock_timestamp() > v_until;
        EXIT WHEN v_late;
    END LOOP;
    RETURN QUERY SELECT NULL, v_rows::text, NULL,
        CASE WHEN v_rows > 0 AND (v_late OR v_rows = p_limit) THEN json_build_array(v_row.job_id, v_row.position)::text END;
END $body$;

-- All jobs. Primary keys, index job_chain. `dependents` that are too low do harm only up to the number
-- that is freed at once, so no more edges are counted.
CREATE OR REPLACE FUNCTION {exam_jobs}(p_after text[], p_limit integer, p_seconds double precision)
RETURNS TABLE (kind text, id text, detail text, place text) LANGUAGE plpgsql STABLE {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_until timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
    v_row record;
    v_rows integer := 0;
    v_late boolean := false;
    v_edges bigint;
BEGIN
    FOR v_row IN
        SELECT j.*, before.id AS before, before.continued_to AS before_to, before.status AS before_status,
            following.id AS following, first.type_name AS first_type
        FROM (
            SELECT c.id, c.type_name, c.priority, c.scheduled_at, c.status, c.resting, c.chain_id, c.chain_type, c.chain_index, c.continued_to,
                c.blocker_count, c.dependents, c.lane
            FROM {job} AS c WHERE c.id > coalesce(p_after[1], '00000000-0000-0000-0000-000000000000')::uuid ORDER BY c.id LIMIT p_limit
        ) AS j
        LEFT JOIN {job} AS first ON first.id = j.chain_id AND first.chain_index <= 0
        LEFT JOIN {job} AS before ON before.chain_id = j.chain_id AND before.chain_index = j.chain_index - 1
        LEFT JOIN {job} AS following ON following.chain_id = j.chain_id AND following.chain_index = j.chain_index + 1
    LOOP
        v_rows := v_rows + 1;
        IF v_row.status = 'pending' AND NOT EXISTS (SELECT FROM {running} AS r WHERE r.job_id = v_row.id)
            AND NOT EXISTS (SELECT FROM {ready} AS r WHERE r.type_name = v_row.type_name AND r.priority = v_row.priority
                AND r.scheduled_at = v_row.scheduled_at AND r.id = v_row.id)
            AND NOT EXISTS (SELECT FROM {line} AS e WHERE e.lane = v_row.lane AND e.priority = v_row.priority
                AND e.scheduled_at = v_row.scheduled_at AND e.id = v_row.id)
            AND NOT EXISTS (SELECT FROM {later} AS l WHERE l.type_name = v_row.type_name
                AND l.scheduled_at = v_row.scheduled_at AND l.id = v_row.id)
        THEN
            RETURN QUERY SELECT 'not_queued', v_row.id::text, 'pending, but in no queue', NULL;
        END IF;
        IF v_row.resting IS DISTINCT FROM (CASE WHEN v_row.status IN ('blocked', 'failed', 'cancelled', 'expired') THEN v_row.status END)
            AND v_row.resting IS DISTINCT FROM 'blocked'
        THEN
            RETURN QUERY SELECT 'mislabelled', v_row.id::text, format('listed as %s, but it is %s', coalesce(v_row.resting, 'nothing'), v_row.status), NULL;
        END IF;
        IF v_row.first_type IS DISTINCT FROM v_row.chain_type OR (v_row.chain_index = 0) <> (v_row.id = v_row.chain_id)
            OR (v_row.chain_index > 0 AND (v_row.before IS NULL OR v_row.before_to IS DISTINCT FROM v_row.id OR v_row.before_status <> 'completed'))
            OR v_row.continued_to IS DISTINCT FROM v_row.following
        THEN
            RETURN QUERY SELECT 'broken_chain', v_row.id::text,
                format('number %s of chain %s does not fit to the jobs before and after it', v_row.chain_index, v_row.chain_id), NULL;
        END IF;
        IF v_row.status = 'pending' THEN
            SELECT count(*) INTO v_edges FROM (
                SELECT FROM {blocker} AS b WHERE b.job_id = v_row.id LIMIT v_row.blocker_count + 1
            ) AS edge;
            IF v_edges > v_row.blocker_count THEN
                RETURN QUERY SELECT 'unread', v_row.id::text, format('has blockers, but counts only %s', v_row.blocker_count), NULL;
            END IF;
        END IF;
        IF v_row.status <> 'completed' AND v_row.dependents <= 1000 THEN
            SELECT count(*) INTO v_edges FROM (
                SELECT FROM {blocker} AS b WHERE b.chain_id = v_row.chain_id LIMIT v_row.dependents + 1
            ) AS edge;
            IF v_edges > v_row.dependents THEN
                RETURN QUERY SELECT 'forgotten', v_row.id::text, format('counts only %s jobs that wait for its chain', v_row.dependents), NULL;
            END IF;
        END IF;
        v_late := clock_timestamp() > v_until;
        EXIT WHEN v_late;
    END LOOP;
    RETURN QUERY SELECT NULL, v_rows::text, NULL,
        CASE WHEN v_rows > 0 AND (v_late OR v_rows = p_limit) THEN json_build_array(v_row.id)::text END;
END $body$;

-- Jobs that wait in a lane. Primary keys.
CREATE OR REPLACE FUNCTION {exam_line}(p_after text[], p_limit integer, p_seconds double precision)
RETURNS TABLE (kind text, id text, detail text, place text) LANGUAGE plpgsql STABLE {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_until timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
    v_row record;
    v_rows integer := 0;
    v_late boolean := false;
BEGIN
    FOR v_row IN
        SELECT e.*, j.status, n.job_id AS running, (j.lane, j.priority, j.scheduled_at) IS DISTINCT FROM (e.lane, e.priority, e.scheduled_at) AS differs
        FROM (
            SELECT w.* FROM {line} AS w
            WHERE (w.lane, w.priority, w.scheduled_at, w.id) > (
                coalesce(p_after[1], ''), coalesce(p_after[2]::integer, -2147483648), coalesce(p_after[3]::timestamptz, '-infinity'),
                coalesce(p_after[4], '00000000-0000-0000-0000-000000000000')::uuid
            )
            ORDER BY w.lane, w.priority, w.scheduled_at, w.id LIMIT p_limit
        ) AS e
        LEFT JOIN {job} AS j ON j.id = e.id
        LEFT JOIN {running} AS n ON n.job_id = e.id
    LOOP
        v_rows := v_rows + 1;
        IF v_row.status IS DISTINCT FROM 'pending' OR v_row.running IS NOT NULL OR v_row.differs THEN
            RETURN QUERY SELECT 'stray', v_row.id::text,
                format('in a lane, although it is %s', CASE WHEN v_row.running IS NULL THEN coalesce(v_row.status, 'not stored') ELSE 'running' END),
                json_build_array('line', v_row.lane, v_row.priority, v_row.scheduled_at)::text;
        END IF;
        v_late := clock_timestamp() > v_until;
        EXIT WHEN v_late;
    END LOOP;
    RETURN QUERY SELECT NULL, v_rows::text, NULL, CASE WHEN v_rows > 0 AND (v_late OR v_rows = p_limit)
        THEN json_build_array(v_row.lane, v_row.priority, v_row.scheduled_at, v_row.id)::text END;
END $body$;

-- Lanes: the number of running jobs that claims know of is that of the rows in `running`, and of the
-- claims that have ended since. Primary keys; reads `running` and `turn` once.
CREATE OR REPLACE FUNCTION {exam_lanes}(p_after text[], p_limit integer, p_seconds double precision)
RETURNS TABLE (kind text, id text, detail text, place text) LANGUAGE plpgsql STABLE {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_until timestamptz := clock_timestamp() + make_interval(secs => p_seconds);
    v_row record;
    v_rows integer := 0;
    v_late boolean := false;
BEGIN
    FOR v_row IN
        WITH held AS MATERIALIZED (SELECT r.lane COLLATE "C" AS lane, count(*) AS number FROM {running} AS r WHERE r.lane IS NOT NULL GROUP BY r.lane)
        SELECT l.lane, l.running, coalesce((SELECT h.number FROM held AS h WHERE h.lane = l.lane), 0)
            + (SELECT count(*) FROM {news} AS n WHERE n.lane = l.lane AND n.kind < 0) AS counted
        FROM (
            SELECT e.lane, e.running FROM (
                SELECT a.lane, a.running FROM {lane} AS a WHERE a.lane > coalesce(p_after[1], '') AND NOT a.open
                UNION ALL
                SELECT t.lane, t.running FROM {turn} AS t WHERE t.lane > coalesce(p_after[1], '')
            ) AS e ORDER BY e.lane LIMIT p_limit
        ) AS l
    LOOP
        v_rows := v_rows + 1;
        IF v_row.running <> v_row.counted THEN
            RETURN QUERY SELECT 'miscounted_lane', '00000000-0000-0000-0000-000000000000',
                format('key %s counts %s running jobs, and there are %s', replace(v_row.lane, E'\x1f', ' / '), v_row.running, v_row.counted),
                json_build_array(v_row.lane)::text;
        END IF;
        v_late := clock_timestamp() > v_until;
        EXIT WHEN v_late;
    END LOOP;
    RETURN QUERY SELECT NULL, v_rows::text, NULL,
        CASE WHEN v_rows > 0 AND (v_late OR v_rows = p_limit) THEN json_build_array(v_row.lane)::text END;
END $body$;

-- Lock one row of an in-flight table: 'locked', 'busy' or 'gone'. Primary keys.
CREATE OR REPLACE FUNCTION {lock_place}(p_id uuid, p_place text[]) RETURNS text LANGUAGE plpgsql AS $body$
DECLARE
    v_there boolean;
BEGIN
    IF p_place[1] = 'running' THEN
        PERFORM FROM {running} WHERE job_id = p_id FOR UPDATE SKIP LOCKED;
        IF FOUND THEN RETURN 'locked'; END IF;
        v_there := EXISTS (SELECT FROM {running} WHERE job_id = p_id);
    ELSIF p_place[1] = 'ready' THEN
        PERFORM FROM {ready} WHERE type_name = p_place[2] AND priority = p_place[3]::integer
            AND scheduled_at = p_place[4]::timestamptz AND id = p_id FOR UPDATE SKIP LOCKED;
        IF FOUND THEN RETURN 'locked'; END IF;
        v_there := EXISTS (SELECT FROM {ready} WHERE type_name = p_place[2] AND priority = p_place[3]::integer
            AND scheduled_at = p_place[4]::timestamptz AND id = p_id);
    ELSIF p_place[1] = 'line' THEN
        PERFORM FROM {line} WHERE lane = p_place[2] AND priority = p_place[3]::integer
            AND scheduled_at = p_place[4]::timestamptz AND id = p_id FOR UPDATE SKIP LOCKED;
        IF FOUND THEN RETURN 'locked'; END IF;
        v_there := EXISTS (SELECT FROM {line} WHERE lane = p_place[2] AND priority = p_place[3]::integer
            AND scheduled_at = p_place[4]::timestamptz AND id = p_id);
    ELSE
        PERFORM FROM {later} WHERE type_name = p_place[2] AND scheduled_at = p_place[4]::timestamptz AND id = p_id FOR UPDATE SKIP LOCKED;
        IF FOUND THEN RETURN 'locked'; END IF;
        v_there := EXISTS (SELECT FROM {later} WHERE type_name = p_place[2] AND scheduled_at = p_place[4]::timestamptz AND id = p_id);
    END IF;
    RETURN CASE WHEN v_there THEN 'busy' ELSE 'gone' END;
END $body$;

-- Delete a key that no chain has, if that is still so. Locks the key, without waiting. Primary keys.
CREATE OR REPLACE FUNCTION {right_key}(p_chain uuid, p_type text, p_key text) RETURNS text LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM FROM {key} AS k WHERE k.chain_type = p_type AND k.key = p_key AND k.chain_id = p_chain FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (SELECT FROM {key} AS k WHERE k.chain_type = p_type AND k.key = p_key AND k.chain_id = p_chain)
            THEN 'busy' ELSE 'gone' END;
    END IF;
    DELETE FROM {key} AS k WHERE k.chain_type = p_type AND k.key = p_key AND k.chain_id = p_chain
        AND (k.ended IS NULL OR k.window_chain IS DISTINCT FROM k.chain_id)
        AND NOT EXISTS (SELECT FROM {job} AS j WHERE j.id = p_chain AND j.chain_index <= 0);
    RETURN CASE WHEN FOUND THEN 'repaired' ELSE 'gone' END;
END $body$;

-- Count the claims of a lane again, if the number is still wrong. Locks the one of its two rows that counts, without
-- waiting. Rows of `turn` are never updated. Primary keys of `turn` and `lane`, index news_lane; reads `running` once.
CREATE OR REPLACE FUNCTION {right_lane}(p_lane text) RETURNS text LANGUAGE plpgsql AS $body$
DECLARE
    v_rows bigint;
BEGIN
    PERFORM FROM {turn} AS t WHERE t.name = split_part(p_lane, E'\x1f', 1) AND t.lane = p_lane FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        PERFORM FROM {lane} AS l WHERE l.lane = p_lane AND NOT l.open FOR UPDATE SKIP LOCKED;
    END IF;
    IF NOT FOUND THEN
        RETURN CASE WHEN EXISTS (SELECT FROM {lane} AS l WHERE l.lane = p_lane) THEN 'busy' ELSE 'gone' END;
    END IF;
    WITH counted AS MATERIALIZED (
        SELECT (SELECT count(*) FROM {running} AS r WHERE r.lane = p_lane)
            + (SELECT count(*) FROM {news} AS n WHERE n.lane = p_lane AND n.kind < 0) AS number
    ), closed AS (
        UPDATE {lane} AS l SET running = counted.number FROM counted
        WHERE l.lane = p_lane AND NOT l.open AND l.running <> counted.number RETURNING 1
    ), taken AS (
        DELETE FROM {turn} AS t USING counted
        WHERE t.name = split_part(p_lane, E'\x1f', 1) AND t.lane = p_lane AND t.running <> counted.number RETURNING t.*
    ), opened AS (
        INSERT INTO {turn} (name, tag, lane, running, begun, begun_at, holder)
        SELECT t.name, t.tag, t.lane, counted.number, t.begun, t.begun_at, t.holder FROM taken AS t, counted RETURNING 1
    )
    SELECT count(*) INTO v_rows FROM (SELECT FROM closed UNION ALL SELECT FROM opened) AS changed;
    IF v_rows = 0 THEN
        RETURN 'gone';
    END IF;
    INSERT INTO {news} (lane, kind) VALUES (p_lane, 0);
    RETURN 'repaired';
END $body$;

-- Repair one thing, if it is still wrong: 'repaired', 'gone' (nothing is wrong any more) or 'busy'.
-- Locks, in the order of all operations: the in-flight row or the key, then the job. It waits for
-- none of them. Each look is one statement, after the locks: a claim moves a job between the in-flight
-- tables without a lock of the job.
CREATE OR REPLACE FUNCTION {put_right}(p_kind text, p_id text, p_place text[]) RETURNS text LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_id uuid := p_id::uuid;
    v_now timestamptz := {clock};
    v_job {job}%ROWTYPE;
    v_state text;
    v_waits record;
    v_wrong boolean;
BEGIN
    IF p_kind = 'stray_key' THEN
        RETURN {right_key}(v_id, p_place[1], p_place[2]);
    END IF;
    IF p_kind = 'miscounted_lane' THEN
        RETURN {right_lane}(p_place[1]);
    END IF;
    IF p_kind = 'stray_edge' THEN
        DELETE FROM {blocker} AS b WHERE b.job_id = v_id AND b.position = p_place[1]::integer
            AND NOT EXISTS (SELECT FROM {job} AS j WHERE j.id = v_id);
        RETURN CASE WHEN FOUND THEN 'repaired' ELSE 'gone' END;
    END IF;
    IF p_kind IN ('stray', 'misfiled') THEN
        v_state := {lock_place}(v_id, p_place);
        IF v_state <> 'locked' THEN
            RETURN v_state;
        END IF;
    END IF;
    SELECT * INTO v_job FROM {job} AS j WHERE j.id = v_id FOR UPDATE SKIP LOCKED;
    IF NOT FOUND AND EXISTS (SELECT FROM {job} AS j WHERE j.id = v_id) THEN
        RETURN 'busy';
    END IF;
    CASE p_kind
    WHEN 'stray' THEN
        IF v_job.status = 'pending' THEN
            SELECT CASE p_place[1]
                WHEN 'running' THEN false
                WHEN 'ready' THEN EXISTS (SELECT FROM {running} AS r WHERE r.job_id = v_id)
                WHEN 'line' THEN EXISTS (SELECT FROM {running} AS r WHERE r.job_id = v_id)
                    OR (v_job.lane, v_job.priority, v_job.scheduled_at) IS DISTINCT FROM (p_place[2], p_place[3]::integer, p_place[4]::timestamptz)
                ELSE EXISTS (SELECT FROM {running} AS r WHERE r.job_id = v_id) OR EXISTS (
                    SELECT FROM {ready} AS r WHERE r.type_name = v_job.type_name AND r.priority = v_job.priority
                        AND r.scheduled_at = v_job.scheduled_at AND r.id = v_id
                )
            END INTO v_wrong;
            IF NOT v_wrong THEN
                RETURN 'gone';
            END IF;
        END IF;
        IF p_place[1] = 'running' THEN
            DELETE FROM {running} AS r WHERE r.job_id = v_id;
        ELSIF p_place[1] = 'line' THEN
            DELETE FROM {line} AS e WHERE e.lane = p_place[2] AND e.priority = p_place[3]::integer
                AND e.scheduled_at = p_place[4]::timestamptz AND e.id = v_id;
        ELSIF p_place[1] = 'ready' THEN
            DELETE FROM {ready} AS r WHERE r.type_name = p_place[2] AND r.priority = p_place[3]::integer
                AND r.scheduled_at = p_place[4]::timestamptz AND r.id = v_id;
        ELSE
            DELETE FROM {later} AS l WHERE l.type_name = p_place[2] AND l.scheduled_at = p_place[4]::timestamptz AND l.id = v_id;
        END IF;
    WHEN 'misfiled' THEN
        IF v_job.status IS DISTINCT FROM 'pending' THEN
            RETURN 'gone';
        END IF;
        IF p_place[1] = 'running' THEN
            UPDATE {running} AS r SET type_name = v_job.type_name WHERE r.job_id = v_id AND r.type_name <> v_job.type_name;
            RETURN CASE WHEN FOUND THEN 'repaired' ELSE 'gone' END;
        END IF;
        IF (v_job.type_name, v_job.scheduled_at) = (p_place[2], p_place[4]::timestamptz) AND v_job.priority = p_place[3]::integer
            OR EXISTS (SELECT FROM {running} AS r WHERE r.job_id = v_id)
        THEN
            RETURN 'gone';
        END IF;
        IF p_place[1] = 'ready' THEN
            DELETE FROM {ready} AS r WHERE r.type_name = p_place[2] AND r.priority = p_place[3]::integer
                AND r.scheduled_at = p_place[4]::timestamptz AND r.id = v_id;
        ELSE
            DELETE FROM {later} AS l WHERE l.type_name = p_place[2] AND l.scheduled_at = p_place[4]::timestamptz AND l.id = v_id;
        END IF;
        -- It may have its right row as well.
        IF NOT EXISTS (SELECT FROM {ready} AS r WHERE r.type_name = v_job.type_name AND r.priority = v_job.priority
                AND r.scheduled_at = v_job.scheduled_at AND r.id = v_id)
            AND NOT EXISTS (SELECT FROM {line} AS e WHERE e.lane = v_job.lane AND e.priority = v_job.priority
                AND e.scheduled_at = v_job.scheduled_at AND e.id = v_id)
            AND NOT EXISTS (SELECT FROM {later} AS l WHERE l.type_name = v_job.type_name AND l.scheduled_at = v_job.scheduled_at AND l.id = v_id)
        THEN
            PERFORM {enqueue}(ARRAY[v_id], v_now);
        END IF;
    WHEN 'not_queued' THEN
        IF v_job.status IS DISTINCT FROM 'pending' OR EXISTS (SELECT FROM {running} AS r WHERE r.job_id = v_id)
            OR EXISTS (SELECT FROM {ready} AS r WHERE r.type_name = v_job.type_name AND r.priority = v_job.priority
                AND r.scheduled_at = v_job.scheduled_at AND r.id = v_id)
            OR EXISTS (SELECT FROM {line} AS e WHERE e.lane = v_job.lane AND e.priority = v_job.priority
                AND e.scheduled_at = v_job.scheduled_at AND e.id = v_id)
            OR EXISTS (SELECT FROM {later} AS l WHERE l.type_name = v_job.type_name AND l.scheduled_at = v_job.scheduled_at AND l.id = v_id)
        THEN
            RETURN 'gone';
        END IF;
        PERFORM {enqueue}(ARRAY[v_id], v_now);
    WHEN 'miscounted' THEN
        SELECT * INTO v_waits FROM {waits_for}(v_id);
        IF v_job.status IS DISTINCT FROM 'blocked' OR v_waits.being_freed OR v_waits.waiting = v_job.blockers_left THEN
            RETURN 'gone';
        END IF;
        UPDATE {job} AS j SET
            blockers_left = v_waits.waiting,
            status = CASE WHEN v_waits.waiting = 0 THEN 'pending' ELSE 'blocked' END,
            resting = CASE WHEN v_waits.waiting > 0 THEN 'blocked' END,
            scheduled_at = CASE WHEN v_waits.waiting = 0 THEN greatest(j.scheduled_at, v_now) ELSE j.scheduled_at END
        WHERE j.id = v_id;
        IF v_waits.waiting = 0 THEN
            PERFORM {enqueue}(ARRAY[v_id], v_now);
        END IF;
    WHEN 'forgotten' THEN
        -- New edges need the lock of this row, as long as it is the chain's current job.
        UPDATE {job} AS j SET dependents = edge.number
        FROM (SELECT count(*)::integer AS number FROM {blocker} AS b WHERE b.chain_id = v_job.chain_id) AS edge
        WHERE j.id = v_id AND j.status <> 'completed' AND j.dependents < edge.number;
        RETURN CASE WHEN FOUND THEN 'repaired' ELSE 'gone' END;
    WHEN 'unread' THEN
        UPDATE {job} AS j SET blocker_count = edge.number
        FROM (SELECT count(*)::integer AS number FROM {blocker} AS b WHERE b.job_id = v_id) AS edge
        WHERE j.id = v_id AND j.blocker_count < edge.number;
        RETURN CASE WHEN FOUND THEN 'repaired' ELSE 'gone' END;
    WHEN 'mislabelled' THEN
        UPDATE {job} AS j SET resting = label.status
        FROM (SELECT CASE WHEN v_job.status IN ('blocked', 'failed', 'cancelled', 'expired') THEN v_job.status END AS status) AS label
        WHERE j.id = v_id AND j.resting IS DISTINCT FROM label.status;
        RETURN CASE WHEN FOUND THEN 'repaired' ELSE 'gone' END;
    ELSE
        RETURN 'gone';
    END CASE;
    RETURN 'repaired';
END $body$;
