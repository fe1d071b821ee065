-- Task groups: creation, views, verbs. Endings lock first and look in a later statement (protocol P1).

-- name: create
WITH created AS (
    INSERT INTO task_groups (name, user_group_id, creator_id, tags, labels, tag_match, priority,
           worker_allocation_plan, environment_setup_hook, environment_teardown_hook,
           auto_close_timeout_seconds, close_deadline, max_managers, assignment_method, reopen_on_submit,
           cancel_grace_seconds, host_lost_after_seconds, fence)
    SELECT %(name)s, o.id, u.id, %(tags)s::text[], %(labels)s::text[], %(tag_match)s, %(priority)s,
           %(plan)s::jsonb, %(setup)s::jsonb, %(teardown)s::jsonb, %(auto_close)s, %(close_deadline)s,
           %(max_managers)s, %(assignment_method)s, %(reopen_on_submit)s, %(cancel_grace)s,
           %(host_lost_after)s, %(fence)s
      FROM users AS u JOIN user_groups AS o ON o.name = coalesce(%(group_name)s::text, u.username)
     WHERE u.uuid = %(user)s AND o.state = 'active'
    RETURNING id, uuid, creator_id
), live AS (
    INSERT INTO group_live (group_id) SELECT id FROM created
), pokes AS (
    INSERT INTO outbox (kind, subject) SELECT 'task_group', uuid FROM created
    RETURNING 1
)
SELECT c.id, c.uuid,
       CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS told_relay
  FROM created AS c

-- name: hosts_of_group
-- Hosts that have said what cores they have and may work for the group's user group.
SELECT m.name, m.cores
  FROM task_groups AS g
  JOIN user_group_managers AS r ON r.user_group_id = g.user_group_id AND r.role IN ('write', 'admin')
  JOIN managers AS m ON m.id = r.manager_id AND m.cores <> '{}'
 WHERE g.id = %(group_number)s
 ORDER BY m.id LIMIT 1000

-- name: name_managers
INSERT INTO task_group_managers (task_group_id, manager_id, assignment_method, added_by_user_id)
SELECT %(group_number)s, m.id, 'user_specified', (SELECT id FROM users WHERE uuid = %(user)s)
  FROM managers AS m WHERE m.uuid = ANY(%(managers)s::uuid[])
    ON CONFLICT (task_group_id, manager_id) DO UPDATE SET assignment_method = 'user_specified'

-- name: may_serve
-- Whether a manager may serve a group: a write role in the user group that owns it.
SELECT g.id AS group_number, m.id AS manager_number,
       EXISTS (SELECT FROM user_group_managers AS r WHERE r.user_group_id = g.user_group_id
                  AND r.manager_id = m.id AND r.role IN ('write', 'admin')) AS allowed
  FROM task_groups AS g LEFT JOIN managers AS m ON m.uuid = %(manager)s
 WHERE g.uuid = %(group)s

-- name: unname_manager
-- Its live lease begins to end, an offer is withdrawn.
WITH removed AS (
    DELETE FROM task_group_managers
     WHERE task_group_id = %(group_number)s AND manager_id = %(manager_number)s
    RETURNING manager_id
), ended AS (
    UPDATE leases AS l
       SET state = CASE WHEN l.state = 'offered' THEN 'ended' ELSE 'ending' END,
           ended_at = CASE WHEN l.state = 'offered' THEN now() END, end_reason = 'moved'
      FROM removed AS r
     WHERE l.group_id = %(group_number)s AND l.manager_id = r.manager_id
       AND l.state IN ('offered', 'active')
), pokes AS (
    INSERT INTO outbox (kind, subject) SELECT 'manager', %(manager)s::uuid FROM removed
    UNION ALL SELECT 'scheduler', NULL FROM removed
    RETURNING 1
)
SELECT CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS told_relay
  FROM removed

