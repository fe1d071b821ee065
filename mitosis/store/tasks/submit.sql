-- Submitting tasks: one statement for a small batch, one transaction for a large one (protocol P11).
-- Lock order: lease, group_live, task rows. A statement that waits for the lock of a lease or of
-- group_live continues with the current row, and takes task rows only in their current state.
-- Rows of a batch are always found as (group, id = ANY(array)): a join alone is planned by guesses about
-- the group's size and may read all of it.

-- name: submit
-- A submit without dedup keys, payload and queue at once, after submit_lock. It writes nothing if the group
-- accepts no tasks or the idempotency key is known.
WITH live AS MATERIALIZED (
    SELECT v.group_id, v.state, v.hungry, v.watched, v.unfinished, g.kind,
           (v.state = 'open' OR (v.state = 'closed' AND g.reopen_on_submit AND NOT v.discarding))
               AND v.unfinished + %(count)s <= %(most)s AND (g.kind = 'service') = %(named)s AS accepts,
           g.uuid, g.max_managers, (g.worker_allocation_plan ->> 'worker_count')::int AS worker_count
      FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
     WHERE g.uuid = %(group)s
), given AS MATERIALIZED (
    SELECT nextval('task_id') AS id, t.*
      FROM unnest(%(specs)b::text[], %(priorities)s::int[], %(max_attempts)s::smallint[],
                  %(delays)s::real[], %(exit_codes)b::text[], %(named_tasks)s::bigint[])
           WITH ORDINALITY AS t (spec, priority, max_attempts, delay, exit_codes, named_task_id, ord)
), known AS (
    INSERT INTO submission (group_id, idempotency_key, part, digest, task_ids, created)
    SELECT l.group_id, %(key)s, %(part)s, %(digest)s, (SELECT array_agg(id ORDER BY ord) FROM given), %(count)s
      FROM live AS l WHERE l.accepts AND %(key)s::text IS NOT NULL
        ON CONFLICT DO NOTHING
    RETURNING 1
), into_group AS MATERIALIZED (
    SELECT l.* FROM live AS l
     WHERE l.accepts AND (%(key)s::text IS NULL OR EXISTS (SELECT FROM known))
), payload AS (
    INSERT INTO task (id, group_id, spec)
    SELECT t.id, l.group_id, t.spec::json FROM given AS t, into_group AS l
), queued AS (
    INSERT INTO open_task (group_id, id, priority, max_attempts, retry_delay_seconds, retry_exit_codes, named_task_id)
    SELECT l.group_id, t.id, t.priority, t.max_attempts, t.delay, t.exit_codes::int[], t.named_task_id
      FROM given AS t, into_group AS l
), counted AS (
    UPDATE group_live AS v
       SET total = v.total + %(count)s, unfinished = v.unfinished + %(count)s,
           hungry = false, watched = false, last_task_submitted_at = now(),
           state = 'open', closed_at = NULL,
           opened_at = CASE WHEN v.state = 'open' THEN v.opened_at ELSE now() END
      FROM into_group AS l WHERE v.group_id = l.group_id
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'task_group', l.uuid FROM into_group AS l WHERE l.state <> 'open'
    UNION ALL
    SELECT 'scheduler', NULL FROM into_group AS l
     WHERE l.kind = 'managed' AND (SELECT count(*) FROM leases AS s WHERE s.group_id = l.group_id AND s.state <> 'ended')
           < least(l.max_managers, ceil((l.unfinished + %(count)s) / (2.0 * l.worker_count)))
    RETURNING 1
)
SELECT l.state, l.kind, l.accepts, l.unfinished, EXISTS (SELECT FROM into_group) AS created,
       (SELECT array_agg(id ORDER BY ord) FROM given) AS task_ids,
       CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS notified_relay,
       CASE WHEN l.hungry AND EXISTS (SELECT FROM into_group)
            THEN pg_notify('mitosis_wake', l.group_id::text) END AS notified_claims,
       CASE WHEN %(named)s AND EXISTS (SELECT FROM into_group)
            THEN (SELECT count(pg_notify('mitosis_wake', x.named_task_id || '@' || x.n))
                    FROM (SELECT t.named_task_id, count(*) AS n FROM given AS t GROUP BY t.named_task_id) AS x)
             END AS notified_services,
       CASE WHEN l.watched AND EXISTS (SELECT FROM into_group)
            THEN pg_notify('mitosis_wake', l.group_id || '!') END AS notified_watchers
  FROM live AS l

