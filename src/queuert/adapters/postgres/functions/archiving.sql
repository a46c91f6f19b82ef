-- Archiving what has been kept long enough. Locks: an advisory lock for the type, then rows of `kept`,
-- `job`, `blocker` and `key`, whichever are free: it waits for none of them.

-- Take chains of a type that are due, and lock them. Returns those that can be archived and deleted now;
-- the others are noted, to be looked at again. None if another process archives the type. Index
-- kept_archive.
CREATE OR REPLACE FUNCTION {take_archive}(p_type text, p_limit integer)
RETURNS uuid[] LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_now timestamptz := {clock};
    v_again timestamptz := v_now + make_interval(secs => {archive_again});
    v_asked uuid[];
    v_set uuid[];
BEGIN
    IF NOT pg_try_advisory_xact_lock({lock_space}, hashtext('{lock_name}archive.' || p_type)) THEN
        RETURN '{}';
    END IF;
    v_asked := array(
        SELECT k.chain_id FROM {kept} AS k WHERE k.archive = p_type ORDER BY k.chain_id LIMIT p_limit FOR UPDATE SKIP LOCKED
    );
    v_set := {lock_prunable}(v_asked, v_now, 'archive');
    IF cardinality(v_set) < cardinality(v_asked) THEN
        -- Retried, needed, locked, gone, or kept for longer by another policy. `archive`: it is needed, or
        -- locked. A step of pruning may be under way, and will have looked at all notes up to its own time.
        UPDATE {kept} AS k SET archive = NULL, due_at = greatest(v_again, CASE v.verdict
            WHEN 'archive' THEN {look_again}(j.created_at, v_now, {look_again_needed}, 0) ELSE v.moment END)
        FROM {verdicts}(array(SELECT unnest(v_asked) EXCEPT SELECT unnest(v_set)), v_now) AS v
        JOIN {job} AS j ON j.id = v.id
        WHERE k.chain_id = v.id AND v.verdict NOT IN ('gone', 'ever');
        DELETE FROM {kept} AS k WHERE k.chain_id = ANY (v_asked) AND k.chain_id <> ALL (v_set) AND k.archive IS NOT NULL;
    END IF;
    RETURN v_set;
END $body$;

-- Delete chains that were taken. Returns how many jobs they had. Primary key of `kept`.
CREATE OR REPLACE FUNCTION {drop_archived}(p_chains uuid[]) RETURNS bigint LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_now timestamptz := {clock};
    v_jobs bigint;
BEGIN
    SELECT sum(d.jobs) INTO v_jobs
    FROM {delete_due}(p_chains, v_now, v_now + make_interval(secs => {archive_again})) AS d;
    DELETE FROM {kept} AS k WHERE k.chain_id = ANY (p_chains) AND k.archive IS NOT NULL;
    RETURN coalesce(v_jobs, 0);
END $body$;

-- Make the partitions of this month and the next one, if any type is archived, and drop those that are
-- older than any type keeps. Only the owner of the table can. It waits for others for a moment at most:
-- it comes again. Returns whether there is more to delete. Locks `archive`.
CREATE OR REPLACE FUNCTION {tend_archive}() RETURNS boolean LANGUAGE plpgsql {steady} AS $body$
DECLARE
    v_month timestamp := date_trunc('month', {clock} AT TIME ZONE 'UTC');
    v_before text := current_setting('lock_timeout');
    v_from timestamp;
    v_old timestamp;
    v_name text;
    v_part record;
    v_deleted integer;
BEGIN
    IF NOT EXISTS (SELECT FROM {retention} AS r WHERE r.archived) AND NOT EXISTS (SELECT FROM {archive}) THEN
        RETURN false;
    END IF;
    -- Another process may be at it.
    IF NOT pg_try_advisory_xact_lock({lock_space}, hashtext('{lock_name}archive')) THEN
        RETURN false;
    END IF;
    SELECT v_month - make_interval(months => max(r.months)) INTO v_old FROM {retention} AS r WHERE r.archived
    HAVING bool_and(r.months IS NOT NULL);
    DELETE FROM {archive_rest} AS a WHERE a.ctid = ANY (array(
        SELECT o.ctid FROM {archive_rest} AS o WHERE o.archived_at < v_old AT TIME ZONE 'UTC' LIMIT 1000
    ));
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    IF NOT pg_has_role((SELECT c.relowner FROM pg_class AS c WHERE c.oid = {archive_text}::regclass), 'MEMBER') THEN
        RETURN v_deleted = 1000;
    END IF;
    SET LOCAL lock_timeout = '200ms';
    FOR v_from IN SELECT v_month + make_interval(months => n) FROM generate_series(0, 1) AS n LOOP
        v_name := '{prefix}archive' || to_char(v_from, '_YYYY_MM');
        CONTINUE WHEN to_regclass(format('%s.%I', {schema_text}, v_name)) IS NOT NULL;
        BEGIN
            EXECUTE format('CREATE TABLE %s.%I PARTITION OF %s FOR VALUES FROM (%L) TO (%L)', {schema_text}, v_name, {archive_text},
                v_from::text || '+00', (v_from + interval '1 month')::text || '+00');
        EXCEPTION WHEN lock_not_available OR check_violation OR insufficient_privilege OR duplicate_table THEN
            NULL;  -- rows of this month go, or have gone, to archive_rest
        END;
    END LOOP;
    FOR v_part IN
        SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = {archive_text}::regclass AND c.relname ~ '_[0-9][0-9][0-9][0-9]_[0-9][0-9]$'
            AND to_timestamp(right(c.relname, 7), 'YYYY_MM')::timestamp < v_old
    LOOP
        BEGIN
            EXECUTE format('DROP TABLE %s.%I', {schema_text}, v_part.relname);
        EXCEPTION WHEN lock_not_available OR insufficient_privilege THEN
            NULL;
        END;
    END LOOP;
    PERFORM set_config('lock_timeout', v_before, true);
    RETURN v_deleted = 1000;
END $body$;