-- name: refresh_managers
-- The managers whose tags fit now; those a user named stay as they are.
WITH fitting AS (
    SELECT g.id AS group_number, m.id AS manager_number,
           ARRAY(SELECT unnest(g.tags) INTERSECT SELECT unnest(m.tags)) AS matched
      FROM task_groups AS g
      JOIN user_group_managers AS r ON r.user_group_id = g.user_group_id AND r.role IN ('write', 'admin')
      JOIN managers AS m ON m.id = r.manager_id
     WHERE g.uuid = %(group)s
       AND (CASE g.tag_match WHEN 'all' THEN m.tags @> g.tags
                             ELSE g.tags = '{}' OR m.tags && g.tags END)
), gone AS (
    DELETE FROM task_group_managers AS t
     USING task_groups AS g
     WHERE g.uuid = %(group)s AND t.task_group_id = g.id AND t.assignment_method = 'tag_matched'
       AND t.manager_id NOT IN (SELECT manager_number FROM fitting)
    RETURNING t.manager_id
), still AS (
    UPDATE task_group_managers AS t SET matched_tags = f.matched
      FROM fitting AS f
     WHERE t.task_group_id = f.group_number AND t.manager_id = f.manager_number
       AND t.assignment_method = 'tag_matched' AND t.matched_tags <> f.matched
), added AS (
    INSERT INTO task_group_managers (task_group_id, manager_id, assignment_method, matched_tags)
    SELECT group_number, manager_number, 'tag_matched', matched FROM fitting
        ON CONFLICT (task_group_id, manager_id) DO NOTHING
    RETURNING manager_id
)
SELECT ARRAY(SELECT m.uuid FROM added AS a JOIN managers AS m ON m.id = a.manager_id ORDER BY m.id) AS added,
       ARRAY(SELECT m.uuid FROM gone AS d JOIN managers AS m ON m.id = d.manager_id ORDER BY m.id) AS removed,
       ARRAY(SELECT m.uuid FROM task_group_managers AS t JOIN managers AS m ON m.id = t.manager_id
               JOIN task_groups AS g ON g.id = t.task_group_id
              WHERE g.uuid = %(group)s AND t.assignment_method = 'user_specified' ORDER BY m.id) AS kept

-- name: listed_managers
SELECT m.uuid FROM task_group_managers AS t
  JOIN task_groups AS g ON g.id = t.task_group_id
  JOIN managers AS m ON m.id = t.manager_id
 WHERE g.uuid = %(group)s

-- name: resolve
SELECT g.uuid FROM task_groups AS g JOIN user_groups AS u ON u.id = g.user_group_id
 WHERE u.name = %(group_name)s AND g.name = %(name)s

-- name: number
SELECT id FROM task_groups WHERE uuid = %(group)s

-- name: update
UPDATE task_groups AS g
   SET tags = coalesce(%(tags)s::text[], g.tags), labels = coalesce(%(labels)s::text[], g.labels),
       priority = coalesce(%(priority)s::int, g.priority),
       auto_close_timeout_seconds = CASE WHEN %(sets_auto_close)s THEN %(auto_close)s::float8
                                         ELSE g.auto_close_timeout_seconds END,
       max_managers = CASE WHEN %(sets_max_managers)s THEN %(max_managers)s::int ELSE g.max_managers END,
       updated_at = clock_timestamp()
 WHERE g.id = %(group_number)s
   AND (%(expected)s::timestamptz IS NULL OR g.updated_at = %(expected)s)

