-- Leases and endings (protocol P1-P5, P8). Lock order: managers, leases, group_live, task rows,
-- environments, manager_live. A transaction that ends a lease locks first and scans in a later statement.

-- name: lock_lease
-- FOR UPDATE waits for claims, reports and renewals of this epoch and stops new ones.
SELECT l.epoch, l.state, l.draining, l.group_id AS group_number, l.manager_id AS manager_number,
       extract(epoch FROM l.alive_until - clock_timestamp())::float8 AS alive_in_seconds
  FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
 WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s
   FOR UPDATE OF l

-- name: lock_live_lease
SELECT l.epoch, l.state, l.draining, l.group_id AS group_number, l.manager_id AS manager_number,
       extract(epoch FROM l.alive_until - clock_timestamp())::float8 AS alive_in_seconds
  FROM leases AS l
 WHERE l.manager_id = %(manager_number)s AND l.kind = 'manager' AND l.state <> 'ended'
   FOR UPDATE OF l

-- name: lock_leases_of_group
SELECT l.epoch FROM leases AS l
 WHERE l.group_id = %(group_number)s AND l.state <> 'ended'
 ORDER BY l.epoch
   FOR UPDATE OF l

-- name: live_epochs_of_group
SELECT l.epoch FROM leases AS l WHERE l.group_id = %(group_number)s AND l.state <> 'ended'

-- name: lock_group
SELECT v.group_id AS number, g.uuid, v.state, v.discarding, v.unfinished
  FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
 WHERE v.group_id = %(group_number)s
   FOR UPDATE OF v

-- name: group_number
SELECT id FROM task_groups WHERE uuid = %(group)s

-- name: end_lease
-- The scheduler is poked, unless the host has to be cleaned first: the end of the environment pokes it then.
-- The caller holds the lease and its group. Tasks that the epoch holds become ready again and keep their
-- attempt. With charge (an unplanned ending) the lost_count grows of each task that had started: known here,
-- or named by the next process of the agent (begun). At the limit the task fails. All other tasks that an
-- unplanned ending requeues are marked: their next start is announced (protocol P5, "Who is charged").
WITH begun AS MATERIALIZED (
    SELECT b.id, b.attempt FROM unnest(%(begun_ids)s::bigint[], %(begun_attempts)s::int[]) AS b (id, attempt)
), locked AS MATERIALIZED (
    SELECT o.id, o.attempt, o.started_at, o.lost_count
      FROM open_task AS o
     WHERE o.group_id = %(group_number)s AND o.state = 1 AND o.epoch = %(epoch)s
     ORDER BY o.id
       FOR UPDATE OF o
), charged AS MATERIALIZED (
    SELECT l.*, %(charge)s AND (l.started_at IS NOT NULL
                OR EXISTS (SELECT FROM begun AS b WHERE b.id = l.id AND b.attempt = l.attempt)) AS lost
      FROM locked AS l
), held AS MATERIALIZED (
    SELECT c.*, c.lost AND c.lost_count + 1 >= %(lost_limit)s AS poison FROM charged AS c
), poisoned AS (
    DELETE FROM open_task AS o USING held AS h
     WHERE o.group_id = %(group_number)s AND o.id = ANY(ARRAY(SELECT id FROM held WHERE poison))
       AND o.id = h.id
    RETURNING o.id
), results AS (
    INSERT INTO task_result (task_id, group_id, seq, state, attempt, manager_id, kind, started_at, finished_at,
                             detail)
    SELECT h.id, v.group_id, v.total - v.unfinished + row_number() OVER (), 'failed', h.attempt,
           %(manager_number)s::bigint, 'host_lost', h.started_at, now(),
           json_build_object('message', %(poison)s::text, 'poison', true)
      FROM held AS h, group_live AS v WHERE h.poison AND v.group_id = %(group_number)s
), failures AS (
    INSERT INTO task_failures (task_id, group_id, attempt, manager_id, kind, detail)
    SELECT h.id, %(group_number)s, h.attempt, %(manager_number)s::bigint, 'host_lost',
           json_build_object('message', CASE WHEN h.lost_count + 1 < %(alone_at)s THEN %(lost_once)s::text
                                             WHEN h.poison THEN %(poison)s::text ELSE %(lost_again)s::text END)
      FROM held AS h WHERE h.lost
        ON CONFLICT (task_id, attempt) DO NOTHING
), requeued AS (
    UPDATE open_task AS o
       SET state = 0, epoch = NULL, claim_seq = NULL, started_at = NULL, claimed_by = %(claimant)s,
           lost_count = o.lost_count + h.lost::int,
           announce = o.announce OR (%(charge)s AND NOT h.lost)
      FROM held AS h
     WHERE o.group_id = %(group_number)s AND o.id = ANY(ARRAY(SELECT id FROM held WHERE NOT poison))
       AND o.id = h.id
    RETURNING o.id, o.named_task_id
), sums AS MATERIALIZED (
    SELECT (SELECT count(*) FROM requeued) AS requeued, (SELECT count(*) FROM poisoned) AS poisoned
), before AS MATERIALIZED (
    SELECT v.group_id, v.state, v.discarding, v.hungry, v.watched, v.unfinished, g.uuid
      FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
     WHERE v.group_id = %(group_number)s
), counted AS (
    UPDATE group_live AS v
       SET unfinished = v.unfinished - n.poisoned, failed = v.failed + n.poisoned,
           drain_seq = v.drain_seq
                     + (v.state <> 'open' AND n.poisoned > 0 AND v.unfinished = n.poisoned)::int,
           hungry = v.hungry AND n.requeued = 0, watched = false
      FROM sums AS n WHERE v.group_id = %(group_number)s
), ended AS (
    UPDATE leases SET state = 'ended', ended_at = now(), end_reason = %(reason)s
     WHERE epoch = %(epoch)s
), unstopped AS (
    DELETE FROM task_stops WHERE epoch = %(epoch)s
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'task_group', b.uuid FROM before AS b, sums AS n
     WHERE b.state NOT IN ('open', 'closed') OR b.discarding
        OR (b.state <> 'open' AND n.poisoned > 0 AND b.unfinished = n.poisoned)
        -- Perhaps no host is left that can be prepared for it.
        OR (EXISTS (SELECT FROM host_failures AS f WHERE f.group_id = b.group_id AND f.kind = 'setup_failed')
            AND NOT EXISTS (SELECT FROM leases AS l
                             WHERE l.group_id = b.group_id AND l.state <> 'ended' AND l.epoch <> %(epoch)s))
    UNION ALL SELECT 'manager', m.uuid FROM managers AS m
     WHERE m.id = %(manager_number)s AND %(workflow)s::boolean
    UNION ALL SELECT 'scheduler', NULL FROM before AS b, sums AS n
     WHERE %(manager_number)s::bigint IS NOT NULL
       AND (n.requeued > 0 OR b.state IN ('open', 'closed')
            OR NOT EXISTS (SELECT FROM environments AS e
                            WHERE e.manager_id = %(manager_number)s AND e.group_id = b.group_id
                              AND e.state IN ('preparing', 'ready', 'tearing_down')))
    RETURNING 1
)
SELECT n.requeued, n.poisoned,
       CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS notified_relay,
       CASE WHEN b.hungry AND n.requeued > 0 THEN pg_notify('mitosis_wake', b.group_id::text) END AS notified_claims,
       (SELECT count(pg_notify('mitosis_wake', x.named_task_id || '@' || x.n))
          FROM (SELECT r.named_task_id, count(*) AS n FROM requeued AS r
                 WHERE r.named_task_id IS NOT NULL GROUP BY r.named_task_id) AS x) AS notified_services,
       CASE WHEN b.watched THEN pg_notify('mitosis_wake', b.group_id || '!') END AS notified_watchers
  FROM before AS b, sums AS n

