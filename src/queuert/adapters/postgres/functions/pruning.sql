-- Deleting what has been kept long enough. Locks: the row of `pruning`, then rows of `job`, `blocker`
-- and `key`, whichever are free: it waits for none of them.

-- Store policies; returns the types whose policy is new or another one. Only these are locked.
-- Primary key.
CREATE OR REPLACE FUNCTION {store_policies}(
    p_types text[], p_completed double precision[], p_failed double precision[], p_cancelled double precision[],
    p_expired double precision[], p_archived boolean[], p_months integer[]
) RETURNS SETOF text LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
BEGIN
    RETURN QUERY
    INSERT INTO {retention} AS r (type_name, completed, failed, cancelled, expired, archived, months, stored_at)
    SELECT asked.*, v_now
    FROM unnest(p_types, p_completed, p_failed, p_cancelled, p_expired, p_archived, p_months)
        AS asked (type_name, completed, failed, cancelled, expired, archived, months)
    WHERE NOT EXISTS (
        SELECT FROM {retention} AS same WHERE same.type_name = asked.type_name
            AND (same.completed, same.failed, same.cancelled, same.expired, same.archived, same.months)
                IS NOT DISTINCT FROM
                (asked.completed, asked.failed, asked.cancelled, asked.expired, asked.archived, asked.months)
    )
    ORDER BY asked.type_name
    ON CONFLICT (type_name) DO UPDATE SET
        completed = excluded.completed,
        failed = excluded.failed,
        cancelled = excluded.cancelled,
        expired = excluded.expired,
        archived = excluded.archived,
        months = excluded.months,
        stored_at = excluded.stored_at,
        walked = NULL,
        archive_error = NULL,
        archive_failed_at = NULL
    RETURNING r.type_name;
END $body$;

-- What becomes of chains, by the policies: 'due', 'archive' (due, to be archived), 'later' (look again
-- then), 'ever', or 'gone' (there is no such chain). Primary key, index job_chain. Locks nothing.
CREATE OR REPLACE FUNCTION {verdicts}(p_ids uuid[], p_now timestamptz)
RETURNS TABLE (id uuid, verdict text, moment timestamptz, type_name text) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT
        asked.id,
        CASE
            WHEN last.status IS NULL THEN 'gone'
            WHEN policy.archived IS NULL OR last.status IN ('blocked', 'pending') OR last.completed_at IS NULL THEN 'later'
            WHEN policy.kept IS NULL THEN 'ever'
            WHEN last.completed_at + make_interval(secs => policy.kept) <= p_now
                THEN CASE WHEN policy.archived THEN 'archive' ELSE 'due' END
            ELSE 'later'
        END,
        CASE
            WHEN policy.archived IS NULL OR last.status IN ('blocked', 'pending') OR last.completed_at IS NULL
                THEN {look_again}(first.created_at, p_now, {look_again_open}, coalesce(policy.shortest, 0))
            ELSE last.completed_at + make_interval(secs => policy.kept)
        END,
        first.type_name
    FROM unnest(p_ids) AS asked (id)
    LEFT JOIN LATERAL (
        -- <= 0: with "= 0" a plan made for small tables would walk the whole index of first jobs for
        -- one id.
        SELECT f.type_name, f.created_at FROM {job} AS f WHERE f.id = asked.id AND f.chain_index <= 0 OFFSET 0
    ) AS first ON true
    LEFT JOIN LATERAL (
        SELECT j.status, j.completed_at FROM {job} AS j WHERE j.chain_id = asked.id ORDER BY j.chain_index DESC LIMIT 1
    ) AS last ON true
    CROSS JOIN LATERAL (
        SELECT
            bool_or(r.archived) AS archived,
            min(CASE last.status WHEN 'completed' THEN r.completed WHEN 'failed' THEN r.failed
                WHEN 'cancelled' THEN r.cancelled WHEN 'expired' THEN r.expired END) AS kept,
            min(least(r.completed, r.failed, r.cancelled, r.expired)) AS shortest
        FROM {retention} AS r WHERE r.type_name = first.type_name
    ) AS policy;
