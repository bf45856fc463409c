-- The ledger's statements. One name each, one method of Ledger each.
-- Parameters are written :name. In braces: the table, and what a dialect says differently (see Dialect.fragments).

-- name: create
-- The first seventeen columns are shared with other tools, in this order and with these types.
CREATE TABLE IF NOT EXISTS {ledger} (
    pipeline_name TEXT NOT NULL,
    source_section TEXT NOT NULL,
    resource_name TEXT,
    backfill_id TEXT NOT NULL,
    chunk_id TEXT NOT NULL,
    chunk_from TIMESTAMPTZ NOT NULL,
    chunk_to TIMESTAMPTZ NOT NULL,
    backfill_from TIMESTAMPTZ NOT NULL,
    backfill_to TIMESTAMPTZ NOT NULL,
    chunk_size TEXT NOT NULL,
    status TEXT NOT NULL,
    claimed_by TEXT,
    claimed_at TIMESTAMPTZ,
    started_at TIMESTAMPTZ,
    completed_at TIMESTAMPTZ,
    records_loaded BIGINT,
    run_id TEXT NOT NULL
)

-- name: add_column
-- A table that another tool made gets the columns it lacks.
ALTER TABLE {ledger} ADD COLUMN IF NOT EXISTS {column} {type}

-- name: create_unique_index
CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {ledger} (backfill_id, chunk_id)

-- name: duplicates
-- Chunks that stand more than once in a table without a key, which keep the unique index from being made.
SELECT backfill_id, chunk_id FROM {ledger}
GROUP BY backfill_id, chunk_id HAVING count(*) > 1
ORDER BY backfill_id, chunk_id LIMIT 1

-- name: drop_duplicates
-- Of each chunk one row stays: a completed one if there is one, else the one that somebody is furthest with.
DELETE FROM {ledger} WHERE {row_id} IN (
    SELECT row_id FROM (
        SELECT {row_id} AS row_id, row_number() OVER (
            PARTITION BY backfill_id, chunk_id
            ORDER BY status = 'completed' DESC, status = 'running' DESC, status = 'claimed' DESC,
                status = 'failed' DESC, completed_at, {row_id}
        ) AS place
        FROM {ledger}
    ) AS ranked WHERE place > 1
)
RETURNING chunk_id

-- name: stored_inputs
-- What the rows of a backfill say it was asked for.
SELECT DISTINCT source_section, resource_name, backfill_from, backfill_to, chunk_size
FROM {ledger} WHERE backfill_id = :backfill_id

-- name: foreign_chunks
-- Chunks of the same source in another backfill that overlap the window and are done.
SELECT backfill_id, chunk_id, chunk_from, chunk_to, chunk_size, resource_name, {present}, {present_mine},
    {load_ids} IS NULL AND records_loaded IS DISTINCT FROM 0
FROM {ledger} AS other
WHERE other.source_section = :source_section
  AND {resources_meet}
  AND other.backfill_id <> :backfill_id
  -- A version that is being replaced still stands; one that was only found covered has nothing of its own.
  AND (other.status = 'completed' OR {load_ids} IS NOT NULL) AND {covered_by} IS NULL
  AND other.chunk_from < :backfill_to AND other.chunk_to > :backfill_from
ORDER BY chunk_from, backfill_id

-- name: cover
-- pending, failed -> completed: what other backfills have loaded already.
UPDATE {ledger} SET
    status = 'completed', completed_at = {now}, records_loaded = 0, covered_by = covered.backfills,
    error = NULL, will_retry = NULL, updated_at = {now}
FROM {covered_chunks} AS covered
WHERE backfill_id = :backfill_id AND chunk_id = covered.id
  AND status IN ('pending', 'failed') AND load_ids IS NULL
RETURNING chunk_id

-- name: inside
-- What a chunk takes the place of that is loaded over others: those of other backfills that lie within it.
SELECT other.load_ids FROM {ledger} AS other
JOIN {ledger} AS mine
  ON other.source_section = mine.source_section AND {resources_meet_mine}
 AND other.backfill_id <> mine.backfill_id
 AND other.chunk_from >= mine.chunk_from AND other.chunk_to <= mine.chunk_to
WHERE mine.backfill_id = :backfill_id AND mine.chunk_id = :chunk_id
  AND other.status = 'completed' AND other.load_ids IS NOT NULL

-- name: absorb
-- Completed chunks in whose place another one's rows are: covered by that, and without rows of their own.
UPDATE {ledger} AS other SET
    covered_by = :backfill_id, load_ids = NULL, records_loaded = 0, updated_at = {now}