-- name: owe_environments
-- A host that was lost, or that has booted again, owes the teardown of everything it has (protocol P9).
UPDATE environments AS e
   SET state = 'owed', changed_at = CASE WHEN e.state = 'tearing_down' THEN e.changed_at ELSE now() END
 WHERE e.manager_id = %(manager_number)s AND e.state IN ('preparing', 'ready', 'tearing_down')
RETURNING (SELECT g.uuid FROM task_groups AS g WHERE g.id = e.group_id) AS uuid

-- name: owe_begun_teardowns
-- A new process finishes what the one before has begun, also for a group that goes on. It is due since then.
UPDATE environments AS e SET state = 'owed'
 WHERE e.manager_id = %(manager_number)s AND e.state = 'tearing_down'
RETURNING (SELECT g.uuid FROM task_groups AS g WHERE g.id = e.group_id) AS uuid

-- name: forget_environments
-- On another machine there is no environment; the old machine was never cleaned.
UPDATE environments AS e SET state = 'gone', changed_at = now(), degraded = true
 WHERE e.manager_id = %(manager_number)s AND e.state <> 'gone'
RETURNING (SELECT g.uuid FROM task_groups AS g WHERE g.id = e.group_id) AS uuid

-- name: set_offline
-- The groups that were waiting for what the host owes no longer do.
WITH away AS (
    UPDATE manager_live SET offline = true WHERE manager_id = %(manager_number)s
)
SELECT g.uuid FROM environments AS e
  JOIN task_groups AS g ON g.id = e.group_id JOIN group_live AS v ON v.group_id = e.group_id
 WHERE e.manager_id = %(manager_number)s AND e.state <> 'gone' AND e.state = 'owed'
   AND v.settled_at IS NULL AND v.state IN ('complete', 'cancelled')

-- name: end_leases_of_group
-- The group became terminal or is discarding. The caller's transaction holds all its leases: offers are
-- withdrawn, the others start to end. Its hosts are poked, and its workflow unless that is the caller.
WITH changed AS (
    UPDATE leases AS l
       SET state = CASE WHEN l.state = 'offered' THEN 'ended' ELSE 'ending' END,
           ended_at = CASE WHEN l.state = 'offered' THEN now() END,
           end_reason = %(reason)s
     WHERE l.group_id = %(group_number)s AND l.state IN ('offered', 'active')
    RETURNING l.manager_id
), concerned AS (
    SELECT manager_id FROM changed WHERE manager_id IS NOT NULL
    UNION
    SELECT e.manager_id FROM environments AS e WHERE e.group_id = %(group_number)s AND e.state <> 'gone'
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'manager', m.uuid FROM concerned AS c JOIN managers AS m ON m.id = c.manager_id
    UNION ALL SELECT 'task_group', g.uuid FROM task_groups AS g
     WHERE g.id = %(group_number)s AND %(workflow)s::boolean
    RETURNING 1
)
SELECT CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS notified_relay,
       pg_notify('mitosis_wake', %(group_number)s::bigint::text) AS notified_claims,
       pg_notify('mitosis_wake', %(group_number)s::bigint || '!') AS notified_watchers
