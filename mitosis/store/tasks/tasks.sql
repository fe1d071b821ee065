-- The hot path: submit, claim, report. One statement for a whole batch (protocol P1-P3, P7, P11).
--
-- Rows of a batch are always found as (group, id = ANY(array)): a join alone is planned by guesses about
-- the group's size and may read all of it.
--
-- Lock order: lease, group_live, task rows. A statement that waits for the lock of a lease or of
-- group_live goes on with the row as it is then, and takes task rows only as they are now.

-- name: submit
-- A submit without dedup keys, payload and queue at once, after submit_lock: nothing is written unless the
-- group accepts tasks, and nothing again under an idempotency key that is known.
WITH live AS MATERIALIZED (
    SELECT v.group_id, v.state, v.hungry, v.watched, v.unfinished,
           (v.state = 'open' OR (v.state = 'closed' AND g.reopen_on_submit AND NOT v.discarding))
               AND v.unfinished + %(count)s <= %(most)s AS accepts,
           g.uuid, g.max_managers, (g.worker_allocation_plan ->> 'worker_count')::int AS worker_count
      FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
     WHERE g.uuid = %(group)s
), given AS MATERIALIZED (
    SELECT nextval('task_id') AS id, t.*
      FROM unnest(%(specs)b::text[], %(priorities)s::int[], %(max_attempts)s::smallint[],
                  %(delays)s::real[], %(exit_codes)b::text[])
           WITH ORDINALITY AS t (spec, priority, max_attempts, delay, exit_codes, ord)
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
    INSERT INTO open_task (group_id, id, priority, max_attempts, retry_delay_seconds, retry_exit_codes)
    SELECT l.group_id, t.id, t.priority, t.max_attempts, t.delay, t.exit_codes::int[]
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
     WHERE (SELECT count(*) FROM leases AS s WHERE s.group_id = l.group_id AND s.state <> 'ended')
           < least(l.max_managers, ceil((l.unfinished + %(count)s) / (2.0 * l.worker_count)))
    RETURNING 1
)
SELECT l.state, l.accepts, l.unfinished, EXISTS (SELECT FROM into_group) AS created,
       (SELECT array_agg(id ORDER BY ord) FROM given) AS task_ids,
       CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS told_relay,
       CASE WHEN l.hungry AND EXISTS (SELECT FROM into_group)
            THEN pg_notify('mitosis_wake', l.group_id::text) END AS told_claims,
       CASE WHEN l.watched AND EXISTS (SELECT FROM into_group)
            THEN pg_notify('mitosis_wake', l.group_id || '!') END AS told_watchers
  FROM live AS l

-- name: queued
-- Unfinished tasks in all, and in the groups of the user who made this one.
SELECT coalesce(sum(v.unfinished), 0)::bigint AS total,
       coalesce(sum(v.unfinished) FILTER (WHERE g.creator_id = mine.creator_id), 0)::bigint AS mine
  FROM (SELECT creator_id FROM task_groups WHERE uuid = %(group)s) AS mine,
       group_live AS v JOIN task_groups AS g ON g.id = v.group_id
 WHERE v.settled_at IS NULL

-- name: known_submission
SELECT s.task_ids, s.created, s.digest FROM submission AS s JOIN task_groups AS g ON g.id = s.group_id
 WHERE g.uuid = %(group)s AND s.idempotency_key = %(key)s AND s.part = %(part)s

-- name: submit_payload
-- First half of a large submit, or of one with dedup keys: no lock is held yet.
WITH given AS MATERIALIZED (
    SELECT nextval('task_id') AS id, t.spec, t.ord
      FROM unnest(%(specs)b::text[]) WITH ORDINALITY AS t (spec, ord)
), written AS (
    INSERT INTO task (id, group_id, spec)
    SELECT t.id, g.id, t.spec::json FROM given AS t, task_groups AS g WHERE g.uuid = %(group)s
)
SELECT array_agg(id ORDER BY ord) AS task_ids FROM given

-- name: submit_lock
-- From here until the commit no report and no other submit of the group gets through.
SELECT v.group_id, v.state, v.discarding, v.unfinished, g.reopen_on_submit
  FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
 WHERE g.uuid = %(group)s
   FOR NO KEY UPDATE OF v