-- name: show
-- What every view of a group shares. Newest first.
SELECT g.id AS number, g.uuid AS task_group_id, g.name, u.name AS group_name, v.state,
       v.settled_at IS NOT NULL AS settled, v.result, v.reason, g.tags, g.labels, g.priority,
       g.worker_allocation_plan, g.environment_setup_hook, g.environment_teardown_hook,
       g.auto_close_timeout_seconds AS auto_close_timeout, g.close_deadline, g.max_managers, g.tag_match,
       g.assignment_method, g.reopen_on_submit, g.cancel_grace_seconds,
       g.host_lost_after_seconds AS host_lost_after, g.fence,
       v.total AS tasks_total, v.unfinished AS tasks_unfinished,
       v.succeeded + v.failed + v.cancelled AS tasks_completed, v.succeeded AS tasks_succeeded,
       v.failed AS tasks_failed, v.cancelled AS tasks_cancelled, g.created_at, g.updated_at,
       v.last_task_submitted_at, v.closed_at, v.terminal_at AS completed_at, v.settled_at,
       v.discarding AND v.unfinished > 0 AS counting
  FROM task_groups AS g
  JOIN group_live AS v ON v.group_id = g.id
  JOIN user_groups AS u ON u.id = g.user_group_id
 WHERE g.kind = 'managed'
   AND (%(group)s::uuid IS NULL OR g.uuid = %(group)s)
   AND (%(viewer)s::uuid IS NULL
        OR EXISTS (SELECT FROM users AS p WHERE p.uuid = %(viewer)s AND p.is_admin)
        OR EXISTS (SELECT FROM user_group_members AS r JOIN users AS p ON p.id = r.user_id
                    WHERE r.user_group_id = g.user_group_id AND p.uuid = %(viewer)s))
   AND (%(states)s::text[] = '{}' OR v.state = ANY(%(states)s::text[]))
   AND (%(settled)s::boolean IS NULL OR (v.settled_at IS NOT NULL) = %(settled)s)
   AND g.tags @> %(tags)s::text[] AND g.labels @> %(labels)s::text[]
   AND (%(name)s::text IS NULL OR g.name LIKE %(name)s)
   AND (%(after)s::bigint IS NULL OR g.id < %(after)s)
 ORDER BY g.id DESC
 LIMIT %(limit)s

-- name: details
-- What only the view of one group shows: who works on it, how fast, how its hooks went. Bounded.
SELECT (SELECT count(*) FROM (SELECT FROM open_task AS o WHERE o.group_id = %(group_number)s AND o.state = 1
                                 AND o.started_at IS NOT NULL LIMIT 10000) AS r) AS tasks_running,
       (SELECT CASE WHEN count(*) > 1 THEN count(*) / greatest(0.001, extract(epoch FROM
                    CASE WHEN %(unfinished)s > 0 THEN now() ELSE max(r.recorded_at) END
                    - min(coalesce(r.started_at, r.recorded_at))))::float8 END
          FROM (SELECT started_at, recorded_at FROM task_result
                 WHERE group_id = %(group_number)s AND state <> 'cancelled'
                 ORDER BY seq DESC LIMIT 500) AS r) AS tasks_per_second,
       coalesce((SELECT json_agg(json_build_object('epoch', l.epoch, 'state', l.state,
                   'task_group_id', g.uuid, 'task_group_name', g.name, 'manager_id', m.uuid,
                   'manager_name', m.name, 'offered_at', l.offered_at, 'taken_at', l.taken_at,
                   'alive_until', l.alive_until) ORDER BY l.epoch)
          FROM leases AS l JOIN managers AS m ON m.id = l.manager_id JOIN task_groups AS g ON g.id = l.group_id
         WHERE l.group_id = %(group_number)s AND l.state <> 'ended'), '[]') AS leases,
       coalesce((SELECT json_agg(r ORDER BY r.started_at) FROM (
         SELECT h.kind, h.state, m.name AS manager_name, h.exit_code, h.signal, h.message, h.stdout_tail,
                h.stderr_tail, h.started_at, h.finished_at
           FROM hook_runs AS h JOIN managers AS m ON m.id = h.manager_id
          WHERE h.group_id = %(group_number)s ORDER BY h.started_at DESC LIMIT 100) AS r), '[]') AS hook_runs

