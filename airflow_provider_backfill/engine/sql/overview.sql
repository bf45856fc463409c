-- The statements of Overview, written as those of ledger.sql are; each only reads. {rows} is the ledger with every
-- column, also where another tool made it; {condition} tells how a chunk stands, see Condition.

-- name: backfills
-- What each backfill was asked for, how its chunks stand, and how much of its window is left; the latest first.
SELECT backfill_id, min(source_section), min(resource_name), min(chunk_size), min(backfill_from), max(backfill_to),
    -- In the order of Condition.
    count(*) FILTER (WHERE condition = 'pending'), count(*) FILTER (WHERE condition = 'held'),
    count(*) FILTER (WHERE condition = 'lapsed'), count(*) FILTER (WHERE condition = 'failed'),
    count(*) FILTER (WHERE condition = 'completed'), count(*) FILTER (WHERE condition = 'covered'),
    coalesce(sum(records_loaded) FILTER (WHERE condition = 'completed'), 0),
    coalesce(sum(extract(epoch FROM (chunk_to - chunk_from))) FILTER (WHERE status <> 'completed'), 0),
    max(coalesce(updated_at, completed_at, started_at, claimed_at)) AS changed
FROM (SELECT *, {condition} AS condition FROM {rows} AS chunks) AS chunk
WHERE :backfill_id IS NULL OR backfill_id = :backfill_id
GROUP BY backfill_id
ORDER BY changed DESC NULLS LAST, backfill_id

-- name: latest_attempts
-- What the last completed attempts of each backfill took and brought.
SELECT backfill_id, extract(epoch FROM (chunk_to - chunk_from)), started_at, completed_at, records_loaded
FROM (
    SELECT *, row_number() OVER (PARTITION BY backfill_id ORDER BY completed_at DESC) AS place FROM {rows} AS chunks
    WHERE status = 'completed' AND covered_by IS NULL AND completed_at > started_at
      AND (:backfill_id IS NULL OR backfill_id = :backfill_id)
) AS attempt
WHERE place <= :latest

-- name: last_errors
-- Why a chunk of each backfill failed last.
SELECT backfill_id, chunk_id, error, completed_at
FROM (
    SELECT *, row_number() OVER (PARTITION BY backfill_id ORDER BY completed_at DESC NULLS LAST) AS place
    FROM {rows} AS chunks
    WHERE status = 'failed' AND error IS NOT NULL AND (:backfill_id IS NULL OR backfill_id = :backfill_id)
) AS failure
WHERE place = 1

-- name: claiming_dags
-- Which DAGs have claimed chunks of which backfill.
SELECT DISTINCT backfill_id, dag_id FROM {rows} AS chunks WHERE dag_id IS NOT NULL

-- name: planning_dags
-- Which DAGs have planned which backfills.
SELECT DISTINCT dag_id, backfill_ids FROM {maps}

-- name: strip
-- Every chunk of a backfill in few words: how it stands, what its last attempt took and brought.
SELECT chunk_id, chunk_from, chunk_to, {condition},
    CASE WHEN status = 'completed' THEN extract(epoch FROM (completed_at - started_at)) END,
    CASE WHEN status = 'completed' THEN records_loaded END
FROM {rows} AS chunks WHERE backfill_id = :backfill_id ORDER BY chunk_id

-- name: islands
-- What of a source is loaded, by selection of resources: completed chunks that overlap or touch, as one range.
-- A version that is to be replaced stands until then; a chunk that was only found covered adds nothing.
SELECT resource_name, min(chunk_from), max(chunk_to)
FROM (
    SELECT *, sum(CASE WHEN chunk_from <= reached THEN 0 ELSE 1 END)
        OVER (PARTITION BY resource_name ORDER BY chunk_from, chunk_to, backfill_id, chunk_id) AS island
    FROM (
        SELECT *, max(chunk_to) OVER (
            PARTITION BY resource_name ORDER BY chunk_from, chunk_to, backfill_id, chunk_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached
        FROM {rows} AS chunks
        WHERE source_section = :source_section AND covered_by IS NULL
          AND (status = 'completed' OR load_ids IS NOT NULL)
    ) AS loaded
) AS numbered
GROUP BY resource_name, island
ORDER BY min(chunk_from)

-- name: extent
-- From where to where backfills of a source reach, whether or not they are done.
SELECT min(backfill_from), max(backfill_to) FROM {rows} AS chunks WHERE source_section = :source_section

-- name: attempts
-- What the runs ledger says of a chunk, the last first.
SELECT started_at, completed_at, status, records_loaded, error_summary FROM {runs}
WHERE run_id = :run_id AND backfill_id = :backfill_id ORDER BY started_at DESC LIMIT :limit

-- name: page
-- Some chunks of a backfill in full, in order.
SELECT {columns} FROM {rows} AS chunks
WHERE backfill_id = :backfill_id AND (:condition IS NULL OR {condition} = :condition)
  AND (:start IS NULL OR chunk_to > CAST(:start AS TIMESTAMPTZ)) AND (:end IS NULL OR chunk_from < CAST(:end AS TIMESTAMPTZ))
ORDER BY chunk_id LIMIT :limit OFFSET :offset

-- name: page_total
-- How many chunks the pages have in all.
SELECT count(*) FROM {rows} AS chunks
WHERE backfill_id = :backfill_id AND (:condition IS NULL OR {condition} = :condition)
  AND (:start IS NULL OR chunk_to > CAST(:start AS TIMESTAMPTZ)) AND (:end IS NULL OR chunk_from < CAST(:end AS TIMESTAMPTZ))

-- name: run
-- The backfills that a DAG run has planned or claimed chunks of.
SELECT DISTINCT backfill_id FROM {rows} AS chunks WHERE dag_id = :dag_id AND dag_run_id = :dag_run_id

-- name: planned_by_run
SELECT backfill_ids FROM {maps} WHERE dag_id = :dag_id AND dag_run_id = :dag_run_id
