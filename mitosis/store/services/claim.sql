-- Claims of worker services (protocol P10). Lock order: registration, leases by epoch, groups by number, task rows.

-- name: session
-- The service, and whether the registration of this process is current. $lock$ locks the registration: no other
-- claim of the service and no end of its registration passes until the commit.
SELECT s.id AS service, s.worker_id, s.incarnation, s.slots, s.draining_since IS NOT NULL AS draining,
       r.id AS registration, coalesce(r.incarnation = s.incarnation AND now() < r.alive_until, false) AS current
  FROM worker_services AS s
  JOIN worker_registrations AS r ON r.service_id = s.id AND r.unregistered_at IS NULL
 WHERE s.uuid = %(worker)s

-- name: locked
   FOR NO KEY UPDATE OF r

-- name: held
-- All that is claimed by the service, under leases of any state.
SELECT o.group_id AS "group", o.id, o.attempt, o.named_task_id AS named_task, o.lost_count
  FROM leases AS l
  JOIN open_task AS o ON o.group_id = l.group_id AND o.epoch = l.epoch AND o.state = 1
 WHERE l.worker_uuid = %(worker)s AND l.kind = 'worker' AND l.state <> 'ended'
 ORDER BY o.group_id, o.id

-- name: supported
SELECT a.named_task_id AS named_task, a.priority FROM worker_named_tasks AS a
 WHERE a.service_id = %(service)s AND a.withdrawn_at IS NULL

-- name: better_waits
-- An expression over m, a named task and the priority of a service for it: a usable service with a higher priority for this named task waits in a claim.
EXISTS (SELECT FROM worker_named_tasks AS b
          JOIN worker_services AS s ON s.id = b.service_id
          JOIN worker_registrations AS r ON r.service_id = b.service_id AND r.unregistered_at IS NULL
         CROSS JOIN (SELECT now() AS now) AS clock
         WHERE b.named_task_id = m.named_task_id AND b.withdrawn_at IS NULL AND b.priority > m.priority
           AND r.waiting_until > now() AND $usable$)

