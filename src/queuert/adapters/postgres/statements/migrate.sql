-- The version of the tables. Until version 6 it was in the table `schema_version`. Libraries of
-- that version still read it: it is left as it is, so that they can restart.

-- By a query of the catalogue, not by to_regclass(): that answers from a cache, which does not show what
-- another process has committed while this transaction tried to get the lock.
-- read: exists
SELECT
    EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = {schema_name} AND c.relname = '{prefix}version'),
    EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = {schema_name} AND c.relname = '{prefix}schema_version');

-- read: current
SELECT max(version), max(oldest) FROM {version};

-- read: current_before
SELECT coalesce(max(version), 0), 0 FROM {version_6};

-- write: create
CREATE TABLE IF NOT EXISTS {version} (
    version integer PRIMARY KEY, oldest integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
);

-- write: record
INSERT INTO {version} (version, oldest) VALUES (:version::integer, :oldest::integer);

-- Tries once and does not wait: CREATE INDEX CONCURRENTLY would wait for ever for a session that
-- waits for an advisory lock.
-- read: try_lock
SELECT pg_try_advisory_xact_lock({lock_space}, hashtext('{lock_name}migrate'));

-- New tables and views get the rights and the owner of the table of jobs. Returns the commands for
-- that, to be run by the role that has just created them.
-- read: adopt
WITH job AS (
    SELECT relowner AS owner, relacl FROM pg_class WHERE oid = to_regclass({job_text})
), new AS (
    SELECT c.oid::regclass AS name, c.relowner AS owner FROM unnest(array_append(:names::text[], {version_text})) AS created (name)
    JOIN pg_class AS c ON c.oid = to_regclass(created.name) AND c.relkind IN ('r', 'v')
)
SELECT command FROM (
    SELECT 1, format('GRANT %s ON %s TO %s', a.privilege_type, new.name,
        CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
    FROM job CROSS JOIN LATERAL aclexplode(coalesce(job.relacl, acldefault('r', job.owner))) AS a
    JOIN new ON new.owner <> a.grantee
    UNION ALL
    SELECT 2, format('ALTER TABLE %s OWNER TO %s', new.name, job.owner::regrole)
    FROM job JOIN new ON new.owner <> job.owner
    -- Only if this role may set that owner.
    WHERE pg_has_role(job.owner, CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)
        AND (current_setting('is_superuser')::boolean OR has_schema_privilege(job.owner, {schema_text}::regnamespace, 'CREATE'))
) AS commands (step, command) ORDER BY step;

-- Drops the functions of all sets, and the table of versions until 6. The other tables follow.
-- write: drop
DO $body$
DECLARE
    v_functions text;
BEGIN
    IF to_regclass({function_set_text}) IS NOT NULL THEN
        FOR v_functions IN
            SELECT string_agg(p.oid::regprocedure::text, ', ') FROM {function_set} AS s
            JOIN pg_proc AS p ON p.pronamespace = to_regnamespace({schema_text}) AND p.proname = ANY (s.functions)
            GROUP BY s.digest
        LOOP
            EXECUTE 'DROP FUNCTION ' || v_functions;
        END LOOP;
        DROP FUNCTION IF EXISTS {schema}."{prefix}lane_left"() CASCADE;
        DROP FUNCTION IF EXISTS {schema}."{prefix}lane_joined"() CASCADE;
    END IF;
    DROP TABLE IF EXISTS {version_6};
END $body$;
