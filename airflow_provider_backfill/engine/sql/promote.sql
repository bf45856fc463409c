-- What is asked of the ledger beside the rows that are promoted; nothing is changed there.

-- name: loaded
-- Chunks that loaded rows of their own and overlap an interval; one that was found covered has none.
SELECT chunk_from, chunk_to, chunk_size, load_ids, coalesce(records_loaded, 0)
FROM {ledger}
WHERE source_section = :source_section AND coalesce(resource_name, '') = :resources
  AND status = 'completed' AND covered_by IS NULL
  AND chunk_from < :end AND chunk_to > :start
ORDER BY chunk_from
