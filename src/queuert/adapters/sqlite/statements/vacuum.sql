-- Giving space back. Each step is a short transaction of its own; the checkpoint waits for nobody.

-- read: free_pages
PRAGMA freelist_count;

-- Has an effect on databases that were created by us: auto_vacuum is chosen when a file is made.
-- write: give_back
PRAGMA incremental_vacuum(1);

-- write: checkpoint
PRAGMA wal_checkpoint(PASSIVE);
