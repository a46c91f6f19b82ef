-- Giving back jobs that a worker does not know of.

-- Put back the jobs that a worker has claimed, except those that it names; returns their ids. The
-- claim is undone: no attempt is counted. Scans `running`. Locked rows are skipped, also locked
-- rows of `job`, as in `reap`.
CREATE OR REPLACE FUNCTION {release}(p_worker text, p_held text[], p_statistics boolean) RETURNS SETOF text
LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_id uuid;
    v_ids uuid[] := '{}';
BEGIN
    FOR v_id IN
        SELECT r.job_id FROM {running} AS r WHERE r.worker = p_worker AND r.job_id <> ALL (p_held::uuid[])
        ORDER BY r.job_id FOR UPDATE SKIP LOCKED
    LOOP
        PERFORM FROM {job} WHERE id = v_id FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            v_ids := v_ids || v_id;
        END IF;
    END LOOP;
    IF cardinality(v_ids) = 0 THEN
        RETURN;
    END IF;
    IF p_statistics THEN
        PERFORM {uncount}(v_ids);
    END IF;
    DELETE FROM {running} WHERE job_id = ANY (v_ids);
    PERFORM {enqueue}(v_ids, {clock});
    RETURN QUERY SELECT id::text FROM unnest(v_ids) AS id;
END $body$;
