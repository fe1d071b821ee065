-- Verbs and endings of task groups. They lock first and look in a later statement (protocol P1).

-- name: lock_live
SELECT g.id AS number, g.uuid, g.kind, v.state, v.discarding, v.unfinished,
       v.state = 'open' AND greatest(v.opened_at, v.last_task_submitted_at)
         + make_interval(secs => g.auto_close_timeout_seconds) <= clock_timestamp() AS inactive,
       v.state IN ('open', 'closed') AND NOT v.discarding AND g.close_deadline <= clock_timestamp() AS overdue
  FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
 WHERE g.uuid = %(group)s
   FOR UPDATE OF v

-- name: close
-- The caller holds the row. Closing a group without unfinished tasks also drains it.
UPDATE group_live
   SET state = 'closed', closed_at = now(), reason = coalesce(%(reason)s, reason), watched = false,
       drain_seq = drain_seq + (unfinished = 0)::int
 WHERE group_id = %(group_number)s AND state = 'open'

-- name: reopen
UPDATE group_live
   SET state = 'open', closed_at = NULL, opened_at = now(), reason = coalesce(%(reason)s, reason),
       watched = false
 WHERE group_id = %(group_number)s AND state = 'closed'

-- name: complete
UPDATE group_live
   SET state = 'complete', terminal_at = now(), closed_at = coalesce(closed_at, now()),
       reason = coalesce(%(reason)s, reason), watched = false
 WHERE group_id = %(group_number)s AND state = 'closed' AND unfinished = 0

-- name: cancel
UPDATE group_live
   SET state = 'cancelled', terminal_at = now(), discarding = unfinished > 0, kill_running = %(kill)s,
       grace_seconds = %(grace)s, reason = coalesce(%(reason)s, reason), watched = false, hungry = false,
       cancelled_before = cancelled, cancelled_running = 0
 WHERE group_id = %(group_number)s AND state IN ('open', 'closed')

-- name: kill_running
-- A second cancel may end what the first left running.
UPDATE group_live SET kill_running = true, grace_seconds = %(grace)s
 WHERE group_id = %(group_number)s AND state = 'cancelled' AND NOT kill_running

-- name: grace_in_force
SELECT coalesce(v.grace_seconds, g.cancel_grace_seconds) AS seconds
  FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
 WHERE v.group_id = %(group_number)s

-- name: force
UPDATE group_live
   SET discarding = true, kill_running = true, grace_seconds = %(grace)s,
       reason = coalesce(%(reason)s, reason), watched = false, hungry = false
 WHERE group_id = %(group_number)s AND state = 'closed' AND unfinished > 0

-- name: end_after_failed_setups
-- As a forced completion. The caller holds the group and its leases, of which none is left.
UPDATE group_live
   SET state = 'closed', closed_at = coalesce(closed_at, now()), discarding = true, kill_running = true,
       grace_seconds = NULL, setup_failed = true, reason = %(reason)s, watched = false, hungry = false
 WHERE group_id = %(group_number)s AND state IN ('open', 'closed') AND NOT discarding AND unfinished > 0

-- name: notify_group
-- The state has changed: poke the workflow, wake the claims and long polls that wait for this group.
WITH pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'task_group', uuid FROM task_groups WHERE id = %(group_number)s AND %(workflow)s::boolean
    UNION ALL SELECT 'scheduler', NULL WHERE %(scheduler)s::boolean
)
SELECT pg_notify('mitosis_outbox', ''), pg_notify('mitosis_wake', %(group_number)s::bigint::text),
       pg_notify('mitosis_wake', %(group_number)s::bigint || '!')

