-- The facts of eligibility.py: one statement for hosts, one for task groups. Neither has a WHERE clause;
-- the statement that reads them appends one, to select rows and never to decide eligibility.

-- name: failure_kind
-- The kind that is shown of the row h of host_failures.
CASE h.phase WHEN 'suspected' THEN 'suspected' WHEN 'quarantined' THEN 'quarantined' ELSE h.kind END

-- name: failure_counts
-- Whether the row h of host_failures counts, by the present incarnation of the agent and hook of the group g.
(CASE h.kind WHEN 'tasks_failed'
             THEN h.phase = 'suspected'
                  OR (h.phase IN ('watched', 'excused') AND h.failures >= %(quarantine_after)s)
                  OR (h.phase = 'quarantined' AND h.incarnation = o.incarnation)
             WHEN 'setup_failed'
             THEN h.incarnation = o.incarnation AND h.hook = md5(coalesce(g.environment_setup_hook::text, ''))
             ELSE h.incarnation = o.incarnation END)

-- name: host_facts
-- Parameters: suspect_after; group_number limits the failures to those that concern one group, NULL = all.
SELECT m.id AS number, m.uuid AS manager_id, m.name, m.tags, m.draining, c.offline,
       coalesce((SELECT json_agg(json_build_object('until_version', f.until_version, 'tags', f.tags)
                                 ORDER BY f.until_version)
                   FROM former_manager_tags AS f WHERE f.manager_id = m.id), '[]') AS former_tags,
       CASE WHEN m.machine_id IS NOT NULL THEN m.cores END AS cores,
       extract(epoch FROM now() - c.last_contact_at)::float8 AS silent_seconds,
       %(suspect_after)s::float8 AS suspect_after_seconds,
       ARRAY(SELECT r.user_group_id FROM user_group_managers AS r
              WHERE r.manager_id = m.id AND r.role IN ('write', 'admin')) AS serves,
       ARRAY(SELECT e.group_id FROM environments AS e
              WHERE e.manager_id = m.id AND e.state = 'ready') AS warm,
       ARRAY(SELECT e.group_id FROM environments AS e
              WHERE e.manager_id = m.id AND e.state <> 'gone'
                AND (e.state <> 'ready'
                     OR NOT EXISTS (SELECT FROM group_live AS v WHERE v.group_id = e.group_id
                                       AND v.state IN ('open', 'closed')))) AS unclean,
       (SELECT min(h.message) FROM environments AS e
          JOIN hook_runs AS h ON h.manager_id = e.manager_id AND h.group_id = e.group_id
         WHERE e.manager_id = m.id AND e.state <> 'gone' AND e.state IN ('owed', 'tearing_down')
           AND h.kind = 'teardown' AND h.state = 'waiting') AS debt,
       coalesce(f.failures, '[]') AS failures,
       CASE WHEN l.epoch IS NOT NULL THEN json_build_object(
            'epoch', l.epoch, 'state', l.state, 'group', l.group_id, 'group_name', b.name,
            'priority', b.priority,
            'idle_seconds', extract(epoch FROM now() - greatest(l.busy_at, l.taken_at))::float8,
            'has_work', l.state = 'active' AND (
                EXISTS (SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.state = 0)
                OR EXISTS (SELECT FROM open_task AS o
                            WHERE o.group_id = l.group_id AND o.state = 1 AND o.epoch = l.epoch)))
       END AS lease
  FROM managers AS m
  JOIN manager_live AS c ON c.manager_id = m.id
  LEFT JOIN leases AS l ON l.manager_id = m.id AND l.kind = 'manager' AND l.state <> 'ended'
  LEFT JOIN task_groups AS b ON b.id = l.group_id
  LEFT JOIN (SELECT r.manager_id, json_agg(r) AS failures
               FROM (SELECT h.manager_id, h.group_id AS "group", g.name AS group_name, $kind$ AS kind, h.failures, h.reason,
                            extract(epoch FROM h.next_at - now())::float8 AS tried_in_seconds
                       FROM host_failures AS h
                       JOIN managers AS o ON o.id = h.manager_id
                       JOIN task_groups AS g ON g.id = h.group_id
                      WHERE (%(group_number)s::bigint IS NULL OR h.group_id = %(group_number)s
                             OR h.kind = 'unreachable')
                        AND $counts$
) AS r
              GROUP BY r.manager_id) AS f ON f.manager_id = m.id

-- name: group_facts
-- Parameters: hosts, and those of capacity.sql, whose part is put in. Ready tasks are counted only up to the
-- number that this many more hosts could use.
SELECT g.id AS number, g.name, g.priority, g.user_group_id AS user_group, u.name AS user_group_name, g.tags,
       g.tag_match, coalesce(g.member_tags, g.tags) AS member_tags,
       coalesce(g.member_tag_match, g.tag_match) AS member_tag_match, g.member_version, g.max_managers, g.assignment_method, g.worker_allocation_plan AS plan, s.live_leases,
       s.capacity, r.ready,
       g.kind = 'managed' AND v.settled_at IS NULL AND v.state IN ('open', 'closed') AND NOT v.discarding
           AS goes_on,
       ARRAY(SELECT t.manager_id FROM task_group_managers AS t
              WHERE t.task_group_id = g.id AND t.assignment_method = 'user_specified') AS added,
       ARRAY(SELECT t.manager_id FROM task_group_managers AS t
              WHERE t.task_group_id = g.id AND t.assignment_method = 'removed') AS removed
  FROM task_groups AS g
  JOIN group_live AS v ON v.group_id = g.id
  JOIN user_groups AS u ON u.id = g.user_group_id
 {capacity}
 CROSS JOIN LATERAL (
       SELECT count(*) AS ready FROM (
           (SELECT 1 FROM open_task AS o WHERE o.group_id = g.id AND o.state = 0
             LIMIT 2 * (g.worker_allocation_plan ->> 'worker_count')::bigint * (s.live_leases + %(hosts)s))
           UNION ALL
           (SELECT 1 FROM open_task AS o WHERE o.group_id = g.id AND o.state = 4 AND o.not_before <= now()
             LIMIT 1000)) AS c) AS r