-- name: drop_payload
DELETE FROM task WHERE id = ANY(%(ids)s::bigint[])

-- name: submit_queue
-- Third: a key that an unfinished task has, or that stood earlier in the same request, adds nothing.
INSERT INTO open_task (group_id, id, priority, max_attempts, retry_delay_seconds, retry_exit_codes, dedup_key)
SELECT %(group_number)s, t.id, t.priority, t.max_attempts, t.delay, t.exit_codes::int[], t.dedup_key
  FROM unnest(%(ids)s::bigint[], %(priorities)s::int[], %(max_attempts)s::smallint[],
              %(delays)s::real[], %(exit_codes)b::text[], %(dedup_keys)b::text[])
       AS t (id, priority, max_attempts, delay, exit_codes, dedup_key)
 ORDER BY t.id
    ON CONFLICT (group_id, dedup_key) WHERE dedup_key IS NOT NULL DO NOTHING
RETURNING id

-- name: submit_duplicates
-- Under the lock: the unfinished task of each key.
SELECT o.dedup_key, o.id FROM open_task AS o
 WHERE o.group_id = %(group_number)s AND o.dedup_key = ANY(%(dedup_keys)s::text[])

-- name: submit_count
-- Last: counters, memory of the key, messages. What was not queued loses its payload.
WITH dropped AS (
    DELETE FROM task WHERE id = ANY(%(dropped)s::bigint[])
), known AS (
    INSERT INTO submission (group_id, idempotency_key, part, digest, task_ids, created)
    SELECT %(group_number)s, %(key)s, %(part)s, %(digest)s, %(task_ids)s::bigint[], %(count)s
     WHERE %(key)s::text IS NOT NULL
), before AS MATERIALIZED (
    SELECT v.hungry, v.watched, v.state, v.unfinished, g.uuid, g.max_managers,
           (g.worker_allocation_plan ->> 'worker_count')::int AS worker_count
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
     WHERE (SELECT count(*) FROM leases AS s WHERE s.group_id = %(group_number)s AND s.state <> 'ended')
           < least(b.max_managers, ceil((b.unfinished + %(count)s) / (2.0 * b.worker_count)))
    RETURNING 1
)
SELECT CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS told_relay,
       CASE WHEN b.hungry THEN pg_notify('mitosis_wake', %(group_number)s::bigint::text) END AS told_claims,
       CASE WHEN b.watched THEN pg_notify('mitosis_wake', %(group_number)s::bigint || '!') END AS told_watchers
  FROM before AS b