WHERE NOT other.backfill_id = :backfill_id AND other.status = 'completed' AND other.covered_by IS NULL
  AND EXISTS (
    SELECT 1 FROM {ledger} AS mine
    WHERE mine.backfill_id = :backfill_id AND mine.chunk_id = :chunk_id
      AND other.source_section = mine.source_section AND {resources_meet_mine}
      AND other.chunk_from >= mine.chunk_from AND other.chunk_to <= mine.chunk_to
  )
RETURNING run_id

-- name: absorb_restated
-- pending, failed -> completed: likewise, where somebody returned them to pending meanwhile. Their rows are replaced.
UPDATE {ledger} AS other SET
    status = 'completed', completed_at = {now}, covered_by = :backfill_id, load_ids = NULL, records_loaded = 0,
    error = NULL, will_retry = NULL, updated_at = {now}
WHERE NOT other.backfill_id = :backfill_id AND other.status IN ('pending', 'failed') AND other.load_ids IS NOT NULL
  AND EXISTS (
    SELECT 1 FROM {ledger} AS mine
    WHERE mine.backfill_id = :backfill_id AND mine.chunk_id = :chunk_id
      AND other.source_section = mine.source_section AND {resources_meet_mine}
      AND other.chunk_from >= mine.chunk_from AND other.chunk_to <= mine.chunk_to
  )
RETURNING run_id

-- name: source_chunks
-- Every chunk of a source, for what it has, lacks or has failed at.
SELECT backfill_id, chunk_id, chunk_from, chunk_to, backfill_from, backfill_to, chunk_size, resource_name, status,
    status IN ('claimed', 'running') AND {lease_expires_at} <= {now}, {load_ids} IS NOT NULL,
    {covered_by} IS NOT NULL, started_at IS NOT NULL, {present}
FROM {ledger} AS other
WHERE other.source_section = :source_section AND {resources_meet}
ORDER BY chunk_from, backfill_id, chunk_id

-- name: history
-- How long the latest attempts of a source took, and what they brought.
SELECT chunk_from, chunk_to, chunk_size, extract(epoch FROM (completed_at - started_at)), records_loaded
FROM {ledger}
WHERE source_section = :source_section AND status = 'completed' AND {covered_by} IS NULL
  AND started_at IS NOT NULL AND completed_at IS NOT NULL
ORDER BY completed_at DESC LIMIT :limit

-- name: seed
-- (new) -> pending, all chunks of a plan at once; rows that stand already stay as they are.
INSERT INTO {ledger} (
    pipeline_name, source_section, resource_name, backfill_id, chunk_id, chunk_from, chunk_to,
    backfill_from, backfill_to, chunk_size, status, run_id, updated_at
)
SELECT
    :pipeline_name, :source_section, :resource_name, :backfill_id, plan.chunk_id, plan.chunk_from, plan.chunk_to,
    :backfill_from, :backfill_to, :chunk_size, 'pending', plan.run_id, {now}
FROM {planned_chunks} AS plan
ON CONFLICT (backfill_id, chunk_id) DO NOTHING

-- name: clock
SELECT {now}

-- name: chunks
SELECT {columns} FROM {ledger} WHERE backfill_id = :backfill_id ORDER BY chunk_id

-- name: completed
SELECT chunk_id FROM {ledger} WHERE backfill_id = :backfill_id AND status = 'completed'

-- name: standing
-- How far a backfill is, for the metrics.
SELECT count(CASE WHEN status = 'completed' THEN 1 END), count(*) FROM {ledger} WHERE backfill_id = :backfill_id

-- name: chunk
SELECT {columns} FROM {ledger} WHERE backfill_id = :backfill_id AND chunk_id = :chunk_id

-- name: neighbours
-- What is completed beside a chunk that was published: the two before it and the one behind.
SELECT chunk_id, chunk_from, chunk_to, chunk_size, records_loaded FROM {ledger}
WHERE backfill_id = :backfill_id AND chunk_id IN (:second, :before, :behind)
  -- What was found covered has its rows in another backfill.
  AND status = 'completed' AND records_loaded IS NOT NULL AND covered_by IS NULL

-- name: dataset_chunks
SELECT {columns} FROM {ledger}
WHERE :source_section IS NULL OR source_section = :source_section
ORDER BY source_section, backfill_from, backfill_id, chunk_id

