-- Workers that are gone. While a worker runs, its listening connection holds an advisory lock. The
-- server releases it when the connection ends.

-- The keys of the locks that workers hold in this database.
CREATE OR REPLACE FUNCTION {worker_locks}() RETURNS bigint[] LANGUAGE sql {steady} AS $body$
    SELECT coalesce(array_agg(l.objid::bigint), '{}') FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.classid = {worker_space} AND l.objsubid = 2 AND l.granted
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
$body$;

-- The workers other than `p_worker` that are dead and have running jobs of these types. Dead is one
-- whose lock has been missing for `p_grace` seconds since that was first noticed. A lock that was
-- held before the server started, or recovered from a crash, means nothing. A worker that misses its own lock takes that back
-- from its row, so that others do not act on it.
--
-- Locks: rows of `worker`, in the order of their ids; locked ones are skipped. Writes only if a lock
-- has disappeared or come back. Scans `worker`, and `running` only if there is a dead one.
CREATE OR REPLACE FUNCTION {dead_workers}(p_worker text, p_types text[], p_grace double precision) RETURNS SETOF text
LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_now timestamptz := {clock};
    v_server timestamptz := {server_run};
    v_held bigint[];
    v_changed text[];
    v_dead text[];
BEGIN
    IF NOT EXISTS (SELECT FROM {worker} AS w WHERE w.lock_server = v_server) THEN
        RETURN;
    END IF;
    v_held := {worker_locks}();
    v_changed := array(
        SELECT w.id FROM {worker} AS w
        WHERE w.lock_server = v_server AND CASE WHEN w.lock_key = ANY (v_held)
            THEN w.silent_since IS NOT NULL ELSE w.silent_since IS NULL OR w.id = p_worker END
        ORDER BY w.id FOR UPDATE SKIP LOCKED
    );
    IF cardinality(v_changed) > 0 THEN
        -- A worker may have come back between the two statements above. Now its row is locked, so
        -- that it cannot register before we have looked again.
        v_held := {worker_locks}();
        UPDATE {worker} AS w SET
            silent_since = CASE WHEN w.lock_key = ANY (v_held) OR w.id = p_worker THEN NULL ELSE v_now END,
            lock_key = CASE WHEN w.lock_key = ANY (v_held) OR w.id <> p_worker THEN w.lock_key END,
            lock_server = CASE WHEN w.lock_key = ANY (v_held) OR w.id <> p_worker THEN w.lock_server END
        WHERE w.id = ANY (v_changed);
    END IF;
    v_dead := array(
        SELECT w.id FROM {worker} AS w
        WHERE w.lock_server = v_server AND w.id <> p_worker AND w.lock_key <> ALL (v_held)
            AND w.silent_since <= v_now - make_interval(secs => p_grace)
    );
    IF cardinality(v_dead) > 0 THEN
        RETURN QUERY SELECT DISTINCT r.worker FROM {running} AS r WHERE r.worker = ANY (v_dead) AND r.type_name = ANY (p_types);
    END IF;
END $body$;

-- How many claims a worker has. Reads the table rather than its index, as `lapsed` does.
CREATE OR REPLACE FUNCTION {held_by}(p_worker text) RETURNS bigint LANGUAGE plpgsql STABLE
SET plan_cache_mode TO force_generic_plan SET enable_indexscan TO off SET enable_indexonlyscan TO off SET enable_bitmapscan TO off
SET max_parallel_workers_per_gather TO 0 SET jit TO off AS $body$
BEGIN
    RETURN (SELECT count(*) FROM {running} AS r WHERE r.worker = p_worker);
END $body$;

