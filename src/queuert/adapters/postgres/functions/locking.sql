-- Locking jobs. The order is the same everywhere, so that these functions never deadlock with each
-- other: in-flight rows by id, then deduplication keys, then job rows (pending ones first) by id.
-- docs/design/postgres-storage.md explains it.

-- Lock the in-flight row of a job. It is in `running`, `ready` (or `line`) or `later`; each is found by its
-- primary key. False: the job has none, because it is blocked, has ended or was deleted.
CREATE OR REPLACE FUNCTION {lock_in_flight}(p_id uuid) RETURNS boolean LANGUAGE plpgsql AS $body$
DECLARE
    v_job record;
BEGIN
    FOR v_try IN 1..1000 LOOP
        SELECT type_name, priority, scheduled_at, status, lane INTO v_job FROM {job} WHERE id = p_id;
        IF NOT FOUND OR v_job.status <> 'pending' THEN
            RETURN false;
        END IF;
        PERFORM FROM {running} WHERE job_id = p_id FOR UPDATE;
        IF FOUND THEN
            RETURN true;
        END IF;
        IF v_job.lane IS NULL THEN
            PERFORM FROM {ready} WHERE type_name = v_job.type_name AND priority = v_job.priority
                AND scheduled_at = v_job.scheduled_at AND id = p_id FOR UPDATE;
        ELSE
            PERFORM FROM {line} WHERE lane = v_job.lane AND priority = v_job.priority
                AND scheduled_at = v_job.scheduled_at AND id = p_id FOR UPDATE;
        END IF;
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

-- Lock job rows (primary key): first those of pending jobs by id, then all others, if they are free.
-- Returns the id of one that is not, or NULL. Then the caller has to release all locks (the error
-- QUE00 does that), wait for that row with `wait_for`, and begin again.
--
-- A job may be freed or cancelled while we wait for its row, and others may lock it at once, in its
-- new place in the order. So we wait for no row while we hold one of a blocked or ended job.
CREATE OR REPLACE FUNCTION {lock_rows}(p_ids uuid[]) RETURNS uuid LANGUAGE plpgsql AS $body$
DECLARE
    v_pending uuid[];
    v_others uuid[];
BEGIN
    v_pending := array(SELECT id FROM {job} WHERE id = ANY (p_ids) AND status = 'pending' ORDER BY status || '', id FOR UPDATE);
    v_others := array(SELECT id FROM {job} WHERE id = ANY (p_ids) AND status <> 'pending' FOR UPDATE SKIP LOCKED);
    IF cardinality(v_pending) + cardinality(v_others) = (SELECT count(*) FROM {job} WHERE id = ANY (p_ids)) THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT j.id FROM (SELECT unnest(p_ids) EXCEPT SELECT unnest(v_pending || v_others)) AS missed (id)
        JOIN {job} AS j ON j.id = missed.id LIMIT 1
    );
END $body$;

-- Wait until no other transaction holds a job row, without keeping it. NULL: no wait.
CREATE OR REPLACE FUNCTION {wait_for}(p_id uuid) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    IF p_id IS NULL THEN
        RETURN;
    END IF;
    PERFORM FROM {job} WHERE id = p_id FOR UPDATE;
    RAISE SQLSTATE 'QUE00';
EXCEPTION WHEN SQLSTATE 'QUE00' THEN
    NULL;
END $body$;

-- Lock jobs against all other changes: their in-flight rows, the keys that `p_chains` hold (index
-- key_chain), and the job rows (primary key). Returns NULL, or a job to wait for, as `lock_rows` does:
-- also if a job without an in-flight row has become pending by the time its own row is locked. That
-- would break the lock order.
--
-- It has no block of its own that could be rolled back. A block that ends well, inside of one that is
-- rolled back later, is not enough: the server makes those who wait for its locks wait for the whole
-- transaction.
CREATE OR REPLACE FUNCTION {try_lock}(p_ids uuid[], p_chains uuid[] DEFAULT '{}') RETURNS uuid LANGUAGE plpgsql AS $body$
DECLARE
    v_id uuid;
    v_in_flight integer := 0;
    v_missed uuid;
