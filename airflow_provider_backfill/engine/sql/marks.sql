-- The statements of ChunkMarks, written as those of ledger.sql are.

-- name: create
CREATE TABLE IF NOT EXISTS {marks} (
    backfill_id TEXT NOT NULL,
    chunk_id TEXT NOT NULL,
    mark TEXT NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    marked_at TIMESTAMPTZ NOT NULL
)

-- name: done
-- pending, failed -> completed, by a person's hand. A version that was to be replaced stays, with its loads; of
-- others the ledger does not know the rows.
UPDATE {ledger} SET
    status = 'completed', completed_at = {now},
    records_loaded = CASE WHEN load_ids IS NULL THEN NULL ELSE records_loaded END,
    claimed_by = NULL, claimed_at = NULL, claim_token = NULL, lease_expires_at = NULL, started_at = NULL,
    error = NULL, will_retry = NULL, dag_id = NULL, dag_run_id = NULL, task_id = NULL, map_index = NULL,
    updated_at = {now}
WHERE backfill_id = :backfill_id AND strpos(:chunk_ids, chunk_id) > 0 AND status IN ('pending', 'failed')
RETURNING chunk_id

-- name: forget
-- completed -> pending, of a version whose rows are gone, as a person says: there is nothing to replace.
UPDATE {ledger} SET
    status = 'pending', load_ids = NULL, records_loaded = NULL, claimed_by = NULL, claimed_at = NULL,
    claim_token = NULL, lease_expires_at = NULL, started_at = NULL, completed_at = NULL, updated_at = {now}
WHERE backfill_id = :backfill_id AND strpos(:chunk_ids, chunk_id) > 0 AND status = 'completed'
  AND covered_by IS NULL
RETURNING chunk_id

-- name: note
INSERT INTO {marks} (backfill_id, chunk_id, mark, who, why, marked_at)
SELECT backfill_id, chunk_id, :mark, :who, :why, {now} FROM {ledger}
WHERE backfill_id = :backfill_id AND strpos(:chunk_ids, chunk_id) > 0

-- name: all_marks
SELECT backfill_id, chunk_id, mark, who, why, marked_at FROM {marks} ORDER BY marked_at
