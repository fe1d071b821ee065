-- Views of managers for users and for ManagerWorkflow.

-- name: state_facts
-- An expression over managers AS m and manager_live AS c that replaces $state_facts$ in a statement: the
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

-- name: states
SELECT m.uuid AS manager_id, $state_facts$ AS facts
  FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
 WHERE m.uuid = ANY(%(ids)s::uuid[])

-- name: show
-- Managers by name, with the facts of their state. views.py selects the ids of a page.
SELECT m.uuid AS manager_id, m.name, m.tags, m.labels, m.host_name, m.agent_version, m.cores, m.created_at,
       c.last_contact_at, c.report_trouble, $state_facts$ AS facts,
       CASE WHEN m.draining THEN json_build_object('since', coalesce(m.draining_since, m.updated_at), 'reason', m.drain_reason,
            'offline', c.offline, 'group_name', (SELECT g.name FROM task_groups AS g WHERE g.id = l.group_id),
            'lease', l.state, 'tasks', (SELECT count(*) FROM open_task AS o WHERE o.group_id = l.group_id
                                           AND o.state = 1 AND o.epoch = l.epoch)) END AS drain_facts,
       (SELECT coalesce(array_agg(u.name ORDER BY u.name), '{}')
          FROM user_group_managers AS r JOIN user_groups AS u ON u.id = r.user_group_id
         WHERE r.manager_id = m.id) AS groups,
       (SELECT json_build_object('epoch', l.epoch, 'state', l.state, 'task_group_id', g.uuid,
                   'task_group_name', g.name, 'manager_id', m.uuid, 'manager_name', m.name,
                   'offered_at', l.offered_at, 'taken_at', l.taken_at, 'alive_until', l.alive_until)
          FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id
         WHERE l.manager_id = m.id AND l.kind = 'manager' AND l.state <> 'ended') AS lease,
       coalesce((SELECT json_object_agg(coalesce(g.name, e.task_group_name || ' (deleted)'), e.state)
          FROM environments AS e LEFT JOIN task_groups AS g ON g.id = e.group_id
         WHERE e.manager_id = m.id AND e.state <> 'gone'), '{}') AS environments,
       coalesce((SELECT json_object_agg(coalesce(g.name, e.task_group_name || ' (deleted)'), h.message)
          FROM environments AS e LEFT JOIN task_groups AS g ON g.id = e.group_id
          JOIN hook_runs AS h ON h.manager_id = e.manager_id AND h.group_id = e.group_id
         WHERE e.manager_id = m.id AND e.state <> 'gone' AND e.state IN ('owed', 'tearing_down')
           AND h.kind = 'teardown' AND h.state = 'waiting'), '{}') AS debts,
       coalesce((SELECT json_agg(json_build_object('group', h.group_id, 'task_group_id', g.uuid, 'kind', $kind$,
                   'group_name', g.name, 'failures', h.failures, 'reason', h.reason, 'tried_at', h.next_at,
                   'tried_in_seconds', extract(epoch FROM h.next_at - now())::float8) ORDER BY h.failed_at)
          FROM host_failures AS h
          JOIN managers AS o ON o.id = h.manager_id
          JOIN task_groups AS g ON g.id = h.group_id JOIN group_live AS v ON v.group_id = g.id
         WHERE h.manager_id = m.id AND v.settled_at IS NULL AND $counts$), '[]') AS failures,
       $switching$ AS switching
  FROM managers AS m
  JOIN manager_live AS c ON c.manager_id = m.id
  LEFT JOIN leases AS l ON l.manager_id = m.id AND l.kind = 'manager' AND l.state <> 'ended'
 WHERE m.uuid = ANY(%(ids)s::uuid[]) AND m.deleted_at IS NULL
 ORDER BY m.name, m.id

-- name: observe
-- All inputs of ManagerWorkflow's decisions, in one consistent read.
SELECT m.uuid AS manager_id, m.name, $state_facts$ AS facts,
       NOT c.offline AND c.last_contact_at > now() - make_interval(secs => %(suspect_after)s) AS online,
       CASE WHEN NOT c.offline
                 OR EXISTS (SELECT FROM environments AS e
                             WHERE e.manager_id = m.id AND e.state IN ('preparing', 'ready', 'tearing_down'))
            THEN extract(epoch FROM c.last_contact_at - now())::float8 + %(host_lost_after)s END AS lost_in_seconds,
       (SELECT json_build_object('epoch', l.epoch, 'state', l.state, 'task_group_id', g.uuid,
                   'task_group_name', g.name, 'group_state', v.state, 'end_reason', l.end_reason,
                   'alive_in_seconds', extract(epoch FROM l.alive_until - now()),
                   'turn_facts', CASE WHEN l.state = 'active' THEN json_build_object(
                       'group_name', g.name,
                       'next_group', (SELECT b.name FROM task_groups AS b WHERE b.id = l.freed_for),
                       'ask_back_in_seconds', extract(epoch FROM l.ask_back_at - now()),
                       'idle_in_seconds', extract(epoch FROM l.idle_until - now()),
                       'affinity_in_seconds', extract(epoch FROM l.affinity_until - now()),
                       'leaves', l.draining) END)
          FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id JOIN group_live AS v ON v.group_id = g.id
         WHERE l.manager_id = m.id AND l.kind = 'manager' AND l.state <> 'ended') AS lease,
       coalesce((SELECT json_agg(json_build_object(
                   'task_group_id', coalesce(g.uuid, e.task_group_uuid),
                   'task_group_name', coalesce(g.name, e.task_group_name), 'state', e.state, 'cleanable',
                   (v.group_id IS NULL OR v.state IN ('complete', 'cancelled') OR e.state <> 'ready' OR m.draining)
                   AND NOT EXISTS (SELECT FROM leases AS l WHERE l.manager_id = m.id
                                      AND l.group_id = e.group_id AND l.state <> 'ended'))
                   ORDER BY e.changed_at)
          FROM environments AS e LEFT JOIN task_groups AS g ON g.id = e.group_id
          LEFT JOIN group_live AS v ON v.group_id = g.id
         WHERE e.manager_id = m.id AND e.state <> 'gone'), '[]') AS environments
  FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
 WHERE m.uuid = %(manager)s AND m.deleted_at IS NULL
