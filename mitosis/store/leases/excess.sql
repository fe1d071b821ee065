-- Leases beyond the limit of their group.

-- name: over_limit
-- The leases of groups that have more than their limit, without those that end already.
SELECT c.epoch, c."group", c.most
  FROM (SELECT l.epoch, l.group_id AS "group", g.max_managers AS most,
               count(*) OVER (PARTITION BY l.group_id) AS live
          FROM leases AS l JOIN task_groups AS g ON g.id = l.group_id
         WHERE l.kind = 'manager' AND l.state IN ('offered', 'active') AND g.max_managers IS NOT NULL) AS c
 WHERE c.live > c.most

-- name: end_excess
-- A claim in between is harmless: its tasks finish and report first. A lease that another transaction has
-- locked is left to the next round, as in move_leases.
WITH ended AS (
    UPDATE leases AS l
       SET state = CASE WHEN l.state = 'offered' THEN 'ended' ELSE 'ending' END,
           ended_at = CASE WHEN l.state = 'offered' THEN now() END, end_reason = 'moved'
     WHERE l.epoch IN (SELECT c.epoch FROM leases AS c
                        WHERE c.epoch = ANY(%(epochs)s::bigint[]) AND c.state IN ('offered', 'active')
                          FOR UPDATE OF c SKIP LOCKED)
    RETURNING l.manager_id, l.group_id
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'manager', m.uuid FROM ended AS l JOIN managers AS m ON m.id = l.manager_id
)
SELECT pg_notify('mitosis_wake', group_id::text) FROM ended