-- name: observe
-- One consistent read of everything TaskGroupWorkflow decides by.
SELECT g.id AS number, g.uuid AS task_group_id, g.name, u.name AS group_name, g.priority, g.tags, v.state,
       v.settled_at IS NOT NULL AS settled, v.result, v.total, v.unfinished,
       extract(epoch FROM v.settled_at - g.created_at)::float8 AS settled_after_seconds, v.succeeded, v.failed,
       v.cancelled, v.drain_seq, v.discarding,
       CASE WHEN v.state = 'open' AND g.auto_close_timeout_seconds IS NOT NULL
            THEN extract(epoch FROM greatest(v.opened_at, v.last_task_submitted_at) - now())::float8
                 + g.auto_close_timeout_seconds END AS auto_close_in_seconds,
       CASE WHEN v.state IN ('open', 'closed') AND NOT v.discarding
            THEN extract(epoch FROM g.close_deadline - now())::float8 END AS close_deadline_in_seconds,
       v.discarding AND EXISTS (SELECT FROM open_task AS o WHERE o.group_id = g.id AND o.state IN (0, 4))
           AS discardable,
       (SELECT count(*) FROM leases AS l WHERE l.group_id = g.id AND l.state <> 'ended') AS live_leases,
       (SELECT count(*) FROM environments AS e WHERE e.group_id = g.id AND e.state NOT IN ('gone', 'owed'))
           AS busy_environments
  FROM task_groups AS g
  JOIN group_live AS v ON v.group_id = g.id
  JOIN user_groups AS u ON u.id = g.user_group_id
 WHERE g.uuid = %(group)s

-- name: followed
SELECT g.id AS number, v.state, v.unfinished, v.total - v.unfinished AS ended
  FROM task_groups AS g JOIN group_live AS v ON v.group_id = g.id WHERE g.uuid = %(group)s

-- name: watch
UPDATE group_live SET watched = true WHERE group_id = %(group_number)s AND NOT watched

-- name: lock_live
SELECT v.group_id AS number, g.uuid, v.state, v.discarding, v.unfinished,
       v.state = 'open' AND greatest(v.opened_at, v.last_task_submitted_at)
         + make_interval(secs => g.auto_close_timeout_seconds) <= clock_timestamp() AS inactive,
       v.state IN ('open', 'closed') AND NOT v.discarding AND g.close_deadline <= clock_timestamp() AS overdue
  FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
 WHERE g.uuid = %(group)s
   FOR UPDATE OF v

-- name: close
-- The caller holds the row. A group that is closed with nothing unfinished has drained by this.
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
       grace_seconds = %(grace)s, reason = coalesce(%(reason)s, reason), watched = false, hungry = false
 WHERE group_id = %(group_number)s AND state IN ('open', 'closed')

-- name: kill_after_all
-- A second cancel may end what the first left running.
UPDATE group_live SET kill_running = true, grace_seconds = %(grace)s
 WHERE group_id = %(group_number)s AND state = 'cancelled' AND NOT kill_running

-- name: force
UPDATE group_live
   SET discarding = true, kill_running = true, grace_seconds = %(grace)s,
       reason = coalesce(%(reason)s, reason), watched = false, hungry = false
 WHERE group_id = %(group_number)s AND state = 'closed' AND unfinished > 0

-- name: tell_group
-- An edge of the lifecycle: the workflow, and everybody who waits here.
WITH pokes AS (
    INSERT INTO outbox (kind, subject) SELECT 'task_group', uuid FROM task_groups WHERE id = %(group_number)s
    UNION ALL SELECT 'scheduler', NULL WHERE %(scheduler)s::boolean
)
SELECT pg_notify('mitosis_outbox', ''), pg_notify('mitosis_wake', %(group_number)s::bigint::text),
       pg_notify('mitosis_wake', %(group_number)s::bigint || '!')