-- name: claim
-- First the rows of this epoch whose answer may have got lost (claim_seq > acked_seq), then new ones by
-- (priority desc, id), delayed ones that are due among them. The update of the lease is the fence: it
-- waits for an ending and then finds the lease no longer active; it also refuses a claim that comes
-- after the acknowledgement of its own number (a connection that was given up). The inner LIMIT is the
-- largest batch, so that the planner always reads the index in order; no more rows are locked than
-- taken. No row = no such live lease; one row without an id = nothing to claim.
WITH lease AS MATERIALIZED (
    UPDATE leases AS l
       SET acked_seq = greatest(l.acked_seq, %(acked_seq)s), last_claim_at = now()
      FROM managers AS m
     WHERE l.epoch = %(epoch)s AND m.id = l.manager_id AND m.uuid = %(manager)s
       AND l.state = 'active' AND l.alive_until > now() AND l.acked_seq < %(claim_seq)s
    RETURNING l.group_id, l.manager_id
), allowed AS MATERIALIZED (
    SELECT l.group_id
      FROM lease AS l
      JOIN group_live AS v ON v.group_id = l.group_id
      JOIN environments AS e ON e.manager_id = l.manager_id AND e.group_id = l.group_id
     WHERE v.state IN ('open', 'closed') AND NOT v.discarding AND e.state = 'ready'
), again AS MATERIALIZED (
    SELECT o.id, o.attempt, o.priority, o.lost_count
      FROM open_task AS o, allowed AS a
     WHERE o.group_id = a.group_id AND o.state = 1 AND o.epoch = %(epoch)s
       AND o.claim_seq > %(acked_seq)s
), room AS MATERIALIZED (
    SELECT greatest(%(max_tasks)s - count(*), 0) AS n FROM again
), ready AS MATERIALIZED (
    SELECT r.id, r.priority FROM (
        SELECT o.id, o.priority FROM open_task AS o
         WHERE o.group_id = (SELECT group_id FROM allowed) AND o.state = 0
         ORDER BY o.priority DESC, o.id LIMIT 1000
           FOR UPDATE OF o SKIP LOCKED) AS r
     LIMIT (SELECT n FROM room)
), due AS MATERIALIZED (
    SELECT d.id, d.priority FROM (
        SELECT o.id, o.priority FROM open_task AS o
         WHERE o.group_id = (SELECT group_id FROM allowed) AND o.state = 4 AND o.not_before <= now()
         ORDER BY o.not_before LIMIT 1000
           FOR UPDATE OF o SKIP LOCKED) AS d
     LIMIT (SELECT n FROM room)
), picked AS MATERIALIZED (
    SELECT id FROM (SELECT * FROM ready UNION ALL SELECT * FROM due) AS both_kinds
     ORDER BY priority DESC, id LIMIT (SELECT n FROM room)
), taken AS (
    UPDATE open_task AS o
       SET state = 1, attempt = o.attempt + 1, spent = false, not_before = NULL, started_at = NULL,
           epoch = %(epoch)s, claim_seq = %(claim_seq)s
     WHERE o.group_id = (SELECT group_id FROM allowed) AND o.id = ANY(ARRAY(SELECT id FROM picked))
    RETURNING o.id, o.attempt, o.priority, o.lost_count
), answered AS (
    SELECT * FROM again UNION ALL SELECT * FROM taken
)
SELECT l.group_id, c.id, c.attempt, c.lost_count, t.spec::text AS spec
  FROM lease AS l
  LEFT JOIN answered AS c ON true
  LEFT JOIN task AS t ON t.id = c.id
 ORDER BY c.priority DESC, c.id

-- name: hungry
-- Somebody waits for work of this group: whatever makes a task claimable from now on tells it. The
-- caller claims once more after this. Gives the seconds until the next delayed task is due.
WITH marked AS (
    UPDATE group_live SET hungry = true
     WHERE group_id = %(group_number)s AND NOT hungry AND state IN ('open', 'closed')
)
SELECT extract(epoch FROM min(o.not_before) - clock_timestamp())::float8 AS due_in_seconds
  FROM open_task AS o WHERE o.group_id = %(group_number)s AND o.state = 4

-- name: standing
-- What a manager is to know about its lease.
SELECT l.state AS lease_state, l.group_id, v.state AS group_state, v.discarding, v.kill_running, v.reason,
       coalesce(v.grace_seconds, g.cancel_grace_seconds) AS grace_seconds, g.host_lost_after_seconds
  FROM leases AS l
  JOIN managers AS m ON m.id = l.manager_id
  JOIN group_live AS v ON v.group_id = l.group_id
  JOIN task_groups AS g ON g.id = l.group_id
 WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s

-- name: lock_for_report
-- First statement of a report: the lease, to be ordered with its ending, then the group. The statement
-- after it has a snapshot of its own, so it works on the group's row as it is now. (Locked and updated by
-- one statement whose snapshot is older than the row, the row can deadlock between two reports.)
WITH lease AS MATERIALIZED (
    SELECT l.group_id FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
     WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s
       FOR KEY SHARE OF l
)
SELECT v.group_id FROM group_live AS v JOIN lease AS l ON l.group_id = v.group_id
   FOR NO KEY UPDATE OF v

