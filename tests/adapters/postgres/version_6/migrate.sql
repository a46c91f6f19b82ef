-- The versions of the schema.

-- read: exists
SELECT 1 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = :schema::text AND c.relname = :table::text;

-- read: current
SELECT coalesce(max(version), 0) FROM "public"."queuert_schema_version";

-- write: create
CREATE TABLE IF NOT EXISTS "public"."queuert_schema_version" (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());

-- write: record
INSERT INTO "public"."queuert_schema_version" (version) VALUES (:version::integer);

-- Tried, never waited for: a session that waits for an advisory lock keeps CREATE INDEX CONCURRENTLY waiting for ever.
-- read: try_lock
SELECT pg_try_advisory_xact_lock(1903519093, hashtext('public/queuert_/migrate'));

-- read: schema_exists
SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = :schema::text;

-- write: create_schema
CREATE SCHEMA IF NOT EXISTS "public";
