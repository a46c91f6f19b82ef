-- Limits by key: how many jobs of a lane may begin, and whose turn it is. docs/design/limits.md
-- explains the tables. Only claims lock and write lanes, and they skip lanes that another claim has
-- locked. All others only add rows to `news`, `closing` and `limit_change`.

-- What holds for all lanes of a limit: the newest declaration that workers still have, and what was set at run time. An empty
-- object if the limit is unknown. Primary keys.
CREATE OR REPLACE FUNCTION {limit_rule}(p_name text) RETURNS jsonb LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN coalesce((
        SELECT d.rule::jsonb FROM {limit_declared} AS d WHERE d.name = p_name
        ORDER BY d.last_seen_at >= {clock} - make_interval(secs => {alive_for}) DESC, d.first_seen_at DESC, d.digest DESC LIMIT 1
    ), '{}') || coalesce((SELECT c.rule::jsonb FROM {limit_change} AS c WHERE c.lane = p_name), '{}');
END $body$;

-- What holds for one lane: `p_rule`, and what was set for the lane itself, if `p_keyed`; and the two
-- figures of its rate. Primary key.
CREATE OR REPLACE FUNCTION {own_rule}(p_rule jsonb, p_keyed boolean, p_lane text, OUT rule jsonb, OUT number integer, OUT per interval)
LANGUAGE plpgsql STABLE AS $body$
BEGIN
    rule := p_rule;
    IF p_keyed THEN
        rule := p_rule || coalesce((SELECT c.rule::jsonb FROM {limit_change} AS c WHERE c.lane = p_lane), '{}');
    END IF;
    IF jsonb_typeof(rule -> 'rate') = 'array' THEN
        number := rule -> 'rate' ->> 0;
        per := make_interval(secs => (rule -> 'rate' ->> 1)::double precision);
    END IF;
END $body$;

-- The weight of a lane by its rule. If that takes it from the jobs, that of the first one in line:
-- primary keys.
CREATE OR REPLACE FUNCTION {lane_weight}(p_lane text, p_rule jsonb) RETURNS double precision LANGUAGE plpgsql STABLE AS $body$
BEGIN
    IF jsonb_typeof(p_rule -> 'weight') = 'null' THEN
        RETURN coalesce((
            SELECT (SELECT j.weight FROM {job} AS j WHERE j.id = e.id) FROM {line} AS e WHERE e.lane = p_lane
            ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1
        ), 1);
    END IF;
    RETURN coalesce((p_rule ->> 'weight')::double precision, 1);
END $body$;

-- The job that holds an ordered lane, if there is one: `p_holder` has begun in it, and is not
-- completed, cancelled, expired or deleted; or it is a continuation of that job in the same lane.
-- Primary key.
CREATE OR REPLACE FUNCTION {lane_holder}(p_lane text, p_holder uuid, OUT id uuid) LANGUAGE plpgsql STABLE AS $body$
#variable_conflict use_variable
DECLARE
    v_job record;
BEGIN
    id := p_holder;
    WHILE id IS NOT NULL LOOP
        SELECT j.status, j.lane, j.continued_to INTO v_job FROM {job} AS j WHERE j.id = id;
        IF NOT FOUND OR v_job.lane IS DISTINCT FROM p_lane OR v_job.status IN ('cancelled', 'expired') THEN
            id := NULL;
        ELSIF v_job.status = 'completed' THEN
            id := v_job.continued_to;
        ELSE
            RETURN;
        END IF;
    END LOOP;
END $body$;

-- How many jobs of a lane may begin now, `p_most` at most. If none may, `opens_at` is when the next
-- one may, if that is known. `only_id`: the job that holds the lane, and no other one may begin.
-- `p_closed`: there are lanes that were closed or paused. Primary keys, closing_lane.
CREATE OR REPLACE FUNCTION {lane_room}(
    p_lane text, p_running integer, p_begun bigint, p_begun_at timestamptz, p_holder uuid, p_rule jsonb, p_most integer,
    p_closed boolean, p_now timestamptz, OUT room integer, OUT opens_at timestamptz, OUT only_id uuid
) LANGUAGE plpgsql AS $body$
DECLARE
    v_rate jsonb := p_rule -> 'rate';
    v_number integer;
    v_per interval;
    v_before bigint;
    v_recent bigint;
    v_first timestamptz;
    v_oldest record;
    v_unknown bigint;
