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

-- Write down what has become of lanes that this transaction has locked, and that have no row in
-- `turn`. `p_changes`: by how many running jobs more or less; begins are the positive ones.
-- `p_tags`: the turn of each; null: a new one, after the lane whose turn it is. A lane that may begin
-- a job gets its turn. One that a rate has closed gets a row in `reopen`. One that nothing is known
-- of any more is deleted.
CREATE OR REPLACE FUNCTION {place_lanes}(
    p_name text, p_rule jsonb, p_keyed boolean, p_closed boolean, p_lanes text[], p_changes integer[], p_tags double precision[],
    p_holders uuid[], p_now timestamptz
) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_rated boolean := p_keyed OR coalesce(jsonb_typeof(p_rule -> 'rate') = 'array', false);
    -- Only a number counts: then no function is called for each lane.
    v_simple boolean := NOT v_rated AND NOT p_closed AND NOT coalesce((p_rule ->> 'ordered')::boolean, false);
    v_concurrency integer := (p_rule ->> 'concurrency')::integer;
    v_floor double precision := coalesce((SELECT t.tag FROM {turn} AS t WHERE t.name = p_name ORDER BY t.tag, t.lane LIMIT 1), 0);
BEGIN
    IF v_rated THEN
        -- A clock that is set back does not move the begins.
        INSERT INTO {begun} (lane, seq, at)
        SELECT l.lane, l.begun + n, greatest(p_now, l.begun_at)
        FROM unnest(p_lanes, p_changes) AS asked (lane, change)
        CROSS JOIN LATERAL (SELECT e.* FROM {lane} AS e WHERE e.lane = asked.lane OFFSET 0) AS l
        CROSS JOIN LATERAL {own_rule}(p_rule, p_keyed, asked.lane) AS own
        CROSS JOIN generate_series(1, asked.change) AS n
        WHERE own.per IS NOT NULL;
    END IF;
    WITH looked AS MATERIALIZED (
        SELECT l.lane, l.reopen_at, l.reopen_name, now_.running, now_.begun, now_.begun_at, r.room, r.opens_at, waiting.any_job, own.per, own.number,
            CASE WHEN (own.rule ->> 'ordered')::boolean AND (r.room <= 0 OR r.only_id IS NOT NULL) THEN now_.holder END AS holder,
            coalesce(asked.tag, v_floor + 1 / coalesce((own.rule ->> 'weight')::double precision, 1)) AS tag
        FROM unnest(p_lanes, p_changes, p_tags, p_holders) AS asked (lane, change, tag, holder)
        CROSS JOIN LATERAL (SELECT e.* FROM {lane} AS e WHERE e.lane = asked.lane OFFSET 0) AS l
        CROSS JOIN LATERAL (
            SELECT o.rule, o.number, o.per FROM {own_rule}(p_rule, p_keyed, asked.lane) AS o WHERE NOT v_simple
            UNION ALL
            SELECT p_rule, NULL::integer, NULL::interval WHERE v_simple
        ) AS own
        CROSS JOIN LATERAL (
            SELECT l.running + asked.change AS running,
                l.begun + CASE WHEN own.per IS NULL THEN 0 ELSE greatest(asked.change, 0) END AS begun,
                CASE WHEN asked.change > 0 THEN greatest(p_now, l.begun_at) ELSE l.begun_at END AS begun_at,
                coalesce(asked.holder, l.holder) AS holder
        ) AS now_
        CROSS JOIN LATERAL (
            SELECT EXISTS (SELECT FROM {line} AS e WHERE e.lane = asked.lane ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1) AS any_job
        ) AS waiting
        CROSS JOIN LATERAL (
            SELECT o.room, o.opens_at, o.only_id FROM {lane_room}(
                l.lane, now_.running, now_.begun, now_.begun_at, now_.holder, own.rule, 1, p_closed, p_now
            ) AS o WHERE NOT v_simple
            UNION ALL
            SELECT coalesce(v_concurrency - now_.running, 1), NULL::timestamptz, NULL::uuid WHERE v_simple
        ) AS r
    ), state AS MATERIALIZED (
        SELECT k.*, unused.yes AND (k.begun_at IS NULL OR k.per IS NULL OR k.begun_at < p_now - k.per) AS idle,
            CASE WHEN k.any_job AND k.room <= 0 THEN k.opens_at
                WHEN unused.yes AND k.begun_at >= p_now - k.per THEN k.begun_at + k.per + interval '1 second' END AS look_at,
            CASE WHEN k.any_job THEN p_name ELSE E'\x01' || p_name END AS look_name
        FROM looked AS k
        CROSS JOIN LATERAL (SELECT NOT k.any_job AND k.running = 0 AND k.holder IS NULL AS yes) AS unused
    ), open AS (
        INSERT INTO {turn} (name, tag, lane) SELECT p_name, s.tag, s.lane FROM state AS s WHERE s.any_job AND s.room > 0
    ), look_again AS (
        INSERT INTO {reopen} (name, at, lane) SELECT s.look_name, s.look_at, s.lane FROM state AS s
        WHERE s.look_at IS NOT NULL AND (s.look_at, s.look_name) IS DISTINCT FROM (s.reopen_at, s.reopen_name)
    ), looked_again AS (
        DELETE FROM {reopen} AS e USING state AS s
        WHERE e.name = s.reopen_name AND e.at = s.reopen_at AND e.lane = s.lane
            AND (s.look_at, s.look_name) IS DISTINCT FROM (s.reopen_at, s.reopen_name)
    ), forgotten AS (
        DELETE FROM {begun} AS b USING state AS s WHERE s.begun > 0 AND NOT s.idle AND b.lane = s.lane AND b.seq <= s.begun - coalesce(s.number, 0)
    ), forgotten_with_it AS (
        DELETE FROM {begun} AS b USING state AS s WHERE s.begun > 0 AND s.idle AND b.lane = s.lane
    ), idle AS (
        DELETE FROM {lane} AS l USING state AS s WHERE s.idle AND l.lane = s.lane
    )
    UPDATE {lane} AS l SET
        running = s.running, begun = CASE WHEN s.per IS NULL THEN 0 ELSE s.begun END, begun_at = s.begun_at, holder = s.holder,
        tag = CASE WHEN s.any_job AND s.room > 0 THEN s.tag END,
        reopen_at = s.look_at, reopen_name = CASE WHEN s.look_at IS NOT NULL THEN s.look_name END
    FROM state AS s WHERE NOT s.idle AND l.lane = s.lane;
