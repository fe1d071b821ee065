-- What leases do about the work of their group, and which make no progress (protocol P7).

-- name: progress
-- An expression over a lease AS l that is offered or active, the contact of its host AS c, its group AS g, and the
-- environment of both AS e: what the lease contributes to ready tasks. Parameters: suspect_after, setup_margin.
-- It claims tasks while its host is in contact and it is an offer, in a setup that is within its time, or ready
-- and has claimed lately, and is under no suspicion. Long tasks in all workers: it claims none before one ends.
(CASE WHEN c.offline OR c.last_contact_at IS NULL
           OR c.last_contact_at <= now() - make_interval(secs => %(suspect_after)s) THEN 'stuck'
      WHEN l.state = 'offered' THEN CASE WHEN l.offered_at > now() - interval '30 s' THEN 'starting' ELSE 'stuck' END
      WHEN EXISTS (SELECT FROM host_failures AS x WHERE x.group_id = l.group_id AND x.manager_id = l.manager_id
                      AND x.phase IN ('suspected', 'quarantined')) THEN 'stuck'
      WHEN e.state IS DISTINCT FROM 'ready' THEN CASE WHEN l.taken_at > now() - make_interval(secs =>
               %(setup_margin)s + coalesce((g.environment_setup_hook ->> 'timeout')::float8, 0))
           THEN 'starting' ELSE 'stuck' END
      WHEN l.last_claim_at > now() - interval '1 s' THEN 'room'
      WHEN (SELECT count(*) FROM (
               SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.state = 1
                  AND o.epoch = l.epoch AND o.started_at IS NOT NULL
                LIMIT (g.worker_allocation_plan ->> 'worker_count')::bigint) AS long)
           >= (g.worker_allocation_plan ->> 'worker_count')::bigint THEN 'full'
      WHEN greatest(l.last_claim_at, l.taken_at, e.changed_at, c.contact_since) < now() - interval '20 s' THEN 'stuck'
      ELSE 'room' END)

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
   AND greatest(l.taken_at, CASE WHEN e.state = 'ready' THEN l.last_claim_at END, c.contact_since) < now() - make_interval(secs => %(stuck_after)s)
   AND CASE WHEN e.state = 'ready' THEN e.changed_at < now() - make_interval(secs => %(stuck_after)s)
            ELSE l.taken_at < now() - make_interval(secs =>
                 %(setup_margin)s + coalesce((g.environment_setup_hook ->> 'timeout')::float8, 0)) END
   AND (EXISTS (SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.state = 0)
     OR EXISTS (SELECT FROM open_task AS o
                 WHERE o.group_id = l.group_id AND o.state = 4 AND o.not_before <= now()))
   AND NOT EXISTS (SELECT FROM open_task AS o
                    WHERE o.group_id = l.group_id AND o.state = 1 AND o.epoch = l.epoch
                      AND o.started_at IS NOT NULL)