BEGIN
    room := greatest(0, least(p_most, coalesce((p_rule ->> 'concurrency')::integer - p_running, p_most)));
    IF p_closed THEN
        opens_at := (SELECT max(c.until) FROM {closing} AS c WHERE c.lane = p_lane AND c.until > p_now);
        IF opens_at IS NULL THEN
            SELECT p.until INTO opens_at FROM {pause} AS p
            WHERE p.scope = 'key' AND p.name = p_lane AND (p.until IS NULL OR p.until > p_now);
            IF FOUND THEN
                room := 0;
            END IF;
        ELSE
            room := 0;
        END IF;
    END IF;
    IF room <= 0 THEN
        RETURN;
    END IF;
    IF p_holder IS NOT NULL AND (p_rule ->> 'ordered')::boolean THEN
        SELECT h.id INTO only_id FROM {lane_holder}(p_lane, p_holder) AS h;
        IF only_id IS NOT NULL AND NOT EXISTS (
            SELECT FROM {job} AS j
            JOIN {line} AS e ON e.lane = j.lane AND e.priority = j.priority AND e.scheduled_at = j.scheduled_at AND e.id = j.id
            WHERE j.id = only_id
        ) THEN
            room := 0;
        END IF;
    END IF;
    IF room <= 0 OR jsonb_typeof(v_rate) IS DISTINCT FROM 'array' THEN
        RETURN;
    END IF;
    v_number := v_rate ->> 0;
    v_per := make_interval(secs => (v_rate ->> 1)::double precision);
    IF (v_rate ->> 2)::boolean THEN
        opens_at := p_begun_at + v_per / v_number;
        IF opens_at > p_now THEN
            room := 0;
        ELSE
            room := 1;
            opens_at := NULL;
        END IF;
        RETURN;
    END IF;
    -- The begin number n may be followed by the begin number n + v_number when the time has passed.
    room := least(room, v_number);
    v_before := p_begun - v_number;
    IF v_before + room < 1 THEN
        RETURN;
    END IF;
    SELECT count(*), min(b.at) INTO v_recent, v_first
    FROM (SELECT e.at FROM {begun} AS e WHERE e.lane = p_lane AND e.seq > v_before AND e.seq <= v_before + room) AS b
    WHERE b.at >= p_now - v_per;
    -- Begins that are no longer known, because the rate was another one, count as the oldest that is.
    SELECT e.seq, e.at INTO v_oldest FROM {begun} AS e WHERE e.lane = p_lane ORDER BY e.seq LIMIT 1;
    v_unknown := least(v_oldest.seq - 1, v_before + room) - greatest(v_before, 0);
    IF v_unknown > 0 AND v_oldest.at >= p_now - v_per THEN
        v_recent := v_recent + v_unknown;
        v_first := v_oldest.at;
    END IF;
    room := greatest(0, room - v_recent);
    IF room <= 0 THEN
        opens_at := v_first + v_per + interval '1 microsecond';
    END IF;
END $body$;

-- Store what the code of a worker declares. If another declaration of a limit holds after that,
-- claims have to look at its lanes.
CREATE OR REPLACE FUNCTION {declare_limits}(
    p_types text[], p_names text[], p_digests text[], p_rules text[], p_limit_types text[], p_alive_for double precision
) RETURNS TABLE (name text, types text[]) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
    v_item record;
    v_before jsonb;
BEGIN
    FOR v_item IN
        SELECT d.* FROM unnest(p_names, p_digests, p_rules, p_limit_types) AS d (name, digest, rule, types) ORDER BY d.name, d.digest
    LOOP
        v_before := {limit_rule}(v_item.name);
        INSERT INTO {limit_declared} AS d (name, digest, rule, types, first_seen_at, last_seen_at)
        VALUES (v_item.name, v_item.digest, v_item.rule, ARRAY(SELECT json_array_elements_text(v_item.types::json)), v_now, v_now)
        ON CONFLICT (name, digest) DO UPDATE SET
            first_seen_at = CASE WHEN d.last_seen_at < v_now - make_interval(secs => p_alive_for) THEN v_now ELSE d.first_seen_at END,
            last_seen_at = v_now;
        IF {limit_rule}(v_item.name) <> v_before THEN
            INSERT INTO {news} (lane, kind) SELECT l.lane, 0 FROM {lane} AS l
            WHERE l.lane > v_item.name AND l.lane < v_item.name || ' ';
        END IF;
    END LOOP;
    RETURN QUERY
    SELECT d.name, ARRAY(SELECT DISTINCT t FROM {limit_declared} AS o, unnest(o.types) AS t WHERE o.name = d.name ORDER BY t)
    FROM {limit_declared} AS d GROUP BY d.name HAVING bool_or(d.types && p_types) ORDER BY d.name;
END $body$;

-- Change what holds for a lane, or for a limit (then `p_lane` is its name). Lanes are only announced:
-- none is locked.
CREATE OR REPLACE FUNCTION {change_limit}(p_lane text, p_name text, p_rule text) RETURNS void LANGUAGE plpgsql {steady} AS $body$
BEGIN
    INSERT INTO {limit_change} AS c (lane, name, rule) VALUES (p_lane, p_name, p_rule)
    ON CONFLICT (lane) DO UPDATE SET rule = (c.rule::jsonb || excluded.rule::jsonb)::text;
    INSERT INTO {news} (lane, kind) SELECT l.lane, 0 FROM {lane} AS l
    WHERE CASE WHEN p_lane = p_name THEN l.lane > p_name AND l.lane < p_name || ' ' ELSE l.lane = p_lane END;
END $body$;