-- name: cancel_stats
-- Of a cancelled group. What its hosts have not said to be running counts as ready, as everywhere; what runs
-- and may finish (kill_running is false) is in no number.
SELECT (SELECT count(*) FROM open_task AS o
         WHERE o.group_id = g.id AND (o.state <> 1 OR o.started_at IS NULL)) + r.nobody AS ready_cancelled,
       CASE WHEN v.kill_running THEN o.managed ELSE 0 END + r.managed AS running_cancelled,
       o.independent AS running_not_cancellable
  FROM task_groups AS g
  JOIN group_live AS v ON v.group_id = g.id
 CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE l.kind = 'manager') AS managed,
                            count(*) FILTER (WHERE l.kind = 'worker') AS independent
                       FROM open_task AS c JOIN leases AS l ON l.epoch = c.epoch
                      WHERE c.group_id = g.id AND c.state = 1 AND c.started_at IS NOT NULL) AS o
 CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE e.manager_id IS NULL) AS nobody,
                            count(*) FILTER (WHERE e.manager_id IS NOT NULL) AS managed
                       FROM task_result AS e WHERE e.group_id = g.id AND e.state = 'cancelled') AS r
 WHERE g.uuid = %(group)s

-- name: discard
-- The caller holds group_live. One chunk of what nobody has claimed; rows that are being reported are
-- left to their report.
WITH picked AS MATERIALIZED (
    SELECT o.id, o.attempt FROM open_task AS o
     WHERE o.group_id = %(group_number)s AND o.state IN (0, 4)
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
SELECT s.n AS cancelled,
       CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS told_relay,
       CASE WHEN b.watched THEN pg_notify('mitosis_wake', b.group_id || '!') END AS told_watchers
  FROM sums AS s, before AS b

-- name: unclaimed_left
SELECT EXISTS (SELECT FROM open_task AS o WHERE o.group_id = %(group_number)s AND o.state IN (0, 4)) AS left_over

-- name: settle_facts
-- The caller holds all leases of the group and its live row.
SELECT v.state, v.settled_at IS NOT NULL AS settled, v.unfinished, v.failed, v.cancelled, v.succeeded,
       (SELECT count(*) FROM leases AS l WHERE l.group_id = v.group_id AND l.state <> 'ended') AS live_leases,
       (SELECT count(*) FROM environments AS e WHERE e.group_id = v.group_id AND e.state NOT IN ('gone', 'owed'))
           AS busy_environments,
       EXISTS (SELECT FROM environments AS e
                WHERE e.group_id = v.group_id AND (e.degraded OR e.state = 'owed')) AS degraded,
       v.cancelled > 0
       AND EXISTS (SELECT FROM hook_runs AS h
                    WHERE h.group_id = v.group_id AND h.kind = 'setup' AND h.state = 'failed')
       AND NOT EXISTS (SELECT FROM hook_runs AS h
                        WHERE h.group_id = v.group_id AND h.kind = 'setup' AND h.state = 'succeeded')
       AND EXISTS (SELECT FROM task_result AS r
                    WHERE r.group_id = v.group_id AND r.state = 'cancelled' AND r.attempt = 0) AS setup_failed
  FROM group_live AS v WHERE v.group_id = %(group_number)s

-- name: settle
UPDATE group_live SET settled_at = now(), result = %(result)s, watched = false
 WHERE group_id = %(group_number)s AND settled_at IS NULL

-- name: delete_tasks
-- One chunk of the rows of a settled group; nothing refers to them.
WITH results AS (
    DELETE FROM task_result WHERE task_id IN (
        SELECT id FROM task WHERE group_id = %(group_number)s ORDER BY id LIMIT %(limit)s)
), failures AS (
    DELETE FROM task_failures WHERE group_id = %(group_number)s AND task_id IN (
        SELECT id FROM task WHERE group_id = %(group_number)s ORDER BY id LIMIT %(limit)s)
)
DELETE FROM task WHERE id IN (SELECT id FROM task WHERE group_id = %(group_number)s ORDER BY id LIMIT %(limit)s)

-- name: delete_group
DELETE FROM task_groups AS g USING group_live AS v
 WHERE g.id = %(group_number)s AND v.group_id = g.id AND v.settled_at IS NOT NULL