-- name: report
-- A report counts if the open row has the same attempt and that attempt has not been reported (spent),
-- under whatever epoch. Per row: another attempt (requeued, now or with a delay that doubles), or the end
-- (deleted, with a result). The caller holds lease and group (lock_for_report): the lock of group_live
-- comes before any row and makes the counters, the drain edge and a submit's dedup keys exact. It also
-- numbers the results: how many tasks of the group had ended before, plus one, plus one more for each; since
-- the lock is held until the commit, whoever reads up to a number has missed none before it.
WITH lease AS MATERIALIZED (
    SELECT l.group_id, l.manager_id, l.state
      FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
     WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s
), live AS MATERIALIZED (
    SELECT v.group_id, v.state, v.unfinished, v.total - v.unfinished AS ended_before, v.hungry, v.watched,
           l.manager_id, v.state IN ('open', 'closed') AND NOT v.discarding AS goes_on
      FROM group_live AS v JOIN lease AS l ON l.group_id = v.group_id
), said AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::bigint[], %(attempts)s::int[], %(outcomes)b::text[], %(kinds)b::text[],
                         %(exit_codes)s::int[], %(signals)s::int[], %(started)s::float8[],
                         %(finished)s::float8[], %(details)b::text[], %(crash_limits)s::int[])
           AS s (id, attempt, outcome, kind, exit_code, signal, started, finished, detail, crash_limit)
), again AS (
    UPDATE open_task AS o
       SET state = CASE WHEN s.crash_limit IS NULL AND o.retry_delay_seconds > 0 THEN 4 ELSE 0 END,
           not_before = CASE WHEN s.crash_limit IS NULL AND o.retry_delay_seconds > 0
                             THEN now() + make_interval(secs => least(
                                  o.retry_delay_seconds * power(2, o.exit_failures), 86400 * 365.0)) END,
           spent = true, epoch = NULL, claim_seq = NULL, started_at = NULL,
           exit_failures = o.exit_failures + (s.crash_limit IS NULL)::int,
           crash_failures = least(o.crash_failures + (s.crash_limit IS NOT NULL)::int, 32767)
      FROM said AS s, live AS v
     WHERE o.group_id = (SELECT group_id FROM live) AND o.id = ANY(%(ids)s::bigint[])
       AND o.id = s.id AND o.attempt = s.attempt AND NOT o.spent
       AND s.outcome = 'failed' AND v.goes_on
       AND (CASE WHEN s.crash_limit IS NOT NULL
                 THEN s.crash_limit = 0 OR o.crash_failures + 1 < s.crash_limit
                 ELSE o.exit_failures + 1 < o.max_attempts
                      AND (o.retry_exit_codes IS NULL
                           OR (s.kind = 'exit_code' AND s.exit_code = ANY(o.retry_exit_codes))) END) IS TRUE
    RETURNING o.id AS task_id, v.manager_id, v.group_id, o.crash_failures AS crashes, s.*
), ended AS (
    DELETE FROM open_task AS o
     USING said AS s, live AS v
     WHERE o.group_id = (SELECT group_id FROM live) AND o.id = ANY(%(ids)s::bigint[])
       AND o.id = s.id AND o.attempt = s.attempt AND NOT o.spent
       AND NOT (s.outcome = 'failed' AND v.goes_on
       AND (CASE WHEN s.crash_limit IS NOT NULL
                 THEN s.crash_limit = 0 OR o.crash_failures + 1 < s.crash_limit
                 ELSE o.exit_failures + 1 < o.max_attempts
                      AND (o.retry_exit_codes IS NULL
                           OR (s.kind = 'exit_code' AND s.exit_code = ANY(o.retry_exit_codes))) END) IS TRUE)
    RETURNING o.id AS task_id, v.manager_id, v.group_id, v.ended_before, o.crash_failures + 1 AS crashes,
              s.outcome = 'failed' AND s.crash_limit > 0 AND o.crash_failures + 1 >= s.crash_limit AS given_up, s.*
), results AS (
    INSERT INTO task_result (task_id, group_id, seq, state, attempt, manager_id, kind, exit_code, signal,
                             started_at, finished_at, detail)
    SELECT e.task_id, e.group_id, e.ended_before + row_number() OVER (), e.outcome, e.attempt, e.manager_id, e.kind, e.exit_code, e.signal,
           to_timestamp(e.started), to_timestamp(e.finished),
           (CASE WHEN e.given_up AND e.kind <> 'signal'
                 THEN %(given_up)s || e.crashes || ' times: ' || substr(e.detail, 1 + length(%(message)s))
                 ELSE e.detail END)::json
      FROM ended AS e
), failures AS (
    INSERT INTO task_failures (task_id, group_id, attempt, manager_id, kind, exit_code, signal, detail)
    SELECT f.task_id, f.group_id, f.attempt, f.manager_id, coalesce(f.kind, 'exit_code'), f.exit_code, f.signal,
           f.detail::json
      FROM (SELECT task_id, group_id, attempt, manager_id, kind, exit_code, signal, detail FROM again
            UNION ALL
            SELECT task_id, group_id, attempt, manager_id, kind, exit_code, signal, detail FROM ended
             WHERE outcome = 'failed' AND crash_limit IS NOT NULL) AS f
        ON CONFLICT (task_id, attempt) DO UPDATE
       SET kind = excluded.kind, exit_code = excluded.exit_code, signal = excluded.signal,
           detail = excluded.detail, manager_id = excluded.manager_id
), accepted AS MATERIALIZED (
    SELECT task_id, attempt FROM again UNION ALL SELECT task_id, attempt FROM ended
), sums AS MATERIALIZED (
    SELECT (SELECT count(*) FROM again) AS again, count(*) AS ended,
           count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded,
           count(*) FILTER (WHERE outcome = 'failed') AS failed,
           count(*) FILTER (WHERE outcome = 'cancelled') AS cancelled
      FROM ended
), counted AS (
    UPDATE group_live AS v
       SET unfinished = v.unfinished - n.ended, succeeded = v.succeeded + n.succeeded,
           failed = v.failed + n.failed, cancelled = v.cancelled + n.cancelled,
           drain_seq = v.drain_seq + (v.state <> 'open' AND n.ended > 0 AND v.unfinished = n.ended)::int,
           hungry = v.hungry AND n.again = 0, watched = false
      FROM sums AS n
     WHERE v.group_id = (SELECT group_id FROM live) AND (n.ended > 0 OR n.again > 0)
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'task_group', g.uuid
      FROM live AS v JOIN task_groups AS g ON g.id = v.group_id, sums AS n
     WHERE v.state <> 'open' AND n.ended > 0 AND v.unfinished = n.ended
    RETURNING 1
)
SELECT l.state AS lease_state,
       (SELECT array_agg(task_id) FROM accepted) AS task_ids,
       (SELECT array_agg(attempt) FROM accepted) AS attempts,
       (SELECT json_agg(json_build_object('key', ARRAY[c.task_id, c.attempt], 'count', c.crashes,
                                          'given_up', c.given_up))
          FROM (SELECT task_id, attempt, crashes, false AS given_up FROM again WHERE crash_limit IS NOT NULL
                UNION ALL SELECT task_id, attempt, crashes, true FROM ended WHERE given_up) AS c) AS crashes,
       CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS told_relay,
       CASE WHEN v.hungry AND n.again > 0 THEN pg_notify('mitosis_wake', v.group_id::text) END AS told_claims,
       CASE WHEN v.watched AND n.again + n.ended > 0
            THEN pg_notify('mitosis_wake', v.group_id || '!') END AS told_watchers
  FROM lease AS l LEFT JOIN live AS v ON v.group_id = l.group_id, sums AS n

-- name: why_not
-- Why reports did not count, read after the fact. An attempt that is recorded is a duplicate, unless
-- what stands there was not said by a host (loss, cancellation of what nobody ran).
SELECT s.id, s.attempt,
       CASE WHEN (r.attempt = s.attempt AND r.kind IS DISTINCT FROM 'host_lost'
                  AND (r.state <> 'cancelled' OR s.outcome = 'cancelled'))
              OR f.kind <> 'host_lost' THEN 'duplicate'
            WHEN t.id IS NOT NULL THEN 'superseded'
            ELSE 'unknown' END AS status
  FROM unnest(%(ids)s::bigint[], %(attempts)s::int[], %(outcomes)b::text[]) AS s (id, attempt, outcome)
  LEFT JOIN task AS t ON t.id = s.id
       AND t.group_id = (SELECT group_id FROM leases WHERE epoch = %(epoch)s)
  LEFT JOIN task_result AS r ON r.task_id = t.id
  LEFT JOIN task_failures AS f ON f.task_id = t.id AND f.attempt = s.attempt