-- name: lapse
-- claimed, running -> failed: a holder in the chunk's way that let its lease run out is dead or cut off.
UPDATE {ledger} AS other SET
    status = 'failed',
    error = 'lease of ' || coalesce(claimed_by, 'unknown') || ' ran out',
    claim_token = NULL, lease_expires_at = NULL, completed_at = {now}, updated_at = {now}
WHERE other.status IN ('claimed', 'running')
  AND other.lease_expires_at <= {now}
  AND EXISTS (
    SELECT 1 FROM {ledger} AS mine
    WHERE mine.backfill_id = :backfill_id AND mine.chunk_id = :chunk_id
      AND other.source_section = mine.source_section
      AND {resources_meet_mine}
      AND other.chunk_from < mine.chunk_to AND other.chunk_to > mine.chunk_from
  )
RETURNING chunk_id

-- name: claim
-- pending, failed -> claimed, unless a claim of the same source overlaps, or what another backfill has completed.
-- It comes after lapse, in its transaction: a claim that stands lives, whatever the clock says by now.
UPDATE {ledger} AS mine SET
    status = 'claimed',
    claimed_by = :claimed_by, claimed_at = {now}, claim_token = :token,
    lease_expires_at = {now} + :lease_seconds * INTERVAL '1 second',
    attempt = coalesce(attempt, 0) + 1, started_at = NULL, completed_at = NULL, error = NULL, will_retry = NULL,
    dag_id = :dag_id, dag_run_id = :dag_run_id, task_id = :task_id, map_index = :map_index, updated_at = {now}
WHERE mine.backfill_id = :backfill_id AND mine.chunk_id = :chunk_id
  AND mine.status IN ('pending', 'failed')
  AND NOT EXISTS (
    SELECT 1 FROM {ledger} AS other
    WHERE other.source_section = mine.source_section
      AND {resources_meet_mine}
      AND (other.status IN ('claimed', 'running')
           OR ((other.status = 'completed' OR other.load_ids IS NOT NULL) AND other.covered_by IS NULL
               AND other.backfill_id <> mine.backfill_id
               AND NOT (:reload AND other.status = 'completed' AND {known} AND other.chunk_from >= mine.chunk_from
                        AND other.chunk_to <= mine.chunk_to)))
      AND other.chunk_from < mine.chunk_to AND other.chunk_to > mine.chunk_from
  )
RETURNING attempt, chunk_from, chunk_to, chunk_size, run_id, load_ids

-- name: due_chunks
-- The first chunks that may be claimed; one whose attempt failed after :since has had its turn in this run.
-- What is in the way is read once, and not for each chunk anew, which a planner without statistics would do.
WITH taken AS MATERIALIZED (
    SELECT other.chunk_from, other.chunk_to, other.resource_name,
        other.status = 'completed' AND {known} AND :reload AS replaceable
    FROM {ledger} AS other
    WHERE other.source_section = :source_section
      AND ((other.status IN ('claimed', 'running')
            AND (other.lease_expires_at IS NULL OR other.lease_expires_at > {now}))
           OR ((other.status = 'completed' OR other.load_ids IS NOT NULL) AND other.covered_by IS NULL
               AND other.backfill_id <> :backfill_id))
      AND other.chunk_from < :backfill_to AND other.chunk_to > :backfill_from
)
SELECT mine.chunk_id FROM {ledger} AS mine
WHERE mine.backfill_id = :backfill_id
  AND (mine.status = 'pending'
       OR (mine.status = 'failed' AND (mine.completed_at IS NULL OR mine.completed_at <= :since))
       OR (mine.status IN ('claimed', 'running') AND mine.lease_expires_at <= {now}))
  AND NOT EXISTS (
    SELECT 1 FROM taken AS other
    WHERE {resources_meet_mine}
      AND other.chunk_from < mine.chunk_to AND other.chunk_to > mine.chunk_from
      AND NOT (other.replaceable AND other.chunk_from >= mine.chunk_from AND other.chunk_to <= mine.chunk_to)
  )
ORDER BY mine.chunk_id LIMIT :limit

-- name: holder
-- Who keeps a chunk from being claimed: its own holder, or a live claim that overlaps it.
SELECT other.claimed_by, other.lease_expires_at,
    extract(epoch FROM (other.lease_expires_at - {now})) AS lease_left
FROM {ledger} AS mine
JOIN {ledger} AS other
  ON other.source_section = mine.source_section
 AND {resources_meet_mine}
 AND other.status IN ('claimed', 'running')
 AND (other.lease_expires_at IS NULL OR other.lease_expires_at > {now})
 AND other.chunk_from < mine.chunk_to AND other.chunk_to > mine.chunk_from