-- name: candidates
-- The beginning of other statements: tasks that the service may be given now, in order. mine: its associations with
-- the number of tasks it has room for. Named tasks and groups are found by their index, one step for each pair. Some
-- more tasks than there is room for are read, since others may claim the first ones in the meantime. A task
-- that must run alone is a candidate only for a service that holds nothing, and nothing behind it is one.
WITH RECURSIVE mine AS MATERIALIZED (
    SELECT a.named_task_id, a.priority,
           least(%(room)s::int, coalesce(a.max_concurrent - coalesce(h.held, 0), %(room)s::int)) AS room
      FROM worker_named_tasks AS a
      LEFT JOIN unnest(%(held_tasks)s::bigint[], %(held_counts)s::int[]) AS h (named_task_id, held)
             ON h.named_task_id = a.named_task_id
     WHERE a.service_id = %(service)s AND a.withdrawn_at IS NULL
), pairs (named_task_id, group_id) AS (
    SELECT m.named_task_id,
           (SELECT o.group_id FROM open_task AS o WHERE o.state = 0 AND o.named_task_id = m.named_task_id
             ORDER BY o.named_task_id, o.group_id LIMIT 1)
      FROM mine AS m WHERE m.room > 0
    UNION ALL
    SELECT p.named_task_id,
           (SELECT o.group_id FROM open_task AS o
             WHERE o.state = 0 AND o.named_task_id = p.named_task_id AND o.group_id > p.group_id
             ORDER BY o.named_task_id, o.group_id LIMIT 1)
      FROM pairs AS p WHERE p.group_id IS NOT NULL
), due AS MATERIALIZED (
    SELECT d.* FROM mine AS m CROSS JOIN LATERAL (
           SELECT o.named_task_id, o.group_id, o.id FROM open_task AS o
            WHERE o.state = 4 AND o.named_task_id = m.named_task_id AND o.not_before <= now()
            ORDER BY o.not_before LIMIT %(room)s + %(spare)s) AS d
     WHERE m.room > 0
), work AS MATERIALIZED (
    SELECT m.named_task_id, m.priority, g.id AS group_id, g.priority AS group_priority, m.room,
           coalesce(g.preference_seconds, %(preference)s::float8) AS preference
      FROM (SELECT p.named_task_id, p.group_id FROM pairs AS p
            UNION SELECT d.named_task_id, d.group_id FROM due AS d) AS p
      JOIN mine AS m ON m.named_task_id = p.named_task_id
      JOIN task_groups AS g ON g.id = p.group_id
      JOIN group_live AS v ON v.group_id = g.id
     WHERE v.state IN ('open', 'closed') AND NOT v.discarding
     ORDER BY g.priority DESC, g.id LIMIT %(pairs)s
), ready AS MATERIALIZED (
    -- young: it is kept for a better service, if one waits.
    SELECT w.named_task_id, w.group_id, w.group_priority, w.room, o.id, o.priority, o.lost_count,
           w.preference > 0
           AND greatest(o.not_before, (SELECT t.created_at FROM task AS t WHERE t.id = o.id))
               > now() - make_interval(secs => w.preference) AS young
      FROM work AS w CROSS JOIN LATERAL (
           (SELECT r.id, r.priority, r.lost_count, r.not_before FROM open_task AS r
             WHERE r.state = 0 AND r.named_task_id = w.named_task_id AND r.group_id = w.group_id
             ORDER BY r.priority DESC, r.id LIMIT w.room + %(spare)s)
           UNION ALL
           (SELECT r.id, r.priority, r.lost_count, r.not_before FROM due AS d
              JOIN open_task AS r ON r.group_id = d.group_id AND r.id = d.id AND r.state = 4
             WHERE d.named_task_id = w.named_task_id AND d.group_id = w.group_id)) AS o
), yields AS MATERIALIZED (
    -- Asked only for named tasks with a young task: where no better service waits, all are read.
    SELECT m.named_task_id, m.preference
      FROM (SELECT w.named_task_id, w.priority, min(w.preference) AS preference FROM work AS w
             WHERE (w.named_task_id, w.group_id) IN (SELECT r.named_task_id, r.group_id FROM ready AS r WHERE r.young)
             GROUP BY w.named_task_id, w.priority) AS m
     WHERE $better_waits$
), found AS MATERIALIZED (
    SELECT r.* FROM ready AS r
     WHERE NOT r.young OR r.named_task_id NOT IN (SELECT y.named_task_id FROM yields AS y)
), ranked AS MATERIALIZED (
    SELECT f.*, row_number() OVER (ORDER BY f.group_priority DESC, f.group_id, f.priority DESC, f.id) AS place
      FROM found AS f
), alone AS MATERIALIZED (
    SELECT min(r.place) AS place FROM ranked AS r WHERE r.lost_count >= %(alone_at)s
), candidates AS MATERIALIZED (
    SELECT r.* FROM ranked AS r, alone AS a
     WHERE a.place IS NULL OR r.place < a.place OR (r.place = 1 AND a.place = 1 AND %(holds)s = 0)
)

-- name: wanted
-- Reads only: the groups of the tasks that come first, and when a look may find more without a notification: a
-- delayed task is due, or a better service has not taken what was kept for it.
$candidates$
SELECT coalesce((SELECT array_agg(DISTINCT c.group_id)
                   FROM (SELECT n.group_id FROM candidates AS n ORDER BY n.place LIMIT %(room)s) AS c), '{}') AS groups,
       least((SELECT min(y.preference) FROM yields AS y),
             (SELECT extract(epoch FROM min(d.due_at) - clock_timestamp())::float8 FROM mine AS m CROSS JOIN LATERAL (
                     SELECT o.not_before AS due_at FROM open_task AS o
                      WHERE o.state = 4 AND o.named_task_id = m.named_task_id AND o.not_before > now()
                      ORDER BY o.not_before LIMIT 1) AS d WHERE m.room > 0)) AS look_again_in_seconds

-- name: keep_leases
-- Their ending waits, and no lease is left that has started to end.
SELECT l.epoch, l.group_id AS "group" FROM leases AS l
 WHERE l.worker_uuid = %(worker)s AND l.kind = 'worker' AND l.state = 'active'
   AND l.group_id = ANY(%(groups)s::bigint[])
 ORDER BY l.epoch
   FOR KEY SHARE OF l

