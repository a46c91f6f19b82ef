-- Locking jobs. The order is the same everywhere, so that these functions never deadlock with each
-- other: in-flight rows by id, then deduplication keys, then job rows (blocked ones last) by id.
-- docs/design/postgres-storage.md explains it.

-- Lock the in-flight row of a job. It is in `running`, `ready` or `later`; each is found by its
-- primary key. False: the job has none, because it is blocked, has ended or was deleted.
CREATE OR REPLACE FUNCTION {lock_in_flight}(p_id uuid) RETURNS boolean LANGUAGE plpgsql AS $body$
DECLARE
    v_job record;
BEGIN
    FOR v_try IN 1..1000 LOOP
        SELECT type_name, priority, scheduled_at, status INTO v_job FROM {job} WHERE id = p_id;
        IF NOT FOUND OR v_job.status <> 'pending' THEN
            RETURN false;
        END IF;
        PERFORM FROM {running} WHERE job_id = p_id FOR UPDATE;
        IF FOUND THEN
            RETURN true;
        END IF;
        PERFORM FROM {ready} WHERE type_name = v_job.type_name AND priority = v_job.priority
            AND scheduled_at = v_job.scheduled_at AND id = p_id FOR UPDATE;
        IF FOUND THEN
            RETURN true;
        END IF;
        PERFORM FROM {later} WHERE type_name = v_job.type_name AND scheduled_at = v_job.scheduled_at
            AND id = p_id FOR UPDATE;
        IF FOUND THEN
            RETURN true;
        END IF;
        -- The job moved to another table between two lookups. With a fixed snapshot we cannot see
        -- its new row.
        IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            RAISE serialization_failure USING MESSAGE = 'could not serialize access due to concurrent update';
        END IF;
    END LOOP;
    -- A transaction that moves a job makes us wait for it, so two or three tries are enough. A job
    -- that is in no table was not written by these functions.
    RAISE data_corrupted USING MESSAGE = format('job %s is pending, but neither ready, nor due later, nor running', p_id);
END $body$;

-- Lock jobs against all other changes: their in-flight rows, the keys that `p_chains` hold (index
-- key_chain), and the job rows (primary key). A job without an in-flight row may have become
-- pending by the time its own row is locked. That would break the lock order, so all locks are
-- released, by leaving the inner block with an error, and taken again.
CREATE OR REPLACE FUNCTION {lock_jobs}(p_ids uuid[], p_chains uuid[] DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_ids uuid[] := array(SELECT DISTINCT asked FROM unnest(p_ids) AS asked ORDER BY asked);
    v_id uuid;
    v_in_flight integer;
    v_pending integer;
BEGIN
    LOOP
        BEGIN
            v_in_flight := 0;
            FOREACH v_id IN ARRAY v_ids LOOP
                IF {lock_in_flight}(v_id) THEN
                    v_in_flight := v_in_flight + 1;
                END IF;
            END LOOP;
            IF cardinality(p_chains) > 0 THEN
                -- The empty string keeps the planner from walking all keys in order to avoid a
                -- small sort.
                PERFORM FROM {key} AS k WHERE k.chain_id = ANY (p_chains) ORDER BY k.chain_type || '', k.key FOR UPDATE;
            END IF;
            PERFORM FROM {job} WHERE id = ANY (v_ids) ORDER BY status = 'blocked', id FOR UPDATE;
            -- Jobs whose in-flight row we have locked stay pending. If any other job is pending,
            -- try again.
            SELECT count(*) INTO v_pending FROM {job} WHERE id = ANY (v_ids) AND status = 'pending';
            IF v_pending = v_in_flight THEN
                RETURN;
            END IF;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            NULL;
        END;
    END LOOP;
END $body$;

-- Lock the rows of the current jobs of chains (index job_chain) and of the jobs `p_also`, in the
-- order of job rows. If a chain has moved on meanwhile, all locks are released and taken again,
-- with its new current job.
CREATE OR REPLACE FUNCTION {lock_current}(p_chains uuid[], p_also uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_ids uuid[];
    v_again uuid[];
BEGIN
    LOOP
        BEGIN
            v_ids := array(
                SELECT last.id FROM unnest(p_chains) WITH ORDINALITY AS asked (chain_id, n)
                CROSS JOIN LATERAL (
                    SELECT j.id FROM {job} AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
                ) AS last
                ORDER BY asked.n
            );
            PERFORM FROM {job} WHERE id = ANY (v_ids || p_also) ORDER BY status = 'blocked', id FOR NO KEY UPDATE;
            v_again := array(
                SELECT last.id FROM unnest(p_chains) WITH ORDINALITY AS asked (chain_id, n)
                CROSS JOIN LATERAL (
                    SELECT j.id FROM {job} AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
                ) AS last
                ORDER BY asked.n
            );
            IF v_again = v_ids THEN
                RETURN;
            END IF;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            NULL;
        END;
    END LOOP;
END $body$;

-- Read chains and lock their current jobs (`lock_jobs`). If a chain has moved on meanwhile, all
-- locks are released and taken again, with its new current job.
CREATE OR REPLACE FUNCTION {lock_chains}(p_ids text[]) RETURNS TABLE ({chain_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_ids uuid[];
    v_again uuid[];
BEGIN
    LOOP
        BEGIN
            v_ids := array(
                SELECT last.id FROM unnest(p_ids::uuid[]) WITH ORDINALITY AS asked (chain_id, n)
                CROSS JOIN LATERAL (
                    SELECT j.id FROM {job} AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
                ) AS last
                ORDER BY asked.n
            );
            PERFORM {lock_jobs}(v_ids);
            v_again := array(
                SELECT last.id FROM unnest(p_ids::uuid[]) WITH ORDINALITY AS asked (chain_id, n)
                CROSS JOIN LATERAL (
                    SELECT j.id FROM {job} AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
                ) AS last
                ORDER BY asked.n
            );
            EXIT WHEN v_again = v_ids;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            NULL;
        END;
    END LOOP;
    RETURN QUERY SELECT * FROM {read_chains}(p_ids);
END $body$;
