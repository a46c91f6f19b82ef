-- The state of lanes: docs/design/limits.md explains the tables. Only claims call these functions, and
-- each of them has locked the lanes that it passes: the row of `turn` of a lane that is open, the row
-- of `lane` of one that is not. A lane is passed as a row of `turn`.

-- Take what is new of lanes, and count the claims that have ended, for each of them. Claims that have
-- ended come first in the index. If it is very much, something may be left: `more`. Primary key.
CREATE OR REPLACE FUNCTION {take_news}(p_lanes {turn}[], OUT ended integer[], OUT more boolean) LANGUAGE plpgsql AS $body$
DECLARE
    v_places tid[];
    v_numbers integer[];
    v_number integer;
BEGIN
    ended := array_fill(0, ARRAY[cardinality(p_lanes)]);
    SELECT array_agg(n.place), array_agg(l.ordinality::integer) FILTER (WHERE n.kind < 0) INTO v_places, v_numbers
    FROM unnest(p_lanes) WITH ORDINALITY AS l
    CROSS JOIN LATERAL (SELECT e.ctid AS place, e.kind FROM {news} AS e WHERE e.lane = l.lane ORDER BY e.kind, e.id LIMIT 500) AS n;
    more := coalesce(cardinality(v_places) >= 500, false);
    IF v_places IS NOT NULL THEN
        DELETE FROM {news} WHERE ctid = ANY (v_places);
        FOREACH v_number IN ARRAY coalesce(v_numbers, '{}') LOOP
            ended[v_number] := ended[v_number] + 1;
        END LOOP;
    END IF;
END $body$;

-- Write down what has become of lanes. `p_were_open`: they had a turn, which was deleted; otherwise
-- each gets a new turn, after the lane whose turn it is. For each lane: `p_ended`, claims that have
-- ended; `p_taken`, jobs that begin now; `p_waiting`, others wait; `p_weights`; `p_holders`, the last
-- job that begins now. A lane that may begin a job gets its turn. One that a rate has closed gets a
-- row in `reopen`. One that nothing is known of any more is deleted.
CREATE OR REPLACE FUNCTION {place_lanes}(
    p_name text, p_rule jsonb, p_keyed boolean, p_closed boolean, p_were_open boolean, p_lanes {turn}[], p_ended integer[], p_taken integer[],
    p_waiting boolean[], p_weights double precision[], p_holders uuid[], p_now timestamptz
) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_rated boolean := p_keyed OR coalesce(jsonb_typeof(p_rule -> 'rate') = 'array', false);
    -- Only a number counts: then no function is called for each lane.
    v_simple boolean := NOT v_rated AND NOT p_closed AND NOT coalesce((p_rule ->> 'ordered')::boolean, false);
    v_concurrency integer := (p_rule ->> 'concurrency')::integer;
    v_floor double precision := 0;
    v_rows bigint;
