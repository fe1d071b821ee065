-- The host time that switches have cost, and what kept environments have saved. Sums; nothing reads history.

-- name: end_of_lease
-- What the end of a lease adds. A drain counts from the decision to end the lease for another task group. For
-- exponential durations, n workers are busy for 1/H(n) of it on average, where H(n) = 1 + 1/2 + … + 1/n; the rest is
-- lost. An environment was kept if it was ready before the lease was taken, and still is.
SELECT p.group_id AS group_number, p.manager_id AS manager_number,
       CASE WHEN p.contested_at IS NOT NULL
            THEN extract(epoch FROM now() - p.contested_at)::float8 * (1 - 1 / h.harmonic) END AS drain,
       CASE WHEN e.state = 'ready' AND e.changed_at < p.taken_at THEN $duration$ END AS kept
  FROM leases AS p
  JOIN task_groups AS g ON g.id = p.group_id
  LEFT JOIN environments AS e ON e.group_id = p.group_id AND e.manager_id = p.manager_id
 CROSS JOIN (VALUES ('setup')) AS k (kind)
 CROSS JOIN LATERAL (SELECT sum(1.0::float8 / i.n) AS harmonic
                       FROM generate_series(1, (g.worker_allocation_plan ->> 'worker_count')::int) AS i (n)) AS h
 WHERE p.epoch = %(epoch)s AND p.kind = 'manager' AND p.taken_at IS NOT NULL

-- name: costs
-- An expression: the sums of one task group or of one host. $rows$ selects its rows of environment_durations AS d.
(SELECT json_build_object(
            'setups', coalesce(sum(d.all_runs) FILTER (WHERE d.kind = 'setup'), 0),
            'setup_seconds', coalesce(sum(d.all_seconds) FILTER (WHERE d.kind = 'setup'), 0),
            'teardowns', coalesce(sum(d.all_runs) FILTER (WHERE d.kind = 'teardown'), 0),
            'teardown_seconds', coalesce(sum(d.all_seconds) FILTER (WHERE d.kind = 'teardown'), 0),
            'drains', coalesce(sum(d.all_runs) FILTER (WHERE d.kind = 'drain'), 0),
            'drain_seconds', coalesce(sum(d.all_seconds) FILTER (WHERE d.kind = 'drain'), 0),
            'lost_seconds', coalesce(sum(d.all_seconds) FILTER (WHERE d.kind <> 'kept'), 0),
            'returns', coalesce(sum(d.all_runs) FILTER (WHERE d.kind = 'kept'), 0),
            'saved_seconds', coalesce(sum(d.all_seconds) FILTER (WHERE d.kind = 'kept'), 0))
   FROM environment_durations AS d WHERE $rows$)
