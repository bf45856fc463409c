-- What backfills were planned from, beyond what their ids and ledger rows say; the table stands beside the ledger.

-- name: create
CREATE TABLE IF NOT EXISTS {inputs} (
    backfill_id TEXT NOT NULL PRIMARY KEY,
    resources TEXT NOT NULL,
    planned_at TIMESTAMPTZ NOT NULL
)

-- name: remember
-- The first plan decides.
INSERT INTO {inputs} (backfill_id, resources, planned_at) VALUES (:backfill_id, :resources, {now})
ON CONFLICT (backfill_id) DO NOTHING

-- name: recall
SELECT resources FROM {inputs} WHERE backfill_id = :backfill_id