-- name: make_leases
-- In groups where the service has none. Under a share of the group's row, so that an ending of the group finds
-- either the lease or no claim.
WITH live AS MATERIALIZED (
    SELECT v.group_id FROM group_live AS v
     WHERE v.group_id = ANY(%(groups)s::bigint[]) AND v.state IN ('open', 'closed') AND NOT v.discarding
     ORDER BY v.group_id
       FOR KEY SHARE OF v
)
INSERT INTO leases (kind, group_id, worker_uuid, state, taken_at)
SELECT 'worker', v.group_id, %(worker)s, 'active', now() FROM live AS v
    ON CONFLICT (worker_uuid, group_id) WHERE kind = 'worker' AND state <> 'ended' DO NOTHING
RETURNING epoch, group_id AS "group"

-- name: take
-- The candidates in groups whose leases are held. No more rows are locked than there is room for; those that
-- another claim has locked are left to it. A claim counts as a start.
$candidates$, locked AS MATERIALIZED (
    SELECT l.* FROM (
        SELECT o.id, o.group_id, c.named_task_id, c.place, c.room, e.epoch
          FROM candidates AS c
          JOIN unnest(%(groups)s::bigint[], %(epochs)s::bigint[]) AS e (group_id, epoch) ON e.group_id = c.group_id
          JOIN open_task AS o ON o.group_id = c.group_id AND o.id = c.id
         WHERE o.state = 0 OR (o.state = 4 AND o.not_before <= now())
         ORDER BY c.place
           FOR UPDATE OF o SKIP LOCKED) AS l
     LIMIT %(room)s
), chosen AS MATERIALIZED (
    SELECT n.* FROM (
        SELECT l.*, row_number() OVER (PARTITION BY l.named_task_id ORDER BY l.place) AS nth FROM locked AS l) AS n
     WHERE n.nth <= n.room
)
UPDATE open_task AS o
   SET state = 1, attempt = o.attempt + 1, spent = false, not_before = NULL, started_at = now(), avoid = NULL,
       announce = false, claimed_by = NULL, epoch = c.epoch, claim_seq = 0
  FROM chosen AS c
 WHERE o.group_id = ANY(%(groups)s::bigint[]) AND o.id = ANY(ARRAY(SELECT id FROM chosen))
   AND o.group_id = c.group_id AND o.id = c.id
RETURNING o.group_id AS "group", o.id, o.attempt, o.named_task_id AS named_task, o.lost_count

-- name: answer
-- What a process needs to execute the attempts, recorded with the version of the configuration.
WITH given AS MATERIALIZED (
    SELECT g.*
      FROM unnest(%(group_numbers)s::bigint[], %(ids)s::bigint[], %(attempts)s::int[])
           WITH ORDINALITY AS g (group_id, task_id, attempt, place)
), details AS MATERIALIZED (
    SELECT g.*, o.lost_count, x.uuid AS task_group_id, x.name AS task_group_name, n.namespace, n.name, n.version,
           t.spec::text AS spec, a.configuration::text AS configuration, a.configuration_version,
           v.state NOT IN ('open', 'closed') OR v.discarding AS stop, y.checkpoint::text AS checkpoint
      FROM given AS g
      JOIN open_task AS o ON o.group_id = g.group_id AND o.id = g.task_id
      JOIN task AS t ON t.id = g.task_id
      JOIN task_groups AS x ON x.id = g.group_id
      JOIN group_live AS v ON v.group_id = g.group_id
      JOIN named_tasks AS n ON n.id = o.named_task_id
      JOIN worker_named_tasks AS a ON a.named_task_id = n.id AND a.service_id = %(service)s
      LEFT JOIN LATERAL (SELECT x.checkpoint FROM service_claims AS x
                          WHERE x.task_id = g.task_id AND x.checkpoint IS NOT NULL
                          ORDER BY x.attempt DESC LIMIT 1) AS y ON true
), noted AS (
    INSERT INTO service_claims (task_id, attempt, service_id, configuration_version)
    SELECT d.task_id, d.attempt, %(service)s, d.configuration_version FROM details AS d
        ON CONFLICT (task_id, attempt) DO UPDATE
       SET configuration_version = excluded.configuration_version, claimed_at = now()
)
SELECT d.* FROM details AS d ORDER BY d.place

-- name: wait
-- A claim waits: services with a lower priority leave it what it can execute (protocol P10).
UPDATE worker_registrations SET waiting_until = now() + make_interval(secs => %(seconds)s)
 WHERE id = %(registration)s AND unregistered_at IS NULL

-- name: stop_waiting
UPDATE worker_registrations SET waiting_until = NULL WHERE id = %(registration)s AND waiting_until IS NOT NULL
