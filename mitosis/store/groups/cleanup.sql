-- What the settlement of a task group waits for on its hosts (protocol P9).

-- name: awaited
-- A part of other statements: for the live row v of a group, its environments whose end it waits for, as
-- w.busy_environments, and the seconds until the first owed one of them is given up, as w.given_up_in_seconds.
-- What a host owes is waited for only while the host is neither lost nor stopped. A teardown that is due or
-- begun is waited for as long as all teardowns of its host may take. That time begins once: changed_at stays
-- when the agent dies in the teardown, which may be its cause. Parameter: cleanup_margin.
CROSS JOIN LATERAL (
    SELECT count(*) AS busy_environments,
           min(a.seconds_left) FILTER (WHERE a.state = 'owed') AS given_up_in_seconds
      FROM (SELECT e.state, c.offline, CASE WHEN e.state IN ('owed', 'tearing_down') THEN
                   extract(epoch FROM greatest(v.terminal_at, e.changed_at) - now())::float8 + %(cleanup_margin)s
                   + (SELECT coalesce(sum((coalesce(d.teardown_hook, t.environment_teardown_hook)
                                           ->> 'timeout')::float8), 0)
                        FROM environments AS d LEFT JOIN task_groups AS t ON t.id = d.group_id
                       WHERE d.manager_id = e.manager_id AND d.state <> 'gone'
                         AND d.state IN ('owed', 'tearing_down')) END AS seconds_left
              FROM environments AS e JOIN manager_live AS c ON c.manager_id = e.manager_id
             WHERE e.group_id = v.group_id AND e.state <> 'gone') AS a
     WHERE coalesce(a.seconds_left > 0 AND (a.state <> 'owed' OR NOT a.offline), true)) AS w
