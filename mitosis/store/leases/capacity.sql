-- Which leases count as capacity of their group, and which make no progress (protocol P7).

-- name: capacity
-- A part of other statements: for the group g, the leases that will claim its ready tasks, as s.capacity, and
-- all that have not ended, as s.live_leases. Parameters: suspect_after, setup_margin.
-- A lease counts while its host is in contact and it is an offer, in a setup that is within its time, or ready
-- and has claimed lately, and is under no suspicion. One whose workers all run long tasks does not: it claims nothing before one ends.
-- A lease of another group counts too if it was ended for this one and its host is not free yet, but on the
-- way: no task runs there, and it has been offered to no other group.
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE l.group_id = g.id) AS live_leases,
           count(*) FILTER (WHERE CASE
               WHEN c.offline OR c.last_contact_at <= now() - make_interval(secs => %(suspect_after)s) THEN false
               WHEN l.state = 'offered' THEN l.offered_at > now() - interval '30 s'
               WHEN l.freed_for = g.id AND l.state = 'ended' THEN l.ended_at > now() - interval '5 min'
                   AND EXISTS (SELECT FROM environments AS d WHERE d.manager_id = l.manager_id
                                  AND d.state IN ('preparing', 'tearing_down', 'owed'))
               WHEN l.freed_for = g.id THEN NOT EXISTS (
                   SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.state = 1
                      AND o.epoch = l.epoch AND o.started_at IS NOT NULL)
               WHEN l.state <> 'active' OR l.draining OR EXISTS (
                   SELECT FROM host_failures AS f WHERE f.group_id = g.id AND f.manager_id = l.manager_id
                      AND f.phase IN ('suspected', 'quarantined')) THEN false
               WHEN e.state IS DISTINCT FROM 'ready' THEN l.taken_at > now() - make_interval(secs =>
                   %(setup_margin)s + coalesce((g.environment_setup_hook ->> 'timeout')::float8, 0))
               WHEN l.last_claim_at > now() - interval '1 s' THEN true
               WHEN greatest(l.last_claim_at, l.taken_at, e.changed_at, c.contact_since) < now() - interval '20 s' THEN false
               ELSE (SELECT count(*) FROM (
                       SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.state = 1
                          AND o.epoch = l.epoch AND o.started_at IS NOT NULL
                        LIMIT (g.worker_allocation_plan ->> 'worker_count')::bigint) AS long)
                    < (g.worker_allocation_plan ->> 'worker_count')::bigint END) AS capacity
      FROM (SELECT * FROM leases WHERE group_id = g.id AND state <> 'ended'
            UNION ALL
            SELECT * FROM leases WHERE freed_for = g.id AND group_id <> g.id) AS l
      LEFT JOIN manager_live AS c ON c.manager_id = l.manager_id
      LEFT JOIN environments AS e ON e.manager_id = l.manager_id AND e.group_id = l.group_id) AS s

-- name: stuck
-- A part of other statements: leases l, each of a group g, under which nothing runs and nothing has been
-- claimed for a while although work is claimable, or whose setup has not ended in its time. The host is in
-- contact; a silent one is left to its clock. Parameters: suspect_after, stuck_after, setup_margin.
  FROM leases AS l
  JOIN managers AS m ON m.id = l.manager_id
  JOIN manager_live AS c ON c.manager_id = l.manager_id
  JOIN task_groups AS g ON g.id = l.group_id
  JOIN group_live AS v ON v.group_id = l.group_id
  LEFT JOIN environments AS e ON e.manager_id = l.manager_id AND e.group_id = l.group_id
 WHERE l.kind = 'manager' AND l.state = 'active' AND v.state IN ('open', 'closed') AND NOT v.discarding
   AND NOT c.offline AND c.last_contact_at > now() - make_interval(secs => %(suspect_after)s)
   AND greatest(l.taken_at, l.last_claim_at, c.contact_since) < now() - make_interval(secs => %(stuck_after)s)
   AND CASE WHEN e.state = 'ready' THEN e.changed_at < now() - make_interval(secs => %(stuck_after)s)
            ELSE l.taken_at < now() - make_interval(secs =>
                 %(setup_margin)s + coalesce((g.environment_setup_hook ->> 'timeout')::float8, 0)) END
   AND (EXISTS (SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.state = 0)
     OR EXISTS (SELECT FROM open_task AS o
                 WHERE o.group_id = l.group_id AND o.state = 4 AND o.not_before <= now()))
   AND NOT EXISTS (SELECT FROM open_task AS o
                    WHERE o.group_id = l.group_id AND o.state = 1 AND o.epoch = l.epoch
                      AND o.started_at IS NOT NULL)