-- Undo that. False: nothing was set.
CREATE OR REPLACE FUNCTION {clear_limit}(p_lane text, p_name text) RETURNS boolean LANGUAGE plpgsql {steady} AS $body$
BEGIN
    DELETE FROM {limit_change} WHERE lane = p_lane;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO {news} (lane, kind) SELECT l.lane, 0 FROM {lane} AS l
    WHERE CASE WHEN p_lane = p_name THEN l.lane > p_name AND l.lane < p_name || ' ' ELSE l.lane = p_lane END;
    RETURN true;
END $body$;

-- The next limit or lane after this text, in the order of `list_limits`. Primary keys.
CREATE OR REPLACE FUNCTION {next_limit}(p_after text) RETURNS text LANGUAGE plpgsql STABLE AS $body$
BEGIN
    RETURN (
        SELECT min(each.lane COLLATE "C") FROM (
            (SELECT d.name FROM {limit_declared} AS d WHERE d.name > p_after ORDER BY d.name LIMIT 1)
            UNION ALL
            (SELECT c.lane FROM {limit_change} AS c WHERE c.lane > p_after ORDER BY c.lane LIMIT 1)
            UNION ALL
            (SELECT l.lane FROM {lane} AS l WHERE l.lane > p_after ORDER BY l.lane LIMIT 1)
            UNION ALL
            (SELECT e.lane FROM {line} AS e WHERE e.lane > p_after ORDER BY e.lane LIMIT 1)
        ) AS each (lane)
    );
END $body$;

-- Limits and their lanes after this one, in their order, or exactly one of them; the name of a limit comes before its lanes.
-- Of each: what holds, whether it was set, how many jobs are running and waiting (`p_counted` at
-- most), when it opens, and the job that holds it. Locks nothing. Counts come from `running` and
-- `line` themselves, not from what claims remember. Primary keys; one look for each lane. Reads
-- `running` and `turn` once.
CREATE OR REPLACE FUNCTION {list_limits}(p_limit integer, p_after text, p_exactly text, p_counted integer)
RETURNS TABLE (lane text, rule text, is_set boolean, running bigint, waiting bigint, opens_at timestamptz, holder text, held_by text[])
LANGUAGE plpgsql STABLE {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
BEGIN
    RETURN QUERY
    WITH RECURSIVE held AS MATERIALIZED (
        SELECT r.lane COLLATE "C" AS lane, count(*) AS number, (array_agg(r.job_id::text ORDER BY r.started_at, r.job_id))[1:{named}] AS jobs FROM {running} AS r WHERE r.lane IS NOT NULL GROUP BY r.lane
    ), found (lane) AS (
        SELECT {next_limit}(p_after) WHERE p_exactly IS NULL
        UNION ALL
        SELECT {next_limit}(f.lane) FROM found AS f WHERE f.lane IS NOT NULL
    ), page AS MATERIALIZED (
        (SELECT f.lane FROM found AS f WHERE f.lane IS NOT NULL AND p_exactly IS NULL LIMIT p_limit)
        UNION ALL
        SELECT p_exactly WHERE p_exactly IS NOT NULL
    ), open AS MATERIALIZED (
        SELECT t.lane, t.begun, t.begun_at, t.holder FROM {turn} AS t
        WHERE (t.begun > 0 OR t.begun_at IS NOT NULL OR t.holder IS NOT NULL) AND t.lane = ANY (ARRAY(SELECT p.lane FROM page AS p))
    )
    SELECT p.lane, own.rule::text, EXISTS (SELECT FROM {limit_change} AS c WHERE c.lane = p.lane),
        CASE WHEN named.is_limit THEN (SELECT coalesce(sum(h.number), 0) FROM held AS h WHERE h.lane > p.lane AND h.lane < p.lane || ' ')
            ELSE coalesce((SELECT h.number FROM held AS h WHERE h.lane = p.lane), 0) END::bigint,
        (SELECT count(*) FROM (SELECT FROM {line} AS e WHERE e.lane = p.lane LIMIT p_counted) AS counted),
        r.opens_at, j.id::text, coalesce((SELECT h.jobs FROM held AS h WHERE h.lane = p.lane), '{}')
    FROM page AS p
    CROSS JOIN LATERAL (SELECT strpos(p.lane, E'\x1f') = 0 AS is_limit, split_part(p.lane, E'\x1f', 1) AS name) AS named
    CROSS JOIN LATERAL {own_rule}({limit_rule}(named.name), true, p.lane) AS own
    LEFT JOIN LATERAL (
        SELECT e.begun, e.begun_at, e.holder FROM {lane} AS e WHERE e.lane = p.lane AND NOT e.open
        UNION ALL
        SELECT o.begun, o.begun_at, o.holder FROM open AS o WHERE o.lane = p.lane
    ) AS l ON true
    CROSS JOIN LATERAL {lane_room}(
        p.lane, 0, coalesce(l.begun, 0), l.begun_at, NULL, own.rule, 1, true, v_now
    ) AS r
    LEFT JOIN LATERAL (SELECT h.id FROM {lane_holder}(p.lane, l.holder) AS h WHERE (own.rule ->> 'ordered')::boolean) AS j ON true;
END $body$;