END $body$;

-- Look at lanes that something has happened to. Creates and locks their rows (those that another
-- claim has locked are skipped), counts the claims that have ended, and gives a turn to those that
-- may begin a job. The caller has the lock of the limit, so no other claim creates lanes of it.
CREATE OR REPLACE FUNCTION {visit_lanes}(
    p_name text, p_rule jsonb, p_keyed boolean, p_closed boolean, p_lanes text[], p_now timestamptz
) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_lanes text[];
    v_ended integer[];
BEGIN
    INSERT INTO {lane} (lane) SELECT DISTINCT asked FROM unnest(p_lanes) AS asked
    WHERE NOT EXISTS (SELECT FROM {lane} AS l WHERE l.lane = asked OFFSET 0) ORDER BY asked ON CONFLICT DO NOTHING;
    v_lanes := ARRAY(SELECT l.lane FROM {lane} AS l WHERE l.lane = ANY (p_lanes) FOR UPDATE SKIP LOCKED);
    IF cardinality(v_lanes) = 0 THEN
        RETURN;
    END IF;
    -- Claims that have ended come first in the index. What is left is for the next visit.
    WITH taken AS (
        DELETE FROM {news} WHERE ctid = ANY (ARRAY(
            SELECT n.ctid FROM unnest(v_lanes) AS asked (lane)
            CROSS JOIN LATERAL (
                SELECT e.ctid FROM {news} AS e WHERE e.lane = asked.lane ORDER BY e.kind, e.id LIMIT 500
            ) AS n
        ))
        RETURNING lane, kind
    ), ended AS (
        SELECT t.lane, count(*) AS number FROM taken AS t WHERE t.kind < 0 GROUP BY t.lane
    )
    UPDATE {lane} AS l SET running = l.running - ended.number FROM ended WHERE l.lane = ended.lane;
    IF p_closed THEN
        DELETE FROM {closing} WHERE lane = ANY (v_lanes) AND until <= p_now;
    END IF;
    -- A lane that has a turn keeps it. If it may not begin a job after all, the claim that takes the
    -- turn notices.
    v_lanes := ARRAY(SELECT l.lane FROM {lane} AS l WHERE l.lane = ANY (v_lanes) AND l.tag IS NULL);
    IF cardinality(v_lanes) > 0 THEN
        PERFORM {place_lanes}(p_name, p_rule, p_keyed, p_closed, v_lanes, array_fill(0, ARRAY[cardinality(v_lanes)]), NULL, NULL, p_now);
    END IF;
