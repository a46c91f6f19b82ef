-- Who did what by hand.
-- oldest: 1

-- chain_id is the chain that was changed, or that of a bulk operation. details is a JSON object.
CREATE TABLE {prefix}audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    chain_id TEXT,
    done_by TEXT,
    reason TEXT,
    details TEXT
) STRICT;

-- list_audit of one chain.
CREATE INDEX {prefix}audit_chain ON {prefix}audit (chain_id, id) WHERE chain_id IS NOT NULL;