-- name: discard
-- The caller holds group_live. Cancels one chunk of unclaimed tasks, blocked ones as well; rows locked by a
-- report are left to it. A doubted task has failed: the judge of its host ends it. after: the chunks before
-- came so far, so that what they have deleted is not read again.
WITH picked AS MATERIALIZED (
    SELECT o.id, o.attempt FROM open_task AS o
     WHERE o.group_id = %(group_number)s AND o.state NOT IN (1, 5) AND o.id > %(after)s
     ORDER BY o.id LIMIT %(limit)s
       FOR UPDATE OF o SKIP LOCKED
), gone AS (
    DELETE FROM open_task AS o
     WHERE o.group_id = %(group_number)s AND o.id = ANY(ARRAY(SELECT id FROM picked))
    RETURNING o.id, o.attempt
), results AS (
    INSERT INTO task_result (task_id, group_id, seq, state, attempt, kind, finished_at)
    SELECT g.id, v.group_id, v.total - v.unfinished + row_number() OVER (), 'cancelled', g.attempt, 'cancelled', now()
      FROM gone AS g, group_live AS v WHERE v.group_id = %(group_number)s
), sums AS MATERIALIZED (
    SELECT count(*) AS n FROM gone
), before AS MATERIALIZED (
    SELECT v.group_id, v.state, v.unfinished, v.watched, g.uuid
      FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id WHERE v.group_id = %(group_number)s
), counted AS (
    UPDATE group_live AS v
       SET unfinished = v.unfinished - s.n, cancelled = v.cancelled + s.n, watched = false,
           drain_seq = v.drain_seq + (v.state <> 'open' AND s.n > 0 AND v.unfinished = s.n)::int
      FROM sums AS s WHERE v.group_id = %(group_number)s AND s.n > 0
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'task_group', b.uuid FROM before AS b, sums AS s WHERE s.n > 0 AND b.unfinished = s.n
    RETURNING 1
)
SELECT s.n AS cancelled, (SELECT max(id) FROM picked) AS seen_to,
       CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS relay_notified,
       CASE WHEN b.watched THEN pg_notify('mitosis_wake', b.group_id || '!') END AS watchers_notified
  FROM sums AS s, before AS b

-- name: unclaimed_left
SELECT EXISTS (SELECT FROM open_task AS o WHERE o.group_id = %(group_number)s AND o.state NOT IN (1, 5)
                 AND o.id > %(after)s) AS left_over

-- name: settle_facts
-- The caller holds all leases of the group and its live row..
SELECT v.state, v.settled_at IS NOT NULL AS settled, v.unfinished, v.failed, v.cancelled, v.succeeded,
       v.delete_when_settled AS deleting,
       (SELECT count(*) FROM leases AS l
         WHERE l.group_id = v.group_id AND l.kind = 'manager' AND l.state <> 'ended') AS live_leases,
       w.busy_environments,
       EXISTS (SELECT FROM environments AS e
                WHERE e.group_id = v.group_id AND (e.degraded OR e.state <> 'gone')) AS degraded,
       v.cancelled > 0
       AND (v.setup_failed
            OR EXISTS (SELECT FROM hook_runs AS h
                        WHERE h.group_id = v.group_id AND h.kind = 'setup' AND h.state = 'failed')
               AND NOT EXISTS (SELECT FROM hook_runs AS h
                                WHERE h.group_id = v.group_id AND h.kind = 'setup' AND h.state = 'succeeded')
               AND EXISTS (SELECT FROM task_result AS r
                            WHERE r.group_id = v.group_id AND r.state = 'cancelled' AND r.attempt = 0
                              AND r.kind <> 'dependency_failed'))
           AS setup_failed
  FROM group_live AS v {awaited} WHERE v.group_id = %(group_number)s

-- name: settle
-- Nothing is unfinished, so worker services hold nothing under their leases, which end here (protocol P10).
WITH ended AS (
    UPDATE leases SET state = 'ended', ended_at = now(), end_reason = coalesce(end_reason, 'group_ended')
     WHERE group_id = %(group_number)s AND kind = 'worker' AND state <> 'ended'
)
UPDATE group_live SET settled_at = now(), result = %(result)s, watched = false
 WHERE group_id = %(group_number)s AND settled_at IS NULL
