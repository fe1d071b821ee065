-- Contact and renewals of agents (protocol P3, P4).

-- name: contact
-- Any authenticated call of the agent (P4). An ended lease stays ended. With the task groups whose environment
-- must be torn down on this host now, oldest first: what it owes or has begun, and what is of no use any more.
-- The end of a silence pokes the scheduler (P7), and the workflow of the host that waits for it under a lease.
WITH seen AS (
    UPDATE manager_live AS c
       SET last_contact_at = now(),
           contact_since = CASE WHEN c.last_contact_at > now() - make_interval(secs => %(suspect_after)s)
                                THEN c.contact_since ELSE now() END
      FROM managers AS m WHERE m.uuid = %(manager)s AND c.manager_id = m.id
    RETURNING m.id, m.uuid, m.incarnation, m.draining, c.offline, c.report_trouble,
              c.contact_since IS NOT DISTINCT FROM now() AS returned
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'scheduler', NULL FROM seen WHERE returned AND NOT offline
    UNION ALL
    SELECT 'manager', s.uuid FROM seen AS s
     WHERE s.returned AND NOT s.offline
       AND EXISTS (SELECT FROM leases AS l WHERE l.manager_id = s.id AND l.state <> 'ended')
    RETURNING pg_notify('mitosis_outbox', '')
)
SELECT s.id, s.incarnation, s.offline, s.report_trouble, ARRAY(
       SELECT coalesce(e.task_group_uuid, g.uuid)
         FROM environments AS e
         LEFT JOIN task_groups AS g ON g.id = e.group_id
         LEFT JOIN group_live AS v ON v.group_id = e.group_id
        WHERE e.manager_id = s.id AND e.state <> 'gone'
          AND (e.state IN ('owed', 'tearing_down')
               OR ((e.state = 'preparing' OR v.group_id IS NULL OR v.state IN ('complete', 'cancelled')
                    OR s.draining)
                   AND NOT EXISTS (SELECT FROM leases AS l
                                    WHERE l.manager_id = e.manager_id AND l.group_id = e.group_id
                                      AND l.state <> 'ended')))
        ORDER BY e.changed_at) AS teardowns
  FROM seen AS s

-- name: report_trouble
-- Executed only when it has changed.
UPDATE manager_live SET report_trouble = %(report_trouble)s WHERE manager_id = %(manager_number)s

-- name: mark_busy
-- Busy: a task of the group is claimable, or one is claimed under this epoch (C-04). A lease that has not
-- been
-- busy for the idle threshold may be given to another group.
UPDATE leases AS l SET busy_at = now()
 WHERE l.epoch = %(epoch)s AND l.state = 'active'
   AND (EXISTS (SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.state = 0)
     OR EXISTS (SELECT FROM open_task AS o
                 WHERE o.group_id = l.group_id AND o.state = 1 AND o.epoch = l.epoch))

-- name: started
-- Attempts that run for more than 1 s. A row that is locked is being reported or requeued.
UPDATE open_task AS o SET started_at = now()
  FROM (SELECT o.group_id, o.id
          FROM open_task AS o
          JOIN unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS s (id, attempt)
            ON s.id = o.id AND s.attempt = o.attempt
         WHERE o.group_id = %(group_number)s AND o.id = ANY(%(ids)s::bigint[])
           AND o.state = 1 AND o.epoch = %(epoch)s AND o.started_at IS NULL
           FOR UPDATE OF o SKIP LOCKED) AS r
 WHERE o.group_id = r.group_id AND o.id = r.id

-- name: announced
-- Which of these attempts are recorded as started, before they start (P5). A missing one is no longer this
-- host's, or its row is locked at the moment: it is announced again.
SELECT o.id FROM open_task AS o
  JOIN unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS s (id, attempt)
    ON s.id = o.id AND s.attempt = o.attempt
 WHERE o.group_id = %(group_number)s AND o.id = ANY(%(ids)s::bigint[])
   AND o.state = 1 AND o.epoch = %(epoch)s AND o.started_at IS NOT NULL

-- name: lock_for_return
-- A return changes rows of an epoch that may be ending, so it takes its locks like a report.
SELECT l.group_id, l.manager_id FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
 WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s AND l.state IN ('active', 'ending')
   FOR KEY SHARE OF l

-- name: returned
-- Claimed, unstarted tasks that the agent returns. They count as no failure and no loss.
UPDATE open_task AS o
   SET state = 0, epoch = NULL, claim_seq = NULL, started_at = NULL, claimed_by = %(manager_number)s
  FROM unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS s (id, attempt)
 WHERE o.group_id = %(group_number)s AND o.id = ANY(%(ids)s::bigint[])
   AND o.id = s.id AND o.attempt = s.attempt AND o.state = 1 AND o.epoch = %(epoch)s