-- Workers with their states (see `list_workers` of the port), and what they tell of themselves; all,
-- if `p_ids` is null. Stable, so that all of it is read in the caller's snapshot. Nothing is locked.
-- Scans `worker`, and `running` if their jobs shall be counted. `p_seen_every`: seconds between two
-- registrations of a worker that does not tell. `p_overdue`: after how many times that one is late.
CREATE OR REPLACE FUNCTION {known_workers}(p_ids text[], p_seen_every double precision, p_overdue double precision, p_count boolean)
RETURNS TABLE (
    id text, registered_at timestamptz, seen_at timestamptz, horizon bigint, server_started timestamptz, lock_key bigint,
    silent_since timestamptz, process text, about text, types text[], state text, held bigint
) LANGUAGE plpgsql STABLE {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
    v_server timestamptz := {server_run};
    v_held bigint[];
BEGIN
    IF EXISTS (SELECT FROM {worker} AS w WHERE w.lock_server = v_server) THEN
        v_held := {worker_locks}();
    END IF;
    RETURN QUERY
    SELECT w.id, w.registered_at, w.seen_at, w.horizon, w.server_started, w.lock_key, w.silent_since, w.process, a.about, a.types,
        CASE
            WHEN a.stopped_at IS NOT NULL THEN 'dead'
            WHEN w.lock_key IS NOT NULL AND w.lock_server = v_server THEN CASE
                WHEN w.lock_key = ANY (v_held) THEN 'alive'
                WHEN w.silent_since <= v_now - interval '1 second' OR w.seen_at <= late.since THEN 'dead'
                ELSE 'unknown' END
            WHEN w.seen_at > late.since THEN 'alive'
            ELSE 'unknown'
        END,
        CASE WHEN p_count THEN {held_by}(w.id) END
    FROM {worker} AS w
    LEFT JOIN {worker_about} AS a ON a.id = w.id
    CROSS JOIN LATERAL (
        SELECT v_now - make_interval(secs => p_overdue * coalesce((a.about::json ->> 'seen_every')::double precision, p_seen_every))
    ) AS late (since)
    WHERE p_ids IS NULL OR w.id = ANY (p_ids);
END $body$;

-- Store that a worker is here, and return its row. The lock is stored only if it is held in this database: a worker may
-- listen on another server. What it tells is written only if it has changed. Locks the worker's own
-- rows, the one of `worker` first.
CREATE OR REPLACE FUNCTION {register}(
    p_worker text, p_lock_key bigint, p_horizon bigint, p_types text[], p_about text, p_seen_every double precision, p_overdue double precision
) RETURNS TABLE (
    id text, registered_at timestamptz, seen_at timestamptz, horizon bigint, server_started timestamptz, lock_key bigint,
    silent_since timestamptz, process text, about text, types text[], state text, held bigint
) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_now timestamptz := {clock};
    v_server timestamptz := {server_run};
    v_lock bigint;
BEGIN
    IF p_lock_key = ANY ({worker_locks}()) THEN
        v_lock := p_lock_key;
    END IF;
    INSERT INTO {worker} AS w (id, registered_at, seen_at, horizon, server_started, lock_key, lock_server)
    VALUES (p_worker, v_now, v_now, p_horizon, v_server, v_lock, CASE WHEN v_lock IS NOT NULL THEN v_server END)
    ON CONFLICT (id) DO UPDATE SET
        seen_at = excluded.seen_at,
        horizon = greatest(w.horizon, excluded.horizon),
        server_started = excluded.server_started,
        lock_key = excluded.lock_key,
        lock_server = excluded.lock_server,
        silent_since = NULL;
    IF EXISTS (
        SELECT FROM {worker_about} AS a
        WHERE a.id = p_worker AND a.about = coalesce(p_about, a.about) AND a.stopped_at IS NULL
    ) THEN
        NULL;
    ELSIF p_about IS NULL THEN
        UPDATE {worker_about} AS a SET stopped_at = NULL WHERE a.id = p_worker;
    ELSE
        INSERT INTO {worker_about} (id, types, about, told_at) VALUES (p_worker, p_types, p_about, v_now)
        ON CONFLICT (id) DO UPDATE SET
            types = excluded.types, about = excluded.about, told_at = excluded.told_at, stopped_at = NULL;
    END IF;
    RETURN QUERY SELECT k.* FROM {known_workers}(ARRAY[p_worker], p_seen_every, p_overdue, true) AS k;
END $body$;

-- Remember where the types of these workers were handled, and delete what the workers told. The
-- rows of `worker` must be locked, or gone. Locks rows of `last_handled`, in the order of the types.
CREATE OR REPLACE FUNCTION {keep_handled}(p_workers text[]) RETURNS void LANGUAGE plpgsql {steady} AS $body$
BEGIN
    INSERT INTO {last_handled} AS l (type_name, seen_at, host, release)
    SELECT DISTINCT ON (told.type_name) told.type_name, told.seen_at, told.host, told.release
    FROM (
        SELECT t.name, coalesce(w.seen_at, a.told_at), a.about::json ->> 'host', a.about::json ->> 'release'
        FROM {worker_about} AS a LEFT JOIN {worker} AS w ON w.id = a.id CROSS JOIN LATERAL unnest(a.types) AS t (name)
        WHERE a.id = ANY (p_workers)
    ) AS told (type_name, seen_at, host, release)
    ORDER BY told.type_name, told.seen_at DESC
    ON CONFLICT (type_name) DO UPDATE SET seen_at = excluded.seen_at, host = excluded.host, release = excluded.release
        WHERE l.seen_at <= excluded.seen_at;
    DELETE FROM {worker_about} WHERE id = ANY (p_workers);
END $body$;

-- A worker ends; false if its row is kept, because it still has jobs. Locks its rows.
CREATE OR REPLACE FUNCTION {forget_worker}(p_worker text) RETURNS boolean LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_now timestamptz := {clock};
BEGIN
    PERFORM FROM {worker} WHERE id = p_worker FOR UPDATE;
    IF NOT FOUND THEN
        RETURN true;
    END IF;
    IF EXISTS (SELECT FROM {running} WHERE worker = p_worker) THEN
        UPDATE {worker} SET lock_key = NULL, lock_server = NULL, silent_since = NULL WHERE id = p_worker;
        UPDATE {worker_about} SET stopped_at = v_now WHERE id = p_worker;
        RETURN false;
    END IF;
    UPDATE {worker} SET seen_at = v_now WHERE id = p_worker;
    PERFORM {keep_handled}(ARRAY[p_worker]);
    DELETE FROM {worker} WHERE id = p_worker;
    RETURN true;
END $body$;

-- Delete the rows of workers that were not seen for so many seconds and have no jobs; returns their
-- ids. Older versions delete rows of `worker` and leave those of `worker_about`. Locked rows are
-- skipped.
CREATE OR REPLACE FUNCTION {clean_workers}(p_unseen_for double precision) RETURNS SETOF text LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_limit timestamptz := {clock} - make_interval(secs => p_unseen_for);
    v_gone text[];
    v_left text[];
BEGIN
    v_gone := ARRAY(
        SELECT w.id FROM {worker} AS w
        WHERE w.seen_at <= v_limit AND NOT EXISTS (SELECT FROM {running} AS r WHERE r.worker = w.id)
        ORDER BY w.id FOR UPDATE SKIP LOCKED
    );
    v_left := ARRAY(
        SELECT a.id FROM {worker_about} AS a
        WHERE a.told_at <= v_limit AND NOT EXISTS (SELECT FROM {worker} AS w WHERE w.id = a.id)
        ORDER BY a.id FOR UPDATE SKIP LOCKED
    );
    IF cardinality(v_gone) + cardinality(v_left) > 0 THEN
        PERFORM {keep_handled}(v_gone || v_left);
        DELETE FROM {worker} WHERE id = ANY (v_gone);
    END IF;
    RETURN QUERY SELECT id FROM unnest(v_gone) AS id;
END $body$;