END $body$;

-- Find lanes that something has happened to: whose time to open has come, and that are in the news.
-- At most `p_most` of each, in their order, from the lane `p_cursor` on and around. Returns the last
-- one, if there may be more. So a lane with very much news does not keep others waiting. Primary keys of `reopen` and
-- `news`.
CREATE OR REPLACE FUNCTION {look_for_lanes}(
    p_name text, p_rule jsonb, p_keyed boolean, p_closed boolean, p_cursor text, p_most integer, p_now timestamptz
) RETURNS text LANGUAGE plpgsql AS $body$
DECLARE
    v_first text COLLATE "C" := p_name || E'\x1e';
    v_end text COLLATE "C" := p_name || ' ';
    v_after text COLLATE "C" := coalesce(p_cursor, v_first);
    v_due text[];
    v_lanes text[] := '{}';
BEGIN
    v_due := ARRAY(SELECT r.lane FROM {reopen} AS r WHERE r.name = p_name AND r.at <= p_now ORDER BY r.at, r.lane LIMIT p_most)
        || ARRAY(SELECT r.lane FROM {reopen} AS r WHERE r.name = E'\x01' || p_name AND r.at <= p_now ORDER BY r.at, r.lane LIMIT 10);
    LOOP
        v_lanes := v_lanes || ARRAY(
            WITH RECURSIVE known (lane) AS (
                (SELECT n.lane FROM {news} AS n WHERE n.lane > v_after AND n.lane < v_end ORDER BY n.lane LIMIT 1)
                UNION ALL
                SELECT (SELECT n.lane FROM {news} AS n WHERE n.lane > known.lane AND n.lane < v_end ORDER BY n.lane LIMIT 1)
                FROM known WHERE known.lane IS NOT NULL
            )
            SELECT known.lane FROM known WHERE known.lane IS NOT NULL LIMIT p_most - cardinality(v_lanes)
        );
        EXIT WHEN cardinality(v_lanes) >= p_most OR v_after = v_first;
        v_end := v_after || E'\x01';
        v_after := v_first;
    END LOOP;
    IF cardinality(v_due) + cardinality(v_lanes) > 0 THEN
        PERFORM {visit_lanes}(p_name, p_rule, p_keyed, p_closed, v_due || v_lanes, p_now);
    END IF;
    RETURN CASE WHEN cardinality(v_lanes) >= p_most THEN v_lanes[cardinality(v_lanes)] END;
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
-- `line` themselves, not from what claims remember. Primary keys; one look for each lane.
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
    )
    SELECT p.lane, own.rule::text, EXISTS (SELECT FROM {limit_change} AS c WHERE c.lane = p.lane),
        CASE WHEN named.is_limit THEN (SELECT coalesce(sum(h.number), 0) FROM held AS h WHERE h.lane > p.lane AND h.lane < p.lane || ' ')
            ELSE coalesce((SELECT h.number FROM held AS h WHERE h.lane = p.lane), 0) END::bigint,
        (SELECT count(*) FROM (SELECT FROM {line} AS e WHERE e.lane = p.lane LIMIT p_counted) AS counted),
        r.opens_at, j.id::text, coalesce((SELECT h.jobs FROM held AS h WHERE h.lane = p.lane), '{}')
    FROM page AS p
    CROSS JOIN LATERAL (SELECT strpos(p.lane, E'\x1f') = 0 AS is_limit, split_part(p.lane, E'\x1f', 1) AS name) AS named
    CROSS JOIN LATERAL {own_rule}({limit_rule}(named.name), true, p.lane) AS own
    LEFT JOIN {lane} AS l ON l.lane = p.lane
    CROSS JOIN LATERAL {lane_room}(
        p.lane, 0, coalesce(l.begun, 0), l.begun_at, NULL, own.rule, 1, true, v_now
    ) AS r
    LEFT JOIN LATERAL (SELECT h.id FROM {lane_holder}(p.lane, l.holder) AS h WHERE (own.rule ->> 'ordered')::boolean) AS j ON true;
END $body$;