-- name: known_submission
SELECT s.task_ids, s.created, s.digest FROM submission AS s JOIN task_groups AS g ON g.id = s.group_id
 WHERE g.uuid = %(group)s AND s.idempotency_key = %(key)s AND s.part = %(part)s

-- name: submit_payload
-- First step of a large submit, or of one with dedup keys; it holds no lock.
WITH given AS MATERIALIZED (
    SELECT nextval('task_id') AS id, t.spec, t.ord
      FROM unnest(%(specs)b::text[]) WITH ORDINALITY AS t (spec, ord)
), written AS (
    INSERT INTO task (id, group_id, spec)
    SELECT t.id, g.id, t.spec::json FROM given AS t, task_groups AS g WHERE g.uuid = %(group)s
)
SELECT array_agg(id ORDER BY ord) AS task_ids FROM given

-- name: submit_lock
-- From here until the commit, reports and other submits of the group wait.
SELECT v.group_id, g.kind, v.state, v.discarding, v.unfinished, g.reopen_on_submit
  FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
 WHERE g.uuid = %(group)s
   FOR NO KEY UPDATE OF v

-- name: drop_payload
DELETE FROM task WHERE id = ANY(%(ids)s::bigint[])

-- name: submit_queue
-- Third: a task is not added if an unfinished task, or an earlier one of the request, has its key.
INSERT INTO open_task (group_id, id, priority, max_attempts, retry_delay_seconds, retry_exit_codes, dedup_key,
                       named_task_id)
SELECT %(group_number)s, t.id, t.priority, t.max_attempts, t.delay, t.exit_codes::int[], t.dedup_key, t.named_task_id
  FROM unnest(%(ids)s::bigint[], %(priorities)s::int[], %(max_attempts)s::smallint[],
              %(delays)s::real[], %(exit_codes)b::text[], %(dedup_keys)b::text[], %(named_tasks)s::bigint[])
       AS t (id, priority, max_attempts, delay, exit_codes, dedup_key, named_task_id)
 ORDER BY t.id
    ON CONFLICT (group_id, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
RETURNING id

-- name: submit_duplicates
-- Under the lock: the unfinished task of each key.
SELECT o.dedup_key, o.id FROM open_task AS o
 WHERE o.group_id = %(group_number)s AND o.dedup_key = ANY(%(dedup_keys)s::text[])

-- name: submit_count
-- Last: counters, the idempotency key, messages. Payloads of tasks that were not queued are deleted.
WITH dropped AS (
    DELETE FROM task WHERE id = ANY(%(dropped)s::bigint[])
), known AS (
    INSERT INTO submission (group_id, idempotency_key, part, digest, task_ids, created)
    SELECT %(group_number)s, %(key)s, %(part)s, %(digest)s, %(task_ids)s::bigint[], %(count)s
     WHERE %(key)s::text IS NOT NULL
), before AS MATERIALIZED (
    SELECT v.hungry, v.watched, v.state, v.unfinished, g.uuid, g.max_managers,
           (g.worker_allocation_plan ->> 'worker_count')::int AS worker_count, g.kind
      FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
     WHERE v.group_id = %(group_number)s
), counted AS (
    UPDATE group_live AS v
       SET total = v.total + %(count)s, unfinished = v.unfinished + %(count)s,
           hungry = false, watched = false, last_task_submitted_at = now(),
           state = 'open', closed_at = NULL,
           opened_at = CASE WHEN v.state = 'open' THEN v.opened_at ELSE now() END
     WHERE v.group_id = %(group_number)s
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'task_group', b.uuid FROM before AS b WHERE b.state <> 'open'
    UNION ALL
    SELECT 'scheduler', NULL FROM before AS b
     WHERE b.kind = 'managed' AND (SELECT count(*) FROM leases AS s WHERE s.group_id = %(group_number)s AND s.state <> 'ended')
           < least(b.max_managers, ceil((b.unfinished + %(count)s) / (2.0 * b.worker_count)))
    RETURNING 1
)
SELECT CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS notified_relay,
       CASE WHEN b.hungry THEN pg_notify('mitosis_wake', %(group_number)s::bigint::text) END AS notified_claims,
       (SELECT count(pg_notify('mitosis_wake', x.named_task_id || '@' || x.n))
          FROM (SELECT t.named_task_id, count(*) AS n FROM unnest(%(named_tasks)s::bigint[]) AS t (named_task_id)
                 GROUP BY t.named_task_id) AS x) AS notified_services,
       CASE WHEN b.watched THEN pg_notify('mitosis_wake', %(group_number)s::bigint || '!') END AS notified_watchers
  FROM before AS b
