-- Managers: registration, contact, hello, what is shown of them.

-- name: register
WITH created AS (
    INSERT INTO managers (name, creator_id, tags, labels)
    SELECT %(name)s, u.id, %(tags)s::text[], %(labels)s::text[] FROM users AS u WHERE u.uuid = %(user)s
    RETURNING id, uuid, token_version
), live AS (
    INSERT INTO manager_live (manager_id) SELECT id FROM created
), members AS (
    INSERT INTO user_group_managers (user_group_id, manager_id, role)
    SELECT r.user_group_id, c.id, r.role
      FROM created AS c, unnest(%(group_numbers)s::bigint[], %(roles)s::text[]) AS r (user_group_id, role)
)
SELECT uuid, token_version FROM created

-- name: token_version
SELECT token_version FROM managers WHERE uuid = %(manager)s

-- name: contact
-- Any authenticated call of the agent (P4). A lease that is over stays over.
WITH seen AS (
    UPDATE manager_live AS c SET last_contact_at = now()
      FROM managers AS m WHERE m.uuid = %(manager)s AND c.manager_id = m.id
    RETURNING m.id, m.incarnation, c.offline
)
SELECT id, incarnation, offline FROM seen

-- name: mark_busy
-- Busy: something of the group is claimable, or something is claimed under this epoch (C-04). What is not
-- busy for longer than the idle threshold may be given to another group.
UPDATE leases AS l SET busy_at = now()
 WHERE l.epoch = %(epoch)s AND l.state = 'active'
   AND (EXISTS (SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.state = 0)
     OR EXISTS (SELECT FROM open_task AS o
                 WHERE o.group_id = l.group_id AND o.state = 1 AND o.epoch = l.epoch))

-- name: started
-- Attempts that run for more than 1 s. Rows somebody else holds are being reported or requeued.
UPDATE open_task AS o SET started_at = now()
  FROM (SELECT o.group_id, o.id
          FROM open_task AS o
          JOIN unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS s (id, attempt)
            ON s.id = o.id AND s.attempt = o.attempt
         WHERE o.group_id = %(group_number)s AND o.id = ANY(%(ids)s::bigint[])
           AND o.state = 1 AND o.epoch = %(epoch)s AND o.started_at IS NULL
           FOR UPDATE OF o SKIP LOCKED) AS r
 WHERE o.group_id = r.group_id AND o.id = r.id

-- name: lock_for_return
-- A return changes rows of an epoch that may be ending: ordered like a report.
SELECT l.group_id FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
 WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s AND l.state IN ('active', 'ending')
   FOR KEY SHARE OF l

-- name: returned
-- Claimed and unstarted tasks that the agent gives back: nothing is charged.
UPDATE open_task AS o
   SET state = 0, epoch = NULL, claim_seq = NULL, started_at = NULL
  FROM unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS s (id, attempt)
 WHERE o.group_id = %(group_number)s AND o.id = ANY(%(ids)s::bigint[])
   AND o.id = s.id AND o.attempt = s.attempt AND o.state = 1 AND o.epoch = %(epoch)s

-- name: not_held
-- Rows of this epoch whose claim was answered and acknowledged, but which the agent does not have (P3).
UPDATE open_task AS o
   SET state = 0, epoch = NULL, claim_seq = NULL, started_at = NULL
 WHERE o.group_id = %(group_number)s AND o.state = 1 AND o.epoch = %(epoch)s
   AND o.claim_seq <= %(acked_seq)s AND o.id <> ALL(%(ids)s::bigint[])

-- name: tell_returned
-- After tasks went back: claims that wait are woken; a group that discards goes on discarding.
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
SELECT CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS told_relay,
       CASE WHEN b.hungry THEN pg_notify('mitosis_wake', b.group_id::text) END AS told_claims
  FROM before AS b

-- name: lock_manager
SELECT m.id, m.uuid, m.name, m.incarnation, m.machine_id, m.boot_id,
       c.offline, coalesce(extract(epoch FROM clock_timestamp() - c.last_contact_at)::float8, 'infinity')
           AS silent_seconds
  FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
 WHERE m.uuid = %(manager)s
   FOR NO KEY UPDATE OF m

-- name: save_hello
UPDATE managers
   SET incarnation = %(incarnation)s, machine_id = %(machine_id)s, boot_id = %(boot_id)s,
       host_name = %(host_name)s, cores = %(cores)s::int[], agent_version = %(agent_version)s,
       updated_at = now()
 WHERE id = %(manager_number)s