END $body$;

-- When to look again at a chain that could not be deleted now.
CREATE OR REPLACE FUNCTION {look_again}(
    p_created timestamptz, p_now timestamptz, p_most double precision, p_least double precision
) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $body$
    SELECT p_now + make_interval(secs => greatest({look_again_least}, p_least,
        least(extract(epoch FROM p_now - p_created)::double precision * {look_again_part}, p_most)))
$body$;

-- Those of the chains that no job of another chain needs. A chain that stays may need others of them.
-- The caller has locked their jobs, so no edge to them can be added. Indexes: blocker_chain, primary
-- keys.
CREATE OR REPLACE FUNCTION {unneeded}(p_chains uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $body$
DECLARE
    v_set uuid[] := p_chains;
    v_out uuid[];
BEGIN
    LOOP
        v_out := array(
            SELECT edge.chain_id FROM unnest(v_set) AS asked (id)
            CROSS JOIN LATERAL (SELECT b.chain_id, b.job_id FROM {blocker} AS b WHERE b.chain_id = asked.id OFFSET 0) AS edge
            CROSS JOIN LATERAL (SELECT j.chain_id, j.status FROM {job} AS j WHERE j.id = edge.job_id OFFSET 0) AS other
            WHERE other.status IN ('blocked', 'pending', 'failed') AND other.chain_id <> ALL (v_set)
        ) || array(SELECT u.chain_id FROM {unblocking} AS u WHERE u.chain_id = ANY (v_set));
        IF cardinality(v_out) = 0 THEN
            RETURN v_set;
        END IF;
        v_set := array(SELECT unnest(v_set) EXCEPT SELECT unnest(v_out));
    END LOOP;
END $body$;

-- Lock the edges and keys of chains that are free; returns the chains of the others, which another
-- transaction is about to delete or to take over. Indexes: blocker_chain, key_chain, primary keys.
CREATE OR REPLACE FUNCTION {lock_ties}(p_chains uuid[], p_jobs uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $body$
DECLARE
    v_edges tid[];
    v_keyed uuid[];
    v_out uuid[] := '{}';
BEGIN
    -- Neither edges nor the chains of locked keys change: they are inserted and deleted.
    v_edges := array(SELECT b.ctid FROM {blocker} AS b WHERE b.chain_id = ANY (p_chains) FOR UPDATE SKIP LOCKED)
        || array(SELECT b.ctid FROM {blocker} AS b WHERE b.job_id = ANY (p_jobs) FOR UPDATE SKIP LOCKED);
    v_keyed := array(SELECT k.chain_id FROM {key} AS k WHERE k.chain_id = ANY (p_chains) FOR UPDATE SKIP LOCKED);
    IF cardinality(v_edges) < (SELECT count(*) FROM {blocker} AS b WHERE b.chain_id = ANY (p_chains))
        + (SELECT count(*) FROM {blocker} AS b WHERE b.job_id = ANY (p_jobs))
    THEN
        v_out := array(
            SELECT unnest(ARRAY[missed.chain_id, j.chain_id]) FROM (
                SELECT b.ctid, b.chain_id, b.job_id FROM {blocker} AS b WHERE b.chain_id = ANY (p_chains)
                UNION SELECT b.ctid, b.chain_id, b.job_id FROM {blocker} AS b WHERE b.job_id = ANY (p_jobs)
            ) AS missed (place, chain_id, job_id)
            LEFT JOIN {job} AS j ON j.id = missed.job_id
            WHERE missed.place <> ALL (v_edges)
        );
    END IF;
    RETURN v_out || array(SELECT k.chain_id FROM {key} AS k WHERE k.chain_id = ANY (p_chains) EXCEPT SELECT unnest(v_keyed));
END $body$;

-- Lock those of the chains that have this verdict and that no job needs, with their edges and keys.
-- Returns them: they can be deleted. What is locked by others is left out. Indexes: job_chain,
-- blocker_chain, key_chain, primary keys.
CREATE OR REPLACE FUNCTION {lock_prunable}(p_ids uuid[], p_now timestamptz, p_verdict text)
RETURNS uuid[] LANGUAGE plpgsql AS $body$
DECLARE
    v_locked uuid[];
    v_set uuid[];
    v_jobs uuid[];
    v_out uuid[];
BEGIN
    v_locked := array(
        SELECT locked.id FROM (
            SELECT j.id FROM {job} AS j WHERE j.chain_id = ANY (p_ids) FOR UPDATE SKIP LOCKED
        ) AS locked ORDER BY locked.id
    );
    -- They are looked at again, now that they cannot change: one may have been retried, and go on.
    v_set := array(SELECT v.id FROM {verdicts}(p_ids, p_now) AS v WHERE v.verdict = p_verdict);
    v_jobs := array(SELECT j.id FROM {job} AS j WHERE j.chain_id = ANY (v_set) ORDER BY j.id);
    IF v_jobs <> v_locked THEN
        v_out := array(
            SELECT j.chain_id FROM (SELECT unnest(v_jobs) EXCEPT SELECT unnest(v_locked)) AS missed (id)
            JOIN {job} AS j ON j.id = missed.id
        );
        v_set := array(SELECT unnest(v_set) EXCEPT SELECT unnest(v_out));
    END IF;
    v_set := {unneeded}(v_set);
    v_jobs := array(SELECT j.id FROM {job} AS j WHERE j.chain_id = ANY (v_set));
    v_out := {lock_ties}(v_set, v_jobs);
    IF cardinality(v_out) > 0 THEN
        -- These stay, and so does what they need.
        v_set := {unneeded}(array(SELECT unnest(v_set) EXCEPT SELECT unnest(v_out)));
    END IF;
    RETURN v_set;
END $body$;

-- Delete chains that are locked. Keys that outlive them are noted, to be looked at `p_again` or later.
-- Returns what is gone. Indexes: job_chain, blocker_chain, key_chain, primary keys.
CREATE OR REPLACE FUNCTION {delete_due}(p_chains uuid[], p_now timestamptz, p_again timestamptz)
RETURNS TABLE (chain_id uuid, chain_type text, jobs bigint) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_jobs uuid[] := array(SELECT j.id FROM {job} AS j WHERE j.chain_id = ANY (p_chains));
    v_out uuid[];
BEGIN
    -- Keys that have to match for longer are kept, and noted. What an older version has left in a row
    -- that it has taken over is not valid.
    v_out := array(SELECT k.chain_id FROM {key} AS k WHERE k.chain_id = ANY (p_chains));
    IF cardinality(v_out) > 0 THEN
        WITH outliving AS (
            UPDATE {key} AS k SET ended = last.status
            FROM unnest(v_out) AS asked (id) CROSS JOIN LATERAL (
                SELECT j.status FROM {job} AS j WHERE j.chain_id = asked.id ORDER BY j.chain_index DESC LIMIT 1
            ) AS last
            WHERE k.chain_id = asked.id AND k.window_chain = k.chain_id AND k.until > p_now
            RETURNING k.chain_id, k.until
        )
        INSERT INTO {kept} AS n (chain_id, due_at)
        SELECT o.chain_id, greatest(max(o.until), p_again) FROM outliving AS o GROUP BY o.chain_id
        ON CONFLICT (chain_id) DO UPDATE SET due_at = excluded.due_at, archive = NULL;
        DELETE FROM {key} AS k WHERE k.chain_id = ANY (v_out) AND (k.ended IS NULL OR k.window_chain IS DISTINCT FROM k.chain_id);
    END IF;
    DELETE FROM {blocker} AS b WHERE b.chain_id = ANY (p_chains);
    DELETE FROM {blocker} AS b WHERE b.job_id = ANY (v_jobs);
    DELETE FROM {attempt} AS a WHERE a.job_id = ANY (v_jobs);
    RETURN QUERY
    WITH gone AS (DELETE FROM {job} AS j WHERE j.id = ANY (v_jobs) RETURNING j.chain_id, j.chain_type, j.status, j.lane),
    -- A failed job may have stopped its lane.
    told AS (INSERT INTO {news} (lane, kind) SELECT DISTINCT g.lane, 0 FROM gone AS g WHERE g.lane IS NOT NULL AND g.status = 'failed')
    SELECT gone.chain_id, min(gone.chain_type), count(*) FROM gone GROUP BY gone.chain_id;
END $body$;

-- The walk: the next chains that may be due, `p_most` of all types together, in any order of the types: none waits
-- for another one that has very many. `left_over`: fewer were found. `late`: the seconds between the last one and the first
-- that is too young, if there may be more; `shortest`: how long such chains are kept. Locks the policies that it
-- moves on, skipping locked ones. Index job_first; reads `retention` once.
CREATE OR REPLACE FUNCTION {walk_due}(
    p_most integer, p_exact boolean, p_now timestamptz,
    OUT ids uuid[], OUT left_over integer, OUT late double precision, OUT shortest double precision
) LANGUAGE plpgsql AS $body$
DECLARE
    v_type record;
    v_young uuid;
    v_part uuid[];
BEGIN
    ids := '{}';
    left_over := p_most;
    FOR v_type IN
        SELECT r.type_name, r.walked, least(r.completed, r.failed, r.cancelled, r.expired) AS shortest
        FROM {retention} AS r ORDER BY random()
    LOOP
        EXIT WHEN left_over <= 0;
        CONTINUE WHEN v_type.shortest IS NULL;
        -- The first UUIDv7 of a chain that is too young.
        v_young := rpad(lpad(to_hex(greatest(0, floor(1000 * (extract(epoch FROM p_now) - v_type.shortest
            - CASE WHEN p_exact THEN 0 ELSE least(v_type.shortest * {slack_part}, {slack_most}) END)))::bigint), 12, '0'), 32, '0')::uuid;
        v_part := array(
            SELECT j.id FROM {job} AS j
            WHERE j.type_name = v_type.type_name AND j.chain_index = 0 AND j.id < v_young
                AND j.id > coalesce(v_type.walked, '00000000-0000-0000-0000-000000000000')
            ORDER BY j.type_name, j.id LIMIT left_over
        );
        IF cardinality(v_part) > 0 THEN
            -- Another policy is being stored, or was just now: then the walk begins anew.
            PERFORM FROM {retention} AS r WHERE r.type_name = v_type.type_name
                AND r.walked IS NOT DISTINCT FROM v_type.walked FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND;
            UPDATE {retention} AS r SET walked = v_part[cardinality(v_part)] WHERE r.type_name = v_type.type_name;
            ids := ids || v_part;
            left_over := left_over - cardinality(v_part);
            IF left_over <= 0 THEN
                -- The time between the last id and the first one that is too young: 48 bits are milliseconds.
                late := greatest(0, ('x' || left(replace(v_young::text, '-', ''), 12))::bit(48)::bigint
                    - ('x' || left(replace(v_part[cardinality(v_part)]::text, '-', ''), 12))::bit(48)::bigint) / 1000.0;
                shortest := v_type.shortest;
            END IF;
        END IF;
    END LOOP;
END $body$;

-- The lap: the next `p_limit` chains from this one on. `last_type` and `last_id`: the last one; null: this was the
-- end. Locks nothing. Index job_first; reads `retention` once.
CREATE OR REPLACE FUNCTION {walk_lap}(p_type text, p_id uuid, p_limit integer, OUT ids uuid[], OUT last_type text, OUT last_id uuid)
LANGUAGE plpgsql AS $body$
DECLARE
    v_type record;
    v_part uuid[];
BEGIN
    ids := '{}';
    FOR v_type IN
        SELECT r.type_name FROM {retention} AS r
        WHERE r.type_name >= p_type ORDER BY r.type_name
    LOOP
        v_part := array(
            SELECT j.id FROM {job} AS j
            WHERE j.type_name = v_type.type_name AND j.chain_index = 0
                AND j.id > CASE WHEN v_type.type_name = p_type THEN p_id
                    ELSE '00000000-0000-0000-0000-000000000000' END
            ORDER BY j.type_name, j.id LIMIT p_limit - cardinality(ids)
        );
        ids := ids || v_part;
        IF cardinality(ids) >= p_limit THEN
            last_type := v_type.type_name;
            last_id := ids[cardinality(ids)];
            EXIT;
        END IF;
    END LOOP;
END $body$;

-- Note chains that are looked at again: those of the verdicts 'later' and 'archive', and those that could not be
-- deleted (`p_kept`). Not before `p_until`, up to which this step has looked at notes. Primary key of `kept`.
CREATE OR REPLACE FUNCTION {note_chains}(
    p_later uuid[], p_later_at timestamptz[], p_archive uuid[], p_archive_types text[], p_kept uuid[], p_until timestamptz, p_now timestamptz
) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    IF p_later IS NOT NULL THEN
        INSERT INTO {kept} AS n (chain_id, due_at)
        SELECT later.id, greatest(later.moment, p_until) FROM unnest(p_later, p_later_at) AS later (id, moment)
        ON CONFLICT (chain_id) DO UPDATE SET due_at = excluded.due_at, archive = NULL;
    END IF;
    IF p_archive IS NOT NULL THEN
        INSERT INTO {kept} AS n (chain_id, due_at, archive)
        SELECT DISTINCT a.id, 'infinity'::timestamptz, a.type_name FROM unnest(p_archive, p_archive_types) AS a (id, type_name)
        ON CONFLICT (chain_id) DO UPDATE SET due_at = excluded.due_at, archive = excluded.archive
            WHERE n.archive IS DISTINCT FROM excluded.archive;
    END IF;
    IF p_kept IS NOT NULL THEN
        INSERT INTO {kept} AS n (chain_id, due_at)
        SELECT left_over.id, greatest({look_again}(j.created_at, p_now, {look_again_needed}, 0), p_until)
        FROM unnest(p_kept) AS left_over (id)
        JOIN {job} AS j ON j.id = left_over.id
        ON CONFLICT (chain_id) DO UPDATE SET due_at = excluded.due_at, archive = NULL;
    END IF;
END $body$;

-- Forget the notes of a step: `p_noted`, and those of chains that are gone. `p_other`: chains were deleted that were
-- not looked for by their notes. `p_gone`: their chains were gone before; now their windows have ended. Locks keys,
-- skipping locked ones. Primary keys, index key_chain.
CREATE OR REPLACE FUNCTION {forget_notes}(p_noted uuid[], p_chains uuid[], p_other boolean, p_gone uuid[], p_now timestamptz)
RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    DELETE FROM {kept} AS n WHERE n.chain_id = ANY (p_noted) AND n.due_at <= p_now;
    -- Those that the lap has found, and those that waited to be archived before another policy was stored.
    IF p_other OR EXISTS (SELECT FROM {kept} AS n WHERE n.archive IS NOT NULL) THEN
        DELETE FROM {kept} AS n WHERE n.chain_id = ANY (p_chains)
            AND NOT EXISTS (SELECT FROM {key} AS k WHERE k.chain_id = n.chain_id OFFSET 0);
    END IF;
    IF p_gone IS NOT NULL THEN
        -- Their chains are gone, and now their windows have ended.
        DELETE FROM {key} AS k WHERE k.ctid IN (
            SELECT e.ctid FROM {key} AS e WHERE e.chain_id = ANY (p_gone) AND e.ended IS NOT NULL AND e.until <= p_now
            FOR UPDATE SKIP LOCKED
        );
        -- One that is locked goes later.
        INSERT INTO {kept} AS n (chain_id, due_at)
        SELECT e.chain_id, greatest(max(e.until), p_now + make_interval(secs => {look_again_least})) FROM {key} AS e
        WHERE e.chain_id = ANY (p_gone) AND e.ended IS NOT NULL AND e.window_chain = e.chain_id GROUP BY e.chain_id
        ON CONFLICT (chain_id) DO UPDATE SET due_at = excluded.due_at, archive = NULL;
    END IF;
END $body$;

-- One step. Returns rows of kind 'deleted' (chains and jobs of one type), 'examined' (a number, the
-- seconds that the step took, how late it is if there is more, and for how long such chains are kept),
-- 'more' and 'lap' (one is under way); or one row of kind 'busy'. Locks the row of `pruning`, so that there is one
-- step at a time; then what its steps lock: it waits for none of these. Index kept_due, primary keys.
CREATE OR REPLACE FUNCTION {prune}(
    p_limit integer, p_exact boolean, p_lap double precision, p_restart boolean
) RETURNS TABLE (kind text, type_name text, chains bigint, jobs bigint, took double precision, behind double precision, kept double precision)
LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_began timestamptz := clock_timestamp();
    v_late double precision := 0;
    v_now timestamptz;
    v_state record;
    v_noted uuid[];
    v_until timestamptz;
    v_turn uuid[];
    v_lap uuid[] := '{}';
    v_part uuid[];
    v_left integer;
    v_walk record;
    v_due uuid[];
    v_later uuid[];
    v_later_at timestamptz[];
    v_gone uuid[];
    v_archive uuid[];
    v_archive_types text[];
    v_types text[];
    v_chains uuid[];
    v_jobs bigint[];
BEGIN
    SELECT * INTO v_state FROM {pruning} LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM {pruning}) THEN
        -- The first one stores the row. Another one that does so at the same time waits for it.
        INSERT INTO {pruning} DEFAULT VALUES ON CONFLICT DO NOTHING RETURNING * INTO v_state;
    END IF;
    IF v_state.one IS NULL THEN
        RETURN QUERY SELECT 'busy', NULL::text, NULL::bigint, NULL::bigint, NULL::double precision, NULL::double precision, NULL::double precision;
        RETURN;
    END IF;
    v_now := {clock};
    IF v_state.noted_until > v_now THEN
        v_state.noted_until := '-infinity';  -- the clock was set back
    END IF;
    SELECT array_agg(n.chain_id), max(n.due_at) INTO v_noted, v_until FROM (
        SELECT k.chain_id, k.due_at FROM {kept} AS k WHERE k.due_at >= v_state.noted_until AND k.due_at <= v_now
        ORDER BY k.due_at LIMIT p_limit
    ) AS n;
    v_noted := coalesce(v_noted, '{}');
    v_left := p_limit - cardinality(v_noted);
    IF v_left > 0 THEN
        v_until := v_now;
    ELSE
        v_late := extract(epoch FROM v_now - v_until);
    END IF;
    v_walk := {walk_due}(v_left, p_exact, v_now);
    v_left := v_walk.left_over;
    v_late := coalesce(v_walk.late, v_late);
    -- After another policy was stored, the walk finds what is noted already.
    v_turn := array(SELECT DISTINCT asked FROM unnest(v_noted || v_walk.ids) AS asked);
    IF p_restart OR v_state.lap_type IS NOT NULL
        OR v_state.lap_ended_at IS NULL OR v_state.lap_ended_at <= v_now - make_interval(secs => p_lap)
    THEN
        IF p_lap IS NOT NULL THEN
            IF p_restart OR v_state.lap_type IS NULL THEN
                v_state.lap_type := '';
                v_state.lap_began_at := v_now;
            END IF;
            SELECT w.ids, w.last_type, w.last_id INTO v_lap, v_state.lap_type, v_state.lap_id
            FROM {walk_lap}(v_state.lap_type, v_state.lap_id, p_limit) AS w;
            IF v_state.lap_type IS NULL THEN
                v_state.lap_ended_at := v_now;
            END IF;
        END IF;
    END IF;

    SELECT
        array_agg(v.id) FILTER (WHERE v.verdict = 'due'),
        array_agg(v.id) FILTER (WHERE v.verdict = 'later'), array_agg(v.moment) FILTER (WHERE v.verdict = 'later'),
        array_agg(v.id) FILTER (WHERE v.verdict = 'gone'),
        array_agg(v.id) FILTER (WHERE v.verdict = 'archive'), array_agg(v.type_name) FILTER (WHERE v.verdict = 'archive')
    INTO v_due, v_later, v_later_at, v_gone, v_archive, v_archive_types FROM {verdicts}(v_turn, v_now) AS v;
    v_due := coalesce(v_due, '{}');
    IF cardinality(v_lap) > 0 THEN
        SELECT
            coalesce(array_agg(v.id) FILTER (WHERE v.verdict = 'due'), '{}'),
            v_archive || array_agg(v.id) FILTER (WHERE v.verdict = 'archive'),
            v_archive_types || array_agg(v.type_name) FILTER (WHERE v.verdict = 'archive')
        INTO v_part, v_archive, v_archive_types FROM {verdicts}(v_lap, v_now) AS v;
        v_part := array(SELECT unnest(v_part) EXCEPT SELECT unnest(v_due));
    ELSE
        v_part := '{}';
    END IF;
    v_chains := '{}';
    IF cardinality(v_due) + cardinality(v_part) > 0 THEN
        SELECT array_agg(p.chain_id), array_agg(p.chain_type), array_agg(p.jobs) INTO v_chains, v_types, v_jobs
        FROM {delete_due}({lock_prunable}(v_due || v_part, v_now, 'due'), v_now, v_now) AS p;
        v_chains := coalesce(v_chains, '{}');
        RETURN QUERY SELECT 'deleted', gone.type_name, count(*), sum(gone.jobs)::bigint,
            NULL::double precision, NULL::double precision, NULL::double precision
        FROM unnest(v_types, v_jobs) AS gone (type_name, jobs) GROUP BY gone.type_name;
    END IF;
    PERFORM {note_chains}(
        v_later, v_later_at, v_archive, v_archive_types,
        CASE WHEN cardinality(v_chains) < cardinality(v_due) + cardinality(v_part) THEN array(SELECT unnest(v_due) EXCEPT SELECT unnest(v_chains)) END,
        v_until, v_now
    );
    PERFORM {forget_notes}(v_noted, v_chains, cardinality(v_part) > 0, v_gone, v_now);
    UPDATE {pruning} SET pruned_at = v_now, noted_until = v_until, lap_type = v_state.lap_type, lap_id = v_state.lap_id,
        lap_began_at = v_state.lap_began_at, lap_ended_at = v_state.lap_ended_at;
    RETURN QUERY SELECT 'examined', NULL::text, (cardinality(v_turn) + cardinality(v_lap))::bigint, NULL::bigint,
        extract(epoch FROM clock_timestamp() - v_began)::double precision, v_late, coalesce(v_walk.shortest, 0);
    IF v_left <= 0 THEN
        RETURN QUERY SELECT 'more', NULL::text, NULL::bigint, NULL::bigint, NULL::double precision, NULL::double precision, NULL::double precision;
    END IF;
    IF v_state.lap_type IS NOT NULL AND p_lap IS NOT NULL THEN
        RETURN QUERY SELECT 'lap', NULL::text, NULL::bigint, NULL::bigint, NULL::double precision, NULL::double precision, NULL::double precision;
    END IF;
END $body$;
