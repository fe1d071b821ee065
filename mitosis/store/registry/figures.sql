-- The figures about worker services and named tasks that metrics show, in the user groups of a viewer.

-- name: services_by_health
-- Each service counts once in every user group that it may work for.
SELECT g.name AS group_name, $health$ AS health, count(*) AS services,
       avg(extract(epoch FROM clock.now - r.last_heartbeat_at))
           FILTER (WHERE r.unregistered_at IS NULL)::float8 AS heartbeat_age_seconds
  FROM user_group_workers AS w
  JOIN user_groups AS g ON g.id = w.user_group_id
 CROSS JOIN (SELECT now() AS now) AS clock
 CROSS JOIN LATERAL (SELECT * FROM worker_registrations AS o
                      WHERE o.service_id = w.service_id ORDER BY o.id DESC LIMIT 1) AS r
 WHERE $viewed_group$
 GROUP BY 1, 2 ORDER BY 1, 2

-- name: coverage
-- Named tasks by the number of services that can execute them now, up to 4; and how many services can execute
-- some task of the namespace.
WITH seen AS (
    SELECT g.id, g.name FROM user_groups AS g WHERE $viewed_group$),
pairs AS MATERIALIZED (
    SELECT n.id AS named_task_id, n.user_group_id, n.namespace, s.id AS service_id
      FROM named_tasks AS n
      JOIN seen ON seen.id = n.user_group_id
      LEFT JOIN (worker_named_tasks AS a
                 JOIN worker_services AS s ON s.id = a.service_id AND s.draining_since IS NULL
                 JOIN worker_registrations AS r ON r.service_id = s.id AND r.unregistered_at IS NULL
                 CROSS JOIN (SELECT now() AS now) AS clock)
        ON a.named_task_id = n.id AND a.withdrawn_at IS NULL AND $usable$),
per_task AS (
    SELECT user_group_id, namespace, least(count(service_id), 4)::int AS available FROM pairs GROUP BY named_task_id, user_group_id, namespace),
per_namespace AS (
    SELECT user_group_id, namespace, count(service_id) AS active
      FROM (SELECT DISTINCT user_group_id, namespace, service_id FROM pairs) AS one GROUP BY 1, 2)
SELECT seen.name AS group_name, p.namespace, w.active, p.available, count(*) AS tasks
  FROM per_task AS p
  JOIN per_namespace AS w USING (user_group_id, namespace)
  JOIN seen ON seen.id = p.user_group_id
 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 4

-- name: churn
-- Registrations that began, and that ended with each kind of reason, in the last $churn_seconds$ s.
WITH events AS (
    SELECT r.service_id, 'began' AS event, '' AS reason
      FROM worker_registrations AS r
     WHERE r.registered_at > now() - make_interval(secs => $churn_seconds$)
     UNION ALL
    SELECT r.service_id, 'ended', $reason$
      FROM worker_registrations AS r
     WHERE r.unregistered_at > now() - make_interval(secs => $churn_seconds$))
SELECT g.name AS group_name, e.event, e.reason, count(*) AS registrations
  FROM events AS e
  JOIN user_group_workers AS w ON w.service_id = e.service_id
  JOIN user_groups AS g ON g.id = w.user_group_id
 WHERE $viewed_group$
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3

-- name: reason
-- What a service says in its goodbye is free text: it is no label.
CASE WHEN r.failure_reason IN ('silent', 'new_incarnation') THEN r.failure_reason ELSE 'goodbye' END

-- name: viewed_group
-- An expression over user_groups AS g that replaces $viewed_group$.
(EXISTS (SELECT FROM users AS u WHERE u.uuid = %(viewer)s AND u.is_admin)
 OR g.id IN (SELECT m.user_group_id FROM user_group_members AS m
               JOIN users AS u ON u.id = m.user_id WHERE u.uuid = %(viewer)s))