WHERE mine.backfill_id = :backfill_id AND mine.chunk_id = :chunk_id
ORDER BY other.lease_expires_at DESC NULLS FIRST LIMIT 1

-- name: start
-- claimed -> running
UPDATE {ledger} SET status = 'running', started_at = {now}, updated_at = {now}
WHERE backfill_id = :backfill_id AND chunk_id = :chunk_id AND claim_token = :token AND status = 'claimed'
RETURNING chunk_id

-- name: renew
-- A claim that has run out stays its holder's until somebody else takes it.
UPDATE {ledger} SET lease_expires_at = {now} + :lease_seconds * INTERVAL '1 second', updated_at = {now}
WHERE backfill_id = :backfill_id AND chunk_id = :chunk_id AND claim_token = :token
  AND status IN ('claimed', 'running')
RETURNING chunk_id

-- name: owner
-- Who took the chunk from a claim; no row if it was merely released.
SELECT claimed_by FROM {ledger}
WHERE backfill_id = :backfill_id AND chunk_id = :chunk_id AND claim_token <> :token AND claimed_by IS NOT NULL

-- name: spare
-- Leases that lived when a process took a database for itself, and could not be renewed since.
UPDATE {ledger} SET
    lease_expires_at = lease_expires_at + :seconds * INTERVAL '1 second', updated_at = {now}
WHERE status IN ('claimed', 'running') AND lease_expires_at > {now} - :seconds * INTERVAL '1 second'
RETURNING chunk_id

-- name: complete
-- running -> completed, in the transaction that publishes the rows.
UPDATE {ledger} SET
    status = 'completed', completed_at = {now}, records_loaded = :records_loaded, load_ids = :load_ids,
    lease_expires_at = NULL, error = NULL, will_retry = NULL, covered_by = NULL, updated_at = {now}
WHERE backfill_id = :backfill_id AND chunk_id = :chunk_id AND claim_token = :token AND status = 'running'
RETURNING chunk_id

-- name: fail
-- claimed, running -> failed
UPDATE {ledger} SET
    status = 'failed', completed_at = {now}, error = :error, will_retry = :will_retry,
    claim_token = NULL, lease_expires_at = NULL, updated_at = {now}
WHERE backfill_id = :backfill_id AND chunk_id = :chunk_id AND claim_token = :token
  AND status IN ('claimed', 'running')
RETURNING chunk_id

-- name: release
-- claimed, running -> failed, by a person's hand: only the claim that they were shown. Another tool's has no token.
UPDATE {ledger} SET
    status = 'failed', completed_at = {now}, error = :error, will_retry = NULL,
    claim_token = NULL, lease_expires_at = NULL, updated_at = {now}
WHERE backfill_id = :backfill_id AND chunk_id = :chunk_id AND status IN ('claimed', 'running')
  AND claim_token IS NOT DISTINCT FROM :token
  AND claimed_by IS NOT DISTINCT FROM :claimed_by
  AND claimed_at IS NOT DISTINCT FROM :claimed_at
RETURNING chunk_id

-- name: restate
-- completed -> pending; the load ids stay, so that the next version replaces exactly these rows.
UPDATE {ledger} SET
    status = 'pending', claimed_by = NULL, claimed_at = NULL, claim_token = NULL, lease_expires_at = NULL,
    started_at = NULL, completed_at = NULL, covered_by = NULL, updated_at = {now}
WHERE backfill_id = :backfill_id AND (:chunk_ids IS NULL OR strpos(:chunk_ids, chunk_id) > 0) AND status = 'completed'
  AND (load_ids IS NOT NULL OR records_loaded = 0 OR covered_by IS NOT NULL)
RETURNING chunk_id

-- name: unknown_loads
-- Rows whose load is not known cannot be told from others, and would stand twice. Whoever marks a chunk as done
-- does not say how many there are.
SELECT min(chunk_id) FROM {ledger}
WHERE backfill_id = :backfill_id AND (:chunk_ids IS NULL OR strpos(:chunk_ids, chunk_id) > 0) AND status = 'completed'
  AND load_ids IS NULL AND records_loaded IS DISTINCT FROM 0 AND covered_by IS NULL
HAVING count(*) > 0

-- name: live_tokens
-- Claims whose stage and working directory may be in use: one that ran out is its holder's until it is taken.
SELECT claim_token FROM {ledger}
WHERE source_section = :source_section AND status IN ('claimed', 'running') AND claim_token IS NOT NULL