-- name: forget_returned_stops
-- What was returned does not start here.
DELETE FROM task_stops AS x USING unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS s (id, attempt)
 WHERE x.epoch = %(epoch)s AND x.task_id = s.id AND x.attempt = s.attempt

-- name: not_held
-- Rows of this epoch whose claim was answered and acknowledged, but which the agent does not hold (P3).
UPDATE open_task AS o
   SET state = 0, epoch = NULL, claim_seq = NULL, started_at = NULL, claimed_by = %(manager_number)s
 WHERE o.group_id = %(group_number)s AND o.state = 1 AND o.epoch = %(epoch)s
   AND o.claim_seq <= %(acked_seq)s AND o.id <> ALL(%(ids)s::bigint[])

-- name: notify_returned
-- After tasks became ready again: wake waiting claims; a group that is discarding continues.
WITH before AS MATERIALIZED (
    SELECT v.group_id, v.hungry, v.state NOT IN ('open', 'closed') OR v.discarding AS discards, g.uuid
      FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
     WHERE v.group_id = %(group_number)s
), cleared AS (
    UPDATE group_live SET hungry = false WHERE group_id = %(group_number)s AND hungry
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'task_group', b.uuid FROM before AS b WHERE b.discards
    UNION ALL SELECT 'scheduler', NULL FROM before AS b WHERE NOT b.discards
    RETURNING 1
)
SELECT CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS notified_relay,
       CASE WHEN b.hungry THEN pg_notify('mitosis_wake', b.group_id::text) END AS notified_claims
  FROM before AS b

-- name: standing
-- The standing of the agent's lease.
-- Nothing that ran for a group counts once it has been deleted: it is killed (P5).
SELECT l.state AS lease_state, l.draining, v.state AS group_state, coalesce(v.kill_running, true) AS kill_running, v.reason,
       coalesce(v.grace_seconds, g.cancel_grace_seconds, d.cancel_grace_seconds, 30)
           AS grace_seconds,
       g.host_lost_after_seconds,
       coalesce((SELECT json_agg(json_build_object('task_id', s.task_id, 'attempt', s.attempt,
                                                   'grace_seconds', s.grace_seconds, 'reason', s.reason))
                   FROM task_stops AS s WHERE s.epoch = l.epoch), '[]') AS stops
  FROM leases AS l
  JOIN managers AS m ON m.id = l.manager_id
  LEFT JOIN group_live AS v ON v.group_id = l.group_id
  LEFT JOIN task_groups AS g ON g.id = l.group_id
  LEFT JOIN deleted_groups AS d ON d.group_id = l.group_id
 WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s

-- name: end_without_group
-- Only a settled group is deleted, which has no lease; another removal has left no task to requeue.
UPDATE leases SET state = 'ended', ended_at = now(), end_reason = 'group_ended'
 WHERE epoch = %(epoch)s AND state <> 'ended'

-- name: end_drained
-- A lease under which nothing is claimed any more holds no task: that of a drained host, or one that was taken from
-- its group. So it ends.
WITH ended AS (
    UPDATE leases AS l SET state = 'ending', end_reason = CASE WHEN l.freed_for IS NULL THEN 'drained' ELSE 'moved' END
     WHERE l.epoch = %(epoch)s AND l.state = 'active' AND l.draining
       AND NOT EXISTS (SELECT FROM open_task AS o
                        WHERE o.group_id = l.group_id AND o.state = 1 AND o.epoch = l.epoch)
    RETURNING l.epoch
), pokes AS (
    INSERT INTO outbox (kind, subject) SELECT 'manager', %(manager)s::uuid FROM ended
    UNION ALL SELECT 'scheduler', NULL FROM ended
    RETURNING 1
)
SELECT e.epoch, CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS notified_relay
  FROM ended AS e

-- name: superseded
-- Those of the running attempts whose report would not count: the task has been claimed again or has ended,
-- or its group has been killed, settled or deleted (P5). No row of the lease = every attempt.
WITH lease AS MATERIALIZED (
    SELECT l.group_id, l.manager_id AS claimant, $live_epoch$ AS live_epoch
      FROM leases AS l
      JOIN managers AS m ON m.id = l.manager_id
      JOIN group_live AS g ON g.group_id = l.group_id
     WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s AND g.settled_at IS NULL AND NOT g.kill_running
), counting AS MATERIALIZED (
    SELECT o.id, o.attempt FROM open_task AS o, lease AS v
     WHERE o.group_id = (SELECT group_id FROM lease) AND o.id = ANY(%(ids)s::bigint[])
       AND NOT o.spent AND $claimed_here$
)
SELECT s.id AS task_id, s.attempt
  FROM unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS s (id, attempt)
 WHERE NOT EXISTS (SELECT FROM counting AS c WHERE c.id = s.id AND c.attempt = s.attempt)
