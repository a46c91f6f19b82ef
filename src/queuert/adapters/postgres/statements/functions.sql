-- Installing this library's set of functions: in one transaction, under the lock of migrations.

-- Whether all functions of the set are there, and the schema version that it is recorded with.
-- read: installed
SELECT count(p.oid) = cardinality(s.functions), s.schema_version FROM {function_set} AS s
LEFT JOIN pg_proc AS p ON p.pronamespace = to_regnamespace({schema_text}) AND p.proname = ANY (s.functions)
WHERE s.digest = :digest::text GROUP BY s.digest;

-- Each function gets the EXECUTE rights that it had in the set before, including what was revoked
-- from PUBLIC. A new function gets the rights that all functions of the set before have in common.
-- The owner becomes that of the table of jobs, if this role may set it. Returns the commands for
-- this.
-- read: adopt
WITH before AS (
    SELECT s.digest, s.functions FROM {function_set} AS s WHERE s.digest <> :digest::text
    ORDER BY s.schema_version DESC, s.installed_at DESC LIMIT 1
), old AS (
    SELECT regexp_replace(p.proname, '_' || before.digest || '$', '') AS base, a.grantee, a.is_grantable
    FROM before
    JOIN pg_proc AS p ON p.pronamespace = to_regnamespace({schema_text}) AND p.proname = ANY (before.functions)
    CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
), new AS (
    SELECT p.oid::regprocedure::text AS name, regexp_replace(p.proname, '_' || :digest::text || '$', '') AS base,
        p.proowner AS owner, coalesce(p.proacl, acldefault('f', p.proowner)) AS acl
    FROM pg_proc AS p WHERE p.pronamespace = to_regnamespace({schema_text}) AND p.proname = ANY (:functions::text[])
), rights AS (
    SELECT new.name, old.grantee, old.is_grantable FROM new JOIN old ON old.base = new.base
    UNION
    SELECT new.name, old.grantee, bool_and(old.is_grantable) FROM new CROSS JOIN old
    WHERE new.base NOT IN (SELECT base FROM old)
    GROUP BY new.name, old.grantee HAVING count(DISTINCT old.base) = (SELECT count(DISTINCT base) FROM old)
), job AS (
    SELECT relowner AS owner FROM pg_class WHERE oid = to_regclass({job_text})
)
SELECT command FROM (
    SELECT 1, format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', string_agg(new.name, ', ')) FROM new
    WHERE EXISTS (SELECT FROM old) AND new.name NOT IN (SELECT name FROM rights WHERE grantee = 0) HAVING count(*) > 0
    UNION ALL
    SELECT 2, format('GRANT EXECUTE ON FUNCTION %s TO %s', string_agg(a.name, ', '),
        CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
        || CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
    FROM (
        SELECT name, grantee, is_grantable FROM rights
        EXCEPT SELECT new.name, has.grantee, has.is_grantable FROM new CROSS JOIN LATERAL aclexplode(new.acl) AS has
    ) AS a GROUP BY a.grantee, a.is_grantable
    UNION ALL
    SELECT 3, format('ALTER FUNCTION %s OWNER TO %s', new.name, job.owner::regrole)
    FROM job JOIN new ON new.owner <> job.owner
    WHERE pg_has_role(job.owner, CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)
        AND (current_setting('is_superuser')::boolean OR has_schema_privilege(job.owner, {schema_text}::regnamespace, 'CREATE'))
) AS commands (step, command) ORDER BY step;

-- A set is dropped two schema versions later. The newest set before this one is always kept: a
-- deploy may skip versions, and processes that use that set may still run. Returns the commands,
-- without those for functions that this role may not drop.
-- read: outdated
SELECT format('DROP FUNCTION %s', string_agg(p.oid::regprocedure::text, ', ')) FROM {function_set} AS s
JOIN pg_proc AS p ON p.pronamespace = to_regnamespace({schema_text}) AND p.proname = ANY (s.functions)
WHERE s.digest <> :digest::text AND s.schema_version <= (SELECT max(version) - 2 FROM {version})
    AND s.schema_version < (SELECT max(schema_version) FROM {function_set})
GROUP BY s.digest HAVING bool_and(pg_has_role(p.proowner, 'USAGE'));

-- write: forget
DELETE FROM {function_set} AS s WHERE s.schema_version <= (SELECT max(version) - 2 FROM {version}) AND NOT EXISTS (
    SELECT FROM pg_proc AS p WHERE p.pronamespace = to_regnamespace({schema_text}) AND p.proname = ANY (s.functions)
);

-- write: record
INSERT INTO {function_set} AS s (digest, schema_version, functions)
SELECT :digest::text, max(version), :functions::text[] FROM {version}
ON CONFLICT (digest) DO UPDATE SET schema_version = excluded.schema_version, functions = excluded.functions;
