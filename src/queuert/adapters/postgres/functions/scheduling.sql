-- Schedules. Their rows are written by one function only, and each row only if its version is the
-- one that was read: of two writers, the second writes nothing.

-- What is due, and as the last row (without a name) when the next one will be. Index schedule_due.
-- With `p_lock`, the rows are locked, and locked ones are skipped: it never waits.
CREATE OR REPLACE FUNCTION {due_schedules}(p_limit integer, p_functions text[], p_lock boolean)
RETURNS TABLE (
    read_at timestamptz, next_in double precision, name text, incarnation bigint, version bigint, next_at timestamptz,
    due_at timestamptz, by_function boolean, declared boolean, definition text, state text
) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
BEGIN
    IF p_lock THEN
        RETURN QUERY
        SELECT v_now, NULL::double precision, s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared,
            s.definition::text, s.state::text
        FROM {schedule} AS s
        WHERE s.due_at <= v_now AND (NOT s.by_function OR s.name = ANY (p_functions))
        ORDER BY s.due_at, s.name LIMIT p_limit FOR UPDATE SKIP LOCKED;
    ELSE
        RETURN QUERY
        SELECT v_now, NULL::double precision, s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared,
            s.definition::text, s.state::text
        FROM {schedule} AS s
        WHERE s.due_at <= v_now AND (NOT s.by_function OR s.name = ANY (p_functions))
        ORDER BY s.due_at, s.name LIMIT p_limit;
    END IF;
    RETURN QUERY
    SELECT v_now, (
        SELECT extract(epoch FROM s.due_at - v_now)::double precision FROM {schedule} AS s
        WHERE s.due_at > v_now AND (NOT s.by_function OR s.name = ANY (p_functions))
        ORDER BY s.due_at, s.name LIMIT 1
    ), NULL::text, NULL::bigint, NULL::bigint, NULL::timestamptz, NULL::timestamptz, NULL::boolean, NULL::boolean, NULL::text, NULL::text;
END $body$;

-- Returns the names that were stored. Locks the rows in the order of their names (primary key), and
-- waits for those that another transaction has written.
CREATE OR REPLACE FUNCTION {save_schedules}(
    p_names text[], p_incarnations bigint[], p_versions bigint[], p_next_at timestamptz[], p_due_at timestamptz[],
    p_by_function boolean[], p_declared boolean[], p_definitions text[], p_states text[]
) RETURNS SETOF text LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_row record;
BEGIN
    FOR v_row IN
        SELECT given.* FROM unnest(
            p_names, p_incarnations, p_versions, p_next_at, p_due_at, p_by_function, p_declared, p_definitions, p_states
        ) AS given (name, incarnation, version, next_at, due_at, by_function, declared, definition, state)
        ORDER BY given.name COLLATE "C"
    LOOP
        IF v_row.version > 0 THEN
            UPDATE {schedule} AS s SET
                version = s.version + 1, next_at = v_row.next_at, due_at = v_row.due_at, by_function = v_row.by_function,
                definition = v_row.definition::json, state = v_row.state::json
            WHERE s.name = v_row.name AND s.version = v_row.version;
        ELSE
            INSERT INTO {schedule} (name, incarnation, version, next_at, due_at, by_function, declared, definition, state)
            VALUES (
                v_row.name, v_row.incarnation, 1, v_row.next_at, v_row.due_at, v_row.by_function, v_row.declared,
                v_row.definition::json, v_row.state::json
            )
            ON CONFLICT (name) DO NOTHING;
        END IF;
        IF FOUND THEN
            RETURN NEXT v_row.name;
        END IF;
    END LOOP;
END $body$;

-- Workers of these releases declare these schedules. Returns all releases of the schedules. Locks
-- the rows in the order of schedule and release (primary key). Old releases are forgotten: their
-- rows are skipped if another transaction has locked them.
CREATE OR REPLACE FUNCTION {see_releases}(
    p_schedules text[], p_releases text[], p_alive_for double precision, p_forget_after double precision
) RETURNS TABLE (schedule text, release text, first_seen_at timestamptz, seen_at timestamptz)
LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
BEGIN
    INSERT INTO {schedule_seen} AS r (schedule, release, first_seen_at, seen_at)
    SELECT DISTINCT given.schedule COLLATE "C", given.release COLLATE "C", v_now, v_now
    FROM unnest(p_schedules, p_releases) AS given (schedule, release) ORDER BY 1, 2
    ON CONFLICT (schedule, release) DO UPDATE SET
        first_seen_at = CASE WHEN r.seen_at < v_now - make_interval(secs => p_alive_for) THEN v_now ELSE r.first_seen_at END,
        seen_at = greatest(r.seen_at, v_now);
    DELETE FROM {schedule_seen} AS r WHERE (r.schedule, r.release) IN (
        SELECT old.schedule, old.release FROM {schedule_seen} AS old
        WHERE old.schedule = ANY (p_schedules) AND old.seen_at < v_now - make_interval(secs => p_forget_after)
        FOR UPDATE SKIP LOCKED
    );
    RETURN QUERY
    SELECT r.schedule, r.release, r.first_seen_at, r.seen_at FROM {schedule_seen} AS r
    WHERE r.schedule = ANY (p_schedules) ORDER BY r.schedule, r.release;
END $body$;
