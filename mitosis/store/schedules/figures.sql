-- Schedules in figures, in the user groups of a viewer.

-- name: figures
SELECT o.name AS group_name, count(*) FILTER (WHERE NOT s.paused) AS active, count(*) FILTER (WHERE s.paused) AS paused,
       count(s.refusal) AS refused, count(s.problem) AS problems, coalesce(sum(w.waiting), 0)::bigint AS waiting,
       coalesce(max(s.late_seconds), 0)::float8 AS late_seconds,
       coalesce(greatest(max(extract(epoch FROM now() - p.due_at)), 0), 0)::float8 AS overdue_seconds
  FROM schedules AS s
  JOIN user_groups AS o ON o.id = s.user_group_id
 CROSS JOIN LATERAL (SELECT count(*) AS waiting
                       FROM (SELECT FROM schedule_starts AS x
                              WHERE x.schedule_id = s.id AND x.ended_at IS NULL LIMIT %(most)s) AS x) AS w
 CROSS JOIN LATERAL (SELECT min(nullif(n.next_at, 'infinity')) + make_interval(secs => s.jitter_seconds) AS due_at
                       FROM schedule_spans AS n WHERE n.schedule_id = s.id) AS p
 WHERE EXISTS (SELECT FROM users AS u
                WHERE u.uuid = %(viewer)s
                  AND (u.is_admin OR EXISTS (SELECT FROM user_group_members AS m
                                              WHERE m.user_id = u.id AND m.user_group_id = o.id)))
 GROUP BY o.name ORDER BY o.name
