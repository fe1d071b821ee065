-- The facts of decisions: one statement for hosts and their leases, one for task groups. Neither decides
-- anything. $of_hosts$ and $of_groups$ limit the rows that are aggregated to those that are read.

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

-- name: clock
SELECT extract(epoch FROM now())::float8 AS now

-- name: empty_since
-- C-04, as far as it concerns the host of the lease l: set up, and nothing is claimed under its epoch.
CASE WHEN l.state = 'active' AND e.state = 'ready' AND NOT EXISTS (
          SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.state = 1 AND o.epoch = l.epoch)
     THEN extract(epoch FROM greatest(l.busy_at, l.taken_at))::float8 END

-- name: hosts
-- Parameters: those of progress, and quarantine_after. A statement with its rows follows: WHERE, ORDER BY.
SELECT m.id AS number, m.uuid AS manager_id, m.name, m.tags, m.draining, c.offline,
       CASE WHEN m.machine_id IS NOT NULL THEN m.cores END AS cores,
       extract(epoch FROM c.last_contact_at)::float8 AS last_contact_at,
       coalesce(t.former_tags, '[]') AS former_tags, coalesce(r.serves, '{}') AS serves,
       coalesce(s.warm, '{}') AS warm, coalesce(s.unclean, '{}') AS unclean,
       coalesce(f.failures, '[]') AS failures, coalesce(p.moved_at, '{}') AS moved_at,
       coalesce(p.freed_for, '[]') AS freed_for,
       l.epoch AS lease_number, l.group_id AS lease_group, l.state AS lease_state, l.draining AS lease_draining,
       CASE WHEN l.state IN ('offered', 'active') THEN $progress$ END AS progress,
       extract(epoch FROM coalesce(l.taken_at, l.offered_at))::float8 AS taken_at,
       extract(epoch FROM l.affinity_until)::float8 AS affinity_until, coalesce(l.renewed, false) AS renewed,
       $empty_since$ AS empty_since,
       l.freed_for AS lease_for, extract(epoch FROM l.contested_at)::float8 AS contested_at,
       g.name AS holder_name, g.user_group_id AS holder_user_group, g.priority AS holder_priority
  FROM managers AS m
  JOIN manager_live AS c ON c.manager_id = m.id
  LEFT JOIN leases AS l ON l.manager_id = m.id AND l.kind = 'manager' AND l.state <> 'ended'
  LEFT JOIN task_groups AS g ON g.id = l.group_id
  LEFT JOIN environments AS e ON e.manager_id = m.id AND e.group_id = l.group_id
  LEFT JOIN (SELECT f.manager_id, json_agg(json_build_object('until_version', f.until_version, 'tags', f.tags)
                                           ORDER BY f.until_version) AS former_tags
               FROM former_manager_tags AS f WHERE true $of_hosts$
              GROUP BY f.manager_id) AS t ON t.manager_id = m.id
  LEFT JOIN (SELECT f.manager_id, array_agg(f.user_group_id) AS serves
               FROM user_group_managers AS f WHERE f.role IN ('write', 'admin') $of_hosts$
              GROUP BY f.manager_id) AS r ON r.manager_id = m.id
  LEFT JOIN (SELECT f.manager_id, array_agg(f.group_id) FILTER (WHERE f.state = 'ready') AS warm,
                    array_agg(f.group_id) FILTER (WHERE f.state <> 'ready' OR v.group_id IS NULL) AS unclean
               FROM environments AS f
               LEFT JOIN group_live AS v ON v.group_id = f.group_id AND v.state IN ('open', 'closed')
              WHERE f.state <> 'gone' $of_hosts$
              GROUP BY f.manager_id) AS s ON s.manager_id = m.id
  LEFT JOIN (SELECT f.manager_id, json_agg(f ORDER BY f."group", f.kind) AS failures
               FROM (SELECT h.manager_id, h.group_id AS "group", g.name AS group_name, $kind$ AS kind, h.failures, h.reason,
                            extract(epoch FROM h.next_at)::float8 AS next_at
                       FROM host_failures AS h
                       JOIN managers AS o ON o.id = h.manager_id
                       JOIN task_groups AS g ON g.id = h.group_id
                      WHERE $counts$) AS f
              WHERE true $of_hosts$
              GROUP BY f.manager_id) AS f ON f.manager_id = m.id
  LEFT JOIN (SELECT f.manager_id,
                    array_agg(extract(epoch FROM f.contested_at)::float8 ORDER BY f.contested_at)
                        FILTER (WHERE f.contested_at > now() - interval '1 hour' AND NOT f.was_idle) AS moved_at,
                    json_agg(json_build_object('group', f.freed_for, 'at', extract(epoch FROM f.ended_at))
                             ORDER BY f.ended_at)
                        FILTER (WHERE f.freed_for IS NOT NULL AND f.state = 'ended') AS freed_for
               FROM leases AS f
              WHERE (f.contested_at > now() - interval '1 hour' OR f.freed_for IS NOT NULL) $of_hosts$
              GROUP BY f.manager_id) AS p ON p.manager_id = m.id

-- name: these_hosts
AND f.manager_id = ANY(%(managers)s::bigint[])

-- name: hosts_in_contact
-- Those that may be offered, and those with a lease.
 WHERE (NOT c.offline AND c.last_contact_at > now() - make_interval(secs => %(suspect_after)s))
    OR l.epoch IS NOT NULL
 ORDER BY m.id