-- name: set_online
UPDATE manager_live SET offline = false, last_contact_at = now() WHERE manager_id = %(manager_number)s

-- name: owed
SELECT g.uuid FROM environments AS e JOIN task_groups AS g ON g.id = e.group_id
 WHERE e.manager_id = %(manager_number)s AND e.state = 'owed'
 ORDER BY e.changed_at

-- name: held
SELECT l.epoch, g.uuid AS task_group_id, g.host_lost_after_seconds
  FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id
 WHERE l.manager_id = %(manager_number)s AND l.kind = 'manager' AND l.state = 'active'

-- name: state_facts
-- An expression over managers AS m and manager_live AS c, put where a statement says $state_facts$: the
-- facts that derived_manager_state reads (ManagerFacts). A manager has at most one live lease.
(SELECT json_build_object('offline', c.offline, 'draining', m.draining,
            'silent_seconds', extract(epoch FROM now() - c.last_contact_at)::float8,
            'host_lost_after_seconds', %(host_lost_after)s::float8,
            'lease_state', l.state,
            'alive_in_seconds', extract(epoch FROM l.alive_until - now())::float8,
            'lease_environment', (SELECT e.state FROM environments AS e
                                   WHERE e.manager_id = m.id AND e.group_id = l.group_id),
            'tearing_down', EXISTS (SELECT FROM environments AS e
                                     WHERE e.manager_id = m.id AND e.state = 'tearing_down'))
   FROM (VALUES (m.id)) AS one (manager_id)
   LEFT JOIN leases AS l
     ON l.manager_id = one.manager_id AND l.kind = 'manager' AND l.state <> 'ended')

-- name: observe
-- One consistent read of everything ManagerWorkflow decides by.
SELECT m.uuid AS manager_id, m.name, $state_facts$ AS facts,
       NOT c.offline AND c.last_contact_at > now() - interval '10 seconds' AS online,
       CASE WHEN NOT c.offline
                 OR EXISTS (SELECT FROM environments AS e
                             WHERE e.manager_id = m.id AND e.state IN ('preparing', 'ready', 'tearing_down'))
            THEN extract(epoch FROM c.last_contact_at - now())::float8 + %(host_lost_after)s END AS lost_in_seconds,
       (SELECT json_build_object('epoch', l.epoch, 'state', l.state, 'task_group_id', g.uuid,
                   'task_group_name', g.name, 'group_state', v.state, 'end_reason', l.end_reason,
                   'alive_in_seconds', extract(epoch FROM l.alive_until - now()))
          FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id JOIN group_live AS v ON v.group_id = g.id
         WHERE l.manager_id = m.id AND l.kind = 'manager' AND l.state <> 'ended') AS lease,
       coalesce((SELECT json_agg(json_build_object('task_group_id', g.uuid, 'task_group_name', g.name,
                   'state', e.state, 'cleanable',
                   (v.state IN ('complete', 'cancelled') OR e.state <> 'ready')
                   AND NOT EXISTS (SELECT FROM leases AS l WHERE l.manager_id = m.id
                                      AND l.group_id = e.group_id AND l.state <> 'ended'))
                   ORDER BY e.changed_at)
          FROM environments AS e JOIN task_groups AS g ON g.id = e.group_id
          JOIN group_live AS v ON v.group_id = g.id
         WHERE e.manager_id = m.id AND e.state <> 'gone'), '[]') AS environments
  FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
 WHERE m.uuid = %(manager)s

-- name: lock_environment
SELECT e.state, e.fingerprint, e.epoch, e.degraded
  FROM environments AS e
 WHERE e.manager_id = %(manager_number)s AND e.group_id = %(group_number)s
   FOR UPDATE OF e

-- name: lock_leases_for_environment
SELECT l.epoch, l.state FROM leases AS l
 WHERE l.manager_id = %(manager_number)s AND l.group_id = %(group_number)s AND l.state <> 'ended'
   FOR UPDATE OF l

-- name: environment_facts
SELECT g.id AS group_number, g.uuid, m.id AS manager_number, m.machine_id, m.boot_id,
       v.state IN ('complete', 'cancelled') AS terminal
  FROM task_groups AS g JOIN group_live AS v ON v.group_id = g.id, managers AS m
 WHERE g.uuid = %(group)s AND m.uuid = %(manager)s

