-- The statements of BackfillControls, written as those of ledger.sql are.

-- name: create
CREATE TABLE IF NOT EXISTS {controls} (
    backfill_id TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL,
    who TEXT NOT NULL,
    why TEXT,
    set_at TIMESTAMPTZ NOT NULL
)

-- name: put
-- The last word counts.
INSERT INTO {controls} (backfill_id, state, who, why, set_at) VALUES (:backfill_id, :state, :who, :why, {now})
ON CONFLICT (backfill_id)
DO UPDATE SET state = excluded.state, who = excluded.who, why = excluded.why, set_at = excluded.set_at

-- name: lift
DELETE FROM {controls} WHERE backfill_id = :backfill_id

-- name: find
SELECT backfill_id, state, who, why, set_at FROM {controls} WHERE :backfill_id IS NULL OR backfill_id = :backfill_id