BEGIN
    IF p_closed THEN
        DELETE FROM {closing} WHERE until <= p_now AND lane = ANY (ARRAY(SELECT l.lane FROM unnest(p_lanes) AS l));
    END IF;
    IF NOT p_were_open THEN
        v_floor := coalesce((SELECT t.tag FROM {turn} AS t WHERE t.name = p_name ORDER BY t.tag, t.lane LIMIT 1), 0);
    ELSIF v_rated THEN
        -- A clock that is set back does not move the begins.
        INSERT INTO {begun} (lane, seq, at)
        SELECT l.lane, l.begun + n, greatest(p_now, l.begun_at)
        FROM unnest(p_lanes) WITH ORDINALITY AS l
        CROSS JOIN LATERAL {own_rule}(p_rule, p_keyed, l.lane) AS own
        CROSS JOIN generate_series(1, p_taken[l.ordinality]) AS n
        WHERE own.per IS NOT NULL;
    END IF;
    IF p_were_open AND v_simple THEN
        -- Most lanes stay open. The other ones follow.
        INSERT INTO {turn} (name, tag, lane, running, begun, begun_at, holder)
        SELECT p_name, l.tag + p_taken[l.ordinality] / p_weights[l.ordinality], l.lane, l.running - p_ended[l.ordinality] + p_taken[l.ordinality], 0,
            CASE WHEN p_taken[l.ordinality] > 0 THEN greatest(p_now, l.begun_at) ELSE l.begun_at END, NULL
        FROM unnest(p_lanes) WITH ORDINALITY AS l
        WHERE p_waiting[l.ordinality] AND coalesce(v_concurrency > l.running - p_ended[l.ordinality] + p_taken[l.ordinality], true);
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        IF v_rows = cardinality(p_lanes) THEN
            RETURN;
        END IF;
    END IF;
    WITH looked AS MATERIALIZED (
        SELECT l.lane, before.reopen_at, before.reopen_name, now_.running, now_.begun, now_.begun_at, r.room, r.opens_at, waiting.any_job,
            own.per, own.number,
            CASE WHEN (own.rule ->> 'ordered')::boolean AND (r.room <= 0 OR r.only_id IS NOT NULL) THEN now_.holder END AS holder,
            CASE WHEN p_were_open THEN l.tag + p_taken[l.ordinality] / p_weights[l.ordinality]
                ELSE v_floor + 1 / {lane_weight}(l.lane, own.rule) END AS tag
        FROM unnest(p_lanes) WITH ORDINALITY AS l
        LEFT JOIN LATERAL (SELECT e.reopen_at, e.reopen_name FROM {lane} AS e WHERE NOT p_were_open AND e.lane = l.lane) AS before ON true
        CROSS JOIN LATERAL (
            SELECT o.rule, o.number, o.per FROM {own_rule}(p_rule, p_keyed, l.lane) AS o WHERE NOT v_simple
            UNION ALL
            SELECT p_rule, NULL::integer, NULL::interval WHERE v_simple
        ) AS own
        CROSS JOIN LATERAL (
            SELECT l.running - p_ended[l.ordinality] + coalesce(p_taken[l.ordinality], 0) AS running,
                l.begun + CASE WHEN own.per IS NULL THEN 0 ELSE coalesce(p_taken[l.ordinality], 0) END AS begun,
                CASE WHEN p_taken[l.ordinality] > 0 THEN greatest(p_now, l.begun_at) ELSE l.begun_at END AS begun_at,
                coalesce(p_holders[l.ordinality], l.holder) AS holder
        ) AS now_
        CROSS JOIN LATERAL (
            -- OFFSET: otherwise, a plan may hash all of `line`.
            SELECT EXISTS (SELECT FROM {line} AS e WHERE e.lane = l.lane ORDER BY e.priority, e.scheduled_at, e.id LIMIT 1 OFFSET 0) AS any_job
        ) AS waiting
        CROSS JOIN LATERAL (
            SELECT o.room, o.opens_at, o.only_id FROM {lane_room}(
                l.lane, now_.running, now_.begun, now_.begun_at, now_.holder, own.rule, 1, p_closed, p_now
            ) AS o WHERE NOT v_simple
            UNION ALL
            SELECT coalesce(v_concurrency - now_.running, 1), NULL::timestamptz, NULL::uuid WHERE v_simple
        ) AS r
        WHERE NOT (p_were_open AND v_simple AND coalesce(p_waiting[l.ordinality], false) AND coalesce(v_concurrency > now_.running, true))
    ), state AS MATERIALIZED (
        SELECT k.*, k.any_job AND k.room > 0 AS open, unused.yes AND (k.begun_at IS NULL OR k.per IS NULL OR k.begun_at < p_now - k.per) AS idle,
            CASE WHEN k.any_job AND k.room <= 0 THEN k.opens_at
                WHEN unused.yes AND k.begun_at >= p_now - k.per THEN k.begun_at + k.per + interval '1 second' END AS look_at,
            CASE WHEN k.any_job THEN p_name ELSE E'\x01' || p_name END AS look_name
        FROM looked AS k
        CROSS JOIN LATERAL (SELECT NOT k.any_job AND k.running = 0 AND k.holder IS NULL AS yes) AS unused
    ), opened AS (
        INSERT INTO {turn} (name, tag, lane, running, begun, begun_at, holder)
        SELECT p_name, s.tag, s.lane, s.running, CASE WHEN s.per IS NULL THEN 0 ELSE s.begun END, s.begun_at, s.holder FROM state AS s WHERE s.open
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
    -- A lane that stays open is not touched.
    UPDATE {lane} AS l SET
        open = s.open, running = s.running, begun = CASE WHEN s.per IS NULL THEN 0 ELSE s.begun END, begun_at = s.begun_at, holder = s.holder,
        reopen_at = s.look_at, reopen_name = CASE WHEN s.look_at IS NOT NULL THEN s.look_name END
    FROM state AS s WHERE NOT s.idle AND NOT (s.open AND p_were_open) AND l.lane = s.lane;
END $body$;

-- Look at lanes that something has happened to. Those that are open are left alone: the claim that
-- takes their turn looks. Creates and locks the rows of the others (those that another claim has
-- locked are skipped), and gives a turn to those that may begin a job. Returns true if there is more
-- to look at. The caller has the lock of the limit, so no other claim creates lanes of it.
CREATE OR REPLACE FUNCTION {visit_lanes}(
    p_name text, p_rule jsonb, p_keyed boolean, p_closed boolean, p_lanes text[], p_now timestamptz
) RETURNS boolean LANGUAGE plpgsql AS $body$
DECLARE
    v_lanes {turn}[];
    v_news record;
BEGIN
    IF (SELECT count(*) FROM {lane} AS l WHERE l.lane = ANY (p_lanes) AND l.open) = cardinality(p_lanes) THEN
        RETURN false;
    END IF;
    INSERT INTO {lane} (lane) SELECT DISTINCT asked FROM unnest(p_lanes) AS asked
    WHERE NOT EXISTS (SELECT FROM {lane} AS l WHERE l.lane = asked OFFSET 0) ORDER BY asked ON CONFLICT DO NOTHING;
    v_lanes := ARRAY(
        SELECT ROW(p_name, NULL, l.lane, l.running, l.begun, l.begun_at, l.holder)::{turn}
        FROM {lane} AS l WHERE l.lane = ANY (p_lanes) AND NOT l.open FOR UPDATE SKIP LOCKED
    );
    IF cardinality(v_lanes) = 0 THEN
        RETURN false;
    END IF;
    v_news := {take_news}(v_lanes);
    PERFORM {place_lanes}(p_name, p_rule, p_keyed, p_closed, false, v_lanes, v_news.ended, NULL, NULL, NULL, NULL, p_now);
    RETURN v_news.more;
END $body$;

-- Find lanes that something has happened to: whose time to open has come, and that are in the news.
-- At most `p_most` of each, in their order, from the lane `p_cursor` on and around. `cursor` is the
-- last one, if there may be more. So a lane with very much news does not keep others waiting. Primary
-- keys of `reopen` and `news`.
CREATE OR REPLACE FUNCTION {look_for_lanes}(
    p_name text, p_rule jsonb, p_keyed boolean, p_closed boolean, p_cursor text, p_most integer, p_now timestamptz,
    OUT cursor text, OUT more boolean
) LANGUAGE plpgsql AS $body$
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
    more := false;
    IF cardinality(v_due) + cardinality(v_lanes) > 0 THEN
        more := {visit_lanes}(p_name, p_rule, p_keyed, p_closed, v_due || v_lanes, p_now);
    END IF;
    IF cardinality(v_lanes) >= p_most THEN
        cursor := v_lanes[cardinality(v_lanes)];
        more := true;
    END IF;
END $body$;