-- name: hosts_by_number
 WHERE m.id = ANY(%(managers)s::bigint[])
 ORDER BY (l.group_id = %(group_number)s) IS TRUE DESC, m.id

-- name: groups
-- Parameters: hosts, the number of hosts that could be given at once: ready tasks are counted only up to what
-- these and the present leases could use, in the order of an index: in any order PostgreSQL may look for those of a
-- small group among those of a large one. A delayed attempt wakes the round only for a group without a lease.
SELECT g.id AS number, g.uuid AS task_group_id, g.name, g.priority, g.user_group_id AS user_group, u.name AS user_group_name, g.tags,
       g.tag_match, coalesce(g.member_tags, g.tags) AS member_tags,
       coalesce(g.member_tag_match, g.tag_match) AS member_tag_match, g.member_version, g.max_managers,
       g.assignment_method, extract(epoch FROM g.created_at)::float8 AS created_at, x.goes_on,
       v.state = 'closed' AND NOT g.reopen_on_submit AS refuses_tasks, v.unfinished,
       w.workers, nullif(g.worker_allocation_plan -> 'cpu_binding', 'null') AS binding,
       coalesce(t.added, '{}') AS added, coalesce(t.removed, '{}') AS removed,
       CASE WHEN x.goes_on AND v.unfinished > 0 THEN (
           SELECT count(*) FROM (
               (SELECT 1 FROM open_task AS o WHERE o.group_id = g.id AND o.state = 0
                 ORDER BY o.priority DESC, o.id
                 LIMIT 2 * w.workers * (coalesce(l.live, 0) + least(%(hosts)s, g.max_managers)))
               UNION ALL
               (SELECT 1 FROM open_task AS o WHERE o.group_id = g.id AND o.state = 4 AND o.not_before <= now()
                 ORDER BY o.not_before, o.id LIMIT 1000)) AS c) ELSE 0 END AS ready,
       2 * w.workers * (coalesce(l.live, 0) + least(%(hosts)s, g.max_managers)) AS ready_counted_to,
       CASE WHEN x.goes_on AND v.unfinished > 0 AND l.live IS NULL THEN (
           SELECT extract(epoch FROM min(o.not_before))::float8
             FROM open_task AS o WHERE o.group_id = g.id AND o.state = 4) END AS delayed_until,
       v.runs AS tasks_measured, CASE WHEN v.runs > 0 THEN v.run_seconds / v.runs ELSE 0 END AS task_seconds,
       coalesce(d.setup, 0) AS setup_seconds, coalesce(d.teardown, 0) AS teardown_seconds,
       y.lease_duration_seconds AS lease_duration, y.longest_lease_seconds AS longest_lease,
       y.idle_threshold_seconds AS idle_threshold, y.longest_idle_seconds AS longest_idle,
       y.preemption_grace_seconds AS preemption_grace, extract(epoch FROM q.since)::float8 AS hostless_since,
       v.xmin::text::bigint AS changed_by
  FROM $source$
  JOIN group_live AS v ON v.group_id = g.id
  JOIN user_groups AS u ON u.id = g.user_group_id
 CROSS JOIN LATERAL (SELECT (g.worker_allocation_plan ->> 'worker_count')::int AS workers) AS w
 CROSS JOIN LATERAL (SELECT g.kind = 'managed' AND v.settled_at IS NULL AND v.state IN ('open', 'closed')
                            AND NOT v.discarding AS goes_on) AS x
  LEFT JOIN (SELECT f.group_id, count(*) AS live FROM leases AS f
              WHERE f.kind = 'manager' AND f.state <> 'ended' $of_groups$
              GROUP BY f.group_id) AS l ON l.group_id = g.id
  LEFT JOIN (SELECT f.task_group_id,
                    array_agg(f.manager_id) FILTER (WHERE f.assignment_method = 'user_specified') AS added,
                    array_agg(f.manager_id) FILTER (WHERE f.assignment_method = 'removed') AS removed
               FROM task_group_managers AS f WHERE true $of_members$
              GROUP BY f.task_group_id) AS t ON t.task_group_id = g.id
  LEFT JOIN (SELECT f.group_id, max(f.mean_seconds) FILTER (WHERE f.kind = 'setup') AS setup,
                    max(f.mean_seconds) FILTER (WHERE f.kind = 'teardown') AS teardown
               FROM environment_durations AS f WHERE f.manager_id IS NULL $of_groups$
              GROUP BY f.group_id) AS d ON d.group_id = g.id
  LEFT JOIN manager_config AS y ON y.task_group_id = g.id
  LEFT JOIN hostless_groups AS q ON q.group_id = g.id

-- name: these_groups
AND f.group_id = %(group_number)s

-- name: these_members
AND f.task_group_id = %(group_number)s

-- name: of_round
-- Groups with unfinished tasks, and those with leases.
(SELECT b.group_id FROM group_live AS b
  WHERE b.settled_at IS NULL AND b.state IN ('open', 'closed') AND NOT b.discarding AND b.unfinished > 0
  UNION SELECT b.group_id FROM leases AS b WHERE b.kind = 'manager' AND b.state <> 'ended')

-- name: source_of_round
-- First: PostgreSQL takes the last of many sources last, after those of all groups that have settled.
$of_round$ AS b JOIN task_groups AS g ON g.id = b.group_id

-- name: groups_of_round
 ORDER BY g.id

-- name: members_of_round
-- Groups that have settled keep their members: without this limit those of all would be read.
AND f.task_group_id IN $of_round$

-- name: one_group
 WHERE g.id = %(group_number)s
