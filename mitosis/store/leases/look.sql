-- The look of the control worker every few seconds (protocol P7): does anything wait for a round?

-- name: waiting
-- Cheap where nothing waits: without a usable host only the leases without progress are checked, and without
-- claimable work only the small rows of unsettled groups are read. Tasks are counted up to what the group's
-- hosts can use. A superset: whether the host may serve the group is decided by the rules of the round.
WITH free AS MATERIALIZED (
    SELECT m.id FROM managers AS m JOIN manager_live AS c ON c.manager_id = m.id
     WHERE NOT m.draining AND NOT c.offline
       AND c.last_contact_at > now() - make_interval(secs => %(suspect_after)s)
       AND NOT EXISTS (SELECT FROM leases AS l
                        WHERE l.manager_id = m.id AND l.kind = 'manager' AND l.state <> 'ended'
                          AND NOT (l.state = 'active' AND NOT l.draining
                                   AND (l.renewed OR l.affinity_until <= now()
                                        OR greatest(l.busy_at, l.taken_at) <= now() - make_interval(secs => coalesce(
                                           (SELECT least(coalesce(s.idle_threshold_seconds, %(idle_threshold)s),
                                                         coalesce(s.longest_idle_seconds, %(idle_threshold)s))
                                              FROM manager_config AS s
                                             WHERE s.task_group_id = l.group_id), %(idle_threshold)s)))))
)
SELECT CASE WHEN EXISTS (SELECT FROM free) THEN EXISTS (
           SELECT FROM group_live AS v
             JOIN task_groups AS g ON g.id = v.group_id
            CROSS JOIN LATERAL (
                SELECT 2 * (g.worker_allocation_plan ->> 'worker_count')::bigint * (
                       SELECT count(*) FROM leases AS l
                         LEFT JOIN manager_live AS c ON c.manager_id = l.manager_id
                         LEFT JOIN environments AS e ON e.manager_id = l.manager_id AND e.group_id = l.group_id
                        WHERE l.group_id = g.id AND l.kind = 'manager' AND l.state IN ('offered', 'active')
                          AND NOT l.draining AND $progress$ IN ('starting', 'room')) AS served) AS n
            WHERE v.settled_at IS NULL AND v.unfinished > 0 AND v.state IN ('open', 'closed')
              AND NOT v.discarding AND g.kind = 'managed'
              AND (SELECT count(*) FROM (
                     (SELECT FROM open_task AS o WHERE o.group_id = g.id AND o.state = 0 LIMIT n.served + 1)
                     UNION ALL
                     (SELECT FROM open_task AS o
                       WHERE o.group_id = g.id AND o.state = 4 AND o.not_before <= now()
                       LIMIT n.served + 1)) AS r) > n.served
              AND EXISTS (SELECT FROM user_group_managers AS r JOIN free AS f ON f.id = r.manager_id
                           WHERE r.user_group_id = g.user_group_id AND r.role IN ('write', 'admin')))
       ELSE false END AS work,
       EXISTS (SELECT FROM group_live AS v WHERE v.settled_at IS NULL AND v.unfinished > 0)
         OR EXISTS (SELECT FROM leases AS l WHERE l.kind = 'manager' AND l.state <> 'ended') AS in_use,
       ARRAY(SELECT l.epoch {stuck}) AS stuck,
       coalesce((SELECT max(l.epoch) FROM leases AS l), 0) AS last_epoch,
       coalesce((SELECT json_agg(json_build_object('epoch', l.epoch, 'manager_id', m.uuid) ORDER BY l.epoch)
                   FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
                  WHERE l.kind = 'manager' AND l.state = 'offered'
                    AND l.offered_at < now() - interval '1 s'), '[]') AS offered