BEGIN
    FOR v_id IN SELECT DISTINCT asked FROM unnest(p_ids) AS asked ORDER BY asked LOOP
        IF {lock_in_flight}(v_id) THEN
            v_in_flight := v_in_flight + 1;
        END IF;
    END LOOP;
    IF cardinality(p_chains) > 0 THEN
        -- The empty string keeps the planner from walking all keys in order to avoid a small sort.
        PERFORM FROM {key} AS k WHERE k.chain_id = ANY (p_chains) ORDER BY k.chain_type || '', k.key FOR UPDATE;
    END IF;
    v_missed := {lock_rows}(p_ids);
    -- Jobs whose in-flight row we have locked stay pending. If any other job is pending, try again.
    IF v_missed IS NULL AND v_in_flight <> (SELECT count(*) FROM {job} WHERE id = ANY (p_ids) AND status = 'pending') THEN
        v_missed := p_ids[1];
    END IF;
    RETURN v_missed;
END $body$;

-- The same, until it succeeds.
CREATE OR REPLACE FUNCTION {lock_jobs}(p_ids uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_missed uuid;
BEGIN
    LOOP
        BEGIN
            v_missed := {try_lock}(p_ids);
            IF v_missed IS NULL THEN
                RETURN;
            END IF;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            PERFORM {wait_for}(v_missed);
        END;
    END LOOP;
END $body$;

-- The current jobs of chains, in their order; a chain that does not exist has none. Index job_chain.
CREATE OR REPLACE FUNCTION {current_jobs}(p_chains uuid[]) RETURNS uuid[] LANGUAGE plpgsql AS $body$
BEGIN
    RETURN array(
        SELECT last.id FROM unnest(p_chains) WITH ORDINALITY AS asked (chain_id, n)
        CROSS JOIN LATERAL (
            SELECT j.id FROM {job} AS j WHERE j.chain_id = asked.chain_id ORDER BY j.chain_index DESC LIMIT 1
        ) AS last
        ORDER BY asked.n
    );
END $body$;

-- Lock the rows of the current jobs of chains (index job_chain) and of the jobs `p_also`, in the
-- order of job rows. If a chain has moved on meanwhile, all locks are released and taken again,
-- with its new current job.
CREATE OR REPLACE FUNCTION {lock_current}(p_chains uuid[], p_also uuid[]) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_ids uuid[];
    v_missed uuid;
BEGIN
    LOOP
        BEGIN
            v_ids := {current_jobs}(p_chains);
            v_missed := {lock_rows}(v_ids || p_also);
            IF v_missed IS NULL AND {current_jobs}(p_chains) = v_ids THEN
                RETURN;
            END IF;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            PERFORM {wait_for}(v_missed);
        END;
    END LOOP;
END $body$;

-- Read chains and lock their current jobs (`try_lock`). If a chain has moved on meanwhile, all
-- locks are released and taken again, with its new current job.
CREATE OR REPLACE FUNCTION {lock_chains}(p_ids text[]) RETURNS TABLE ({chain_types}) LANGUAGE plpgsql {steady} AS $body$
#variable_conflict use_column
DECLARE
    v_ids uuid[];
    v_missed uuid;
BEGIN
    LOOP
        BEGIN
            v_ids := {current_jobs}(p_ids::uuid[]);
            v_missed := {try_lock}(v_ids);
            EXIT WHEN v_missed IS NULL AND {current_jobs}(p_ids::uuid[]) = v_ids;
            RAISE SQLSTATE 'QUE00';
        EXCEPTION WHEN SQLSTATE 'QUE00' THEN
            PERFORM {wait_for}(v_missed);
        END;
    END LOOP;
    RETURN QUERY SELECT * FROM {read_chains}(p_ids);
END $body$;
