-- Measured durations of setups, teardowns and tasks: what it costs to move a host (C-31, C-35, P9).

-- name: record_duration
-- Running means and sums of the group, of the host and of both together. Always in this order, so that two hosts of one group
-- cannot wait for each other. A deleted group has no row any more.
INSERT INTO environment_durations AS d (group_id, manager_id, kind, mean_seconds, runs, all_runs, all_seconds)
SELECT s.group_id, s.manager_id, %(kind)s, %(seconds)s, 1, 1, %(seconds)s
  FROM (SELECT (SELECT id FROM task_groups WHERE id = %(group_number)s) AS group_id) AS g
 CROSS JOIN LATERAL (VALUES (1, g.group_id, NULL::bigint), (2, NULL::bigint, %(manager_number)s::bigint),
                            (3, g.group_id, %(manager_number)s::bigint)) AS s (place, group_id, manager_id)
 WHERE g.group_id IS NOT NULL OR s.place = 2
 ORDER BY s.place
    ON CONFLICT (group_id, manager_id, kind) DO UPDATE
   SET runs = least(d.runs + 1, %(window)s), all_runs = d.all_runs + 1, all_seconds = d.all_seconds + excluded.all_seconds,
       mean_seconds = d.mean_seconds + (excluded.mean_seconds - d.mean_seconds) / least(d.runs + 1, %(window)s)

-- name: group_durations
-- One row for each of the groups, with 0 for what has not been measured.
SELECT v.group_id AS number, v.runs AS tasks_measured,
       CASE WHEN v.runs > 0 THEN v.run_seconds / v.runs ELSE 0 END AS task_seconds,
       coalesce((SELECT d.mean_seconds FROM environment_durations AS d
                  WHERE d.group_id = v.group_id AND d.manager_id IS NULL AND d.kind = 'setup'), 0) AS setup_seconds,
       coalesce((SELECT d.mean_seconds FROM environment_durations AS d
                  WHERE d.group_id = v.group_id AND d.manager_id IS NULL AND d.kind = 'teardown'), 0) AS teardown_seconds
  FROM group_live AS v WHERE v.group_id = ANY(%(groups)s::bigint[])

-- name: pair_durations
-- What is known of each pair of group and host: its own mean, else that of the group, else that of the host.
SELECT p.group_id AS "group", p.manager_id AS manager, s.seconds AS setup_seconds, t.seconds AS teardown_seconds
  FROM unnest(%(groups)s::bigint[], %(managers)s::bigint[]) AS p (group_id, manager_id)
 CROSS JOIN LATERAL (SELECT $duration$ AS seconds FROM (VALUES ('setup')) AS k (kind)) AS s
 CROSS JOIN LATERAL (SELECT $duration$ AS seconds FROM (VALUES ('teardown')) AS k (kind)) AS t

-- name: duration
-- Of the kind k.kind for the pair p; 0 if nothing is known.
coalesce((SELECT d.mean_seconds FROM environment_durations AS d
           WHERE d.kind = k.kind AND ((d.group_id = p.group_id AND d.manager_id = p.manager_id)
                                      OR (d.group_id = p.group_id AND d.manager_id IS NULL)
                                      OR (d.group_id IS NULL AND d.manager_id = p.manager_id))
           ORDER BY (d.group_id IS NOT NULL AND d.manager_id IS NOT NULL) DESC, d.manager_id IS NULL DESC LIMIT 1), 0)
