-- Task groups that no host can be prepared for (C-30): their setup has failed on every host that may serve them.

-- name: ripe
-- Task groups of which it can be so, and that end then. A host that prepares, works or finishes for one may still
-- serve it, so only those without a lease. Whether it is so, the next statement says.
SELECT g.id AS number, g.uuid, g.worker_allocation_plan AS plan
  FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id
 WHERE v.settled_at IS NULL AND v.unfinished > 0 AND NOT v.discarding AND g.kind = 'managed'
   AND (v.state = 'closed' AND g.on_setup_failure <> 'wait' OR v.state = 'open' AND g.on_setup_failure = 'end')
   AND EXISTS (SELECT FROM host_failures AS h WHERE h.group_id = g.id AND h.kind = 'setup_failed')
   AND NOT EXISTS (SELECT FROM leases AS l WHERE l.group_id = g.id AND l.state <> 'ended')

-- name: one
   AND g.id = %(group_number)s

-- name: some
 ORDER BY random() LIMIT %(limit)s

-- name: members
-- The hosts that may serve the task group, in contact or not: one row for hosts with the same cores. others: some
-- of them have not failed with the present incarnation of the agent and hook of the group.
SELECT CASE WHEN m.machine_id IS NOT NULL THEN m.cores END AS cores, bool_or(h.reason IS NULL) AS others,
       coalesce(json_agg(json_build_object('name', m.name, 'reason', h.reason) ORDER BY m.id)
                FILTER (WHERE h.reason IS NOT NULL), '[]') AS failed
  FROM task_groups AS g
  JOIN user_group_managers AS r ON r.user_group_id = g.user_group_id AND r.role IN ('write', 'admin')
  JOIN managers AS m ON m.id = r.manager_id
  LEFT JOIN host_failures AS h
    ON h.group_id = g.id AND h.manager_id = m.id AND h.kind = 'setup_failed' AND h.incarnation = m.incarnation
   AND h.hook = md5(coalesce(g.environment_setup_hook::text, ''))
 WHERE g.id = %(group_number)s AND $member$
 GROUP BY 1
