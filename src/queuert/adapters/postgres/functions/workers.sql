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
