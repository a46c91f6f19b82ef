-- Returning free space. Each step is a short transaction. The checkpoint does not wait for readers
-- or writers.

-- read: size
SELECT page_count * page_size FROM pragma_page_count() CROSS JOIN pragma_page_size();

-- read: free_pages
PRAGMA freelist_count;

-- Works only for files that queuert created: auto_vacuum is set when a file is created.
-- write: give_back
PRAGMA incremental_vacuum(1);

-- write: checkpoint
PRAGMA wal_checkpoint(PASSIVE);