-- name: save_environment
INSERT INTO environments (manager_id, group_id, state, fingerprint, epoch, machine_id, boot_id, degraded)
VALUES (%(manager_number)s, %(group_number)s, %(state)s, coalesce(%(fingerprint)s::text, ''), %(epoch)s::bigint,
        %(machine_id)s, %(boot_id)s, %(degraded)s)
    ON CONFLICT (manager_id, group_id) DO UPDATE
   SET state = excluded.state, changed_at = now(),
       fingerprint = coalesce(%(fingerprint)s::text, environments.fingerprint),
       epoch = coalesce(excluded.epoch, environments.epoch),
       machine_id = excluded.machine_id, boot_id = excluded.boot_id,
       degraded = CASE WHEN excluded.state = 'preparing' THEN environments.degraded
                       ELSE environments.degraded OR excluded.degraded END

-- name: update_hook_run
UPDATE hook_runs
   SET state = %(hook_state)s, exit_code = %(exit_code)s, signal = %(signal)s, message = %(message)s,
       stdout_tail = %(stdout_tail)s, stderr_tail = %(stderr_tail)s, retry_count = %(retry_count)s,
       finished_at = %(finished_at)s
 WHERE manager_id = %(manager_number)s AND group_id = %(group_number)s AND kind = %(kind)s
   AND started_at = %(started_at)s

-- name: insert_hook_run
INSERT INTO hook_runs (manager_id, group_id, epoch, kind, state, exit_code, signal, message, stdout_tail,
                       stderr_tail, retry_count, started_at, finished_at)
VALUES (%(manager_number)s, %(group_number)s, %(epoch)s, %(kind)s, %(hook_state)s, %(exit_code)s, %(signal)s,
        %(message)s, %(stdout_tail)s, %(stderr_tail)s, %(retry_count)s, %(started_at)s, %(finished_at)s)

-- name: environment
SELECT g.uuid AS task_group_id, g.name AS task_group_name, u.name AS group_name, e.state,
       (g.worker_allocation_plan ->> 'worker_count')::int AS worker_count, g.environment_teardown_hook
  FROM environments AS e
  JOIN managers AS m ON m.id = e.manager_id
  JOIN task_groups AS g ON g.id = e.group_id
  JOIN user_groups AS u ON u.id = g.user_group_id
 WHERE m.uuid = %(manager)s AND g.uuid = %(group)s AND e.state <> 'gone'

-- name: show
-- Managers with what their state is derived from; ids NULL = every one the viewer may see.
SELECT m.id AS number, m.uuid AS manager_id, m.name, m.tags, m.labels, m.host_name, m.cores, m.created_at,
       m.draining, c.last_contact_at, $state_facts$ AS facts,
       (SELECT coalesce(array_agg(u.name ORDER BY u.name), '{}')
          FROM user_group_managers AS r JOIN user_groups AS u ON u.id = r.user_group_id
         WHERE r.manager_id = m.id) AS groups,
       (SELECT json_build_object('epoch', l.epoch, 'state', l.state, 'task_group_id', g.uuid,
                   'task_group_name', g.name, 'manager_id', m.uuid, 'manager_name', m.name,
                   'offered_at', l.offered_at, 'taken_at', l.taken_at, 'alive_until', l.alive_until)
          FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id
         WHERE l.manager_id = m.id AND l.kind = 'manager' AND l.state <> 'ended') AS lease,
       coalesce((SELECT json_object_agg(g.name, e.state)
          FROM environments AS e JOIN task_groups AS g ON g.id = e.group_id
         WHERE e.manager_id = m.id AND e.state <> 'gone'), '{}') AS environments
  FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
 WHERE (%(ids)s::uuid[] IS NULL OR m.uuid = ANY(%(ids)s::uuid[]))
   AND (%(viewer)s::uuid IS NULL
        OR EXISTS (SELECT FROM users AS u WHERE u.uuid = %(viewer)s AND u.is_admin)
        OR EXISTS (SELECT FROM user_group_managers AS r
                     JOIN user_group_members AS b ON b.user_group_id = r.user_group_id
                     JOIN users AS u ON u.id = b.user_id
                    WHERE r.manager_id = m.id AND u.uuid = %(viewer)s))
   AND (%(after_name)s::text IS NULL OR (m.name, m.id) > (%(after_name)s, %(after_id)s::bigint))
 ORDER BY m.name, m.id
 LIMIT %(limit)s

-- name: manager_number
SELECT id FROM managers WHERE uuid = %(manager)s

-- name: group_ids
SELECT u.uuid FROM managers AS m
  LEFT JOIN user_group_managers AS r ON r.manager_id = m.id
  LEFT JOIN user_groups AS u ON u.id = r.user_group_id
 WHERE m.uuid = %(manager)s
