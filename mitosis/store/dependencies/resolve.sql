-- Resolving tasks when the tasks have ended on which they depend.

-- name: due_groups
SELECT DISTINCT p.child_group_id FROM task_parents AS p WHERE p.outcome IS NOT NULL

-- name: lock_group
SELECT v.group_id FROM group_live AS v WHERE v.group_id = %(group_number)s FOR NO KEY UPDATE OF v

-- name: is_due
SELECT EXISTS (SELECT FROM task_parents AS p
                WHERE p.child_group_id = %(group_number)s AND p.outcome IS NOT NULL) AS due

-- name: resolve
-- The caller holds group_live. Resolves up to so many edges: a child whose last parent has succeeded becomes ready;
-- one with a parent that has not is cancelled, and names the first cause. What depends on that one is resolved by
-- the next call: the deletion of its row notes its own outcome.
WITH due AS MATERIALIZED (
    SELECT p.parent, p.outcome, p.resolved_up_to FROM task_parents AS p
     WHERE p.child_group_id = %(group_number)s AND p.outcome IS NOT NULL ORDER BY p.parent LIMIT %(limit)s
), reached AS MATERIALIZED (
    SELECT d.parent, d.outcome, e.child
      FROM due AS d CROSS JOIN LATERAL (
           SELECT x.child FROM task_edges AS x
            WHERE x.parent = d.parent AND x.child_group_id = %(group_number)s AND x.child > d.resolved_up_to
            ORDER BY x.child LIMIT %(limit)s) AS e
     ORDER BY d.parent, e.child LIMIT %(limit)s
), last AS MATERIALIZED (
    SELECT t.parent, t.child FROM reached AS t ORDER BY t.parent DESC, t.child DESC LIMIT 1
), amount AS MATERIALIZED (
    SELECT count(*) AS n, count(*) = %(limit)s AS full FROM reached
), verdict AS MATERIALIZED (
    SELECT t.child, count(*)::int AS n, min(t.parent) FILTER (WHERE t.outcome <> 'succeeded') AS parent
      FROM reached AS t GROUP BY t.child
), gone AS (
    DELETE FROM open_task AS o
     WHERE o.group_id = %(group_number)s AND o.state = 2
       AND o.id = ANY(ARRAY(SELECT child FROM verdict WHERE parent IS NOT NULL))
    RETURNING o.id, o.attempt
), results AS (
    INSERT INTO task_result (task_id, group_id, seq, state, attempt, kind, finished_at, detail)
    SELECT g.id, v.group_id, v.total - v.unfinished + row_number() OVER (ORDER BY g.id), 'cancelled', g.attempt,
           'dependency_failed', now(),
           json_build_object('message', 'task ' || c.cause || ', on which it depends, did not succeed',
                             'parent', c.parent, 'cause', c.cause)
      FROM gone AS g JOIN (
           -- No join: without loops it would read all results.
           SELECT w.child, w.parent, coalesce((
                      SELECT CASE WHEN r.kind = 'dependency_failed' THEN (r.detail ->> 'cause')::bigint END
                        FROM task_result AS r WHERE r.task_id = w.parent), w.parent) AS cause
             FROM verdict AS w WHERE w.parent IS NOT NULL) AS c ON c.child = g.id,
           group_live AS v
     WHERE v.group_id = %(group_number)s
), freed AS (
    UPDATE open_task AS o
       SET waits_for = nullif(o.waits_for - w.n, 0), state = CASE WHEN o.waits_for > w.n THEN 2 ELSE 0 END
      FROM verdict AS w
     WHERE o.group_id = %(group_number)s AND o.state = 2 AND o.id = w.child
       AND o.id = ANY(ARRAY(SELECT child FROM verdict WHERE parent IS NULL))
    RETURNING o.state, o.named_task_id
), finished AS (
    DELETE FROM task_parents AS p
     USING due AS d, amount AS a
     WHERE p.child_group_id = %(group_number)s AND p.outcome IS NOT NULL AND p.parent = d.parent
       AND (NOT a.full OR d.parent < (SELECT parent FROM last))
), partly AS (
    UPDATE task_parents AS p SET resolved_up_to = (SELECT child FROM last)
     WHERE (SELECT a.full FROM amount AS a) AND p.child_group_id = %(group_number)s
       AND p.parent = (SELECT parent FROM last)
), sums AS MATERIALIZED (
    SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM freed WHERE state = 0) AS freed
), before AS MATERIALIZED (
    SELECT v.group_id, v.state, v.unfinished, v.hungry, v.watched, g.uuid, g.kind, g.max_managers,
           (g.worker_allocation_plan ->> 'worker_count')::int AS worker_count
      FROM group_live AS v, task_groups AS g WHERE v.group_id = %(group_number)s AND g.id = %(group_number)s
), counted AS (
    UPDATE group_live AS v
       SET unfinished = v.unfinished - s.gone, cancelled = v.cancelled + s.gone,
           drain_seq = v.drain_seq + (v.state <> 'open' AND s.gone > 0 AND v.unfinished = s.gone)::int,
           hungry = v.hungry AND s.freed = 0, watched = false
      FROM sums AS s WHERE v.group_id = %(group_number)s AND s.gone + s.freed > 0
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'task_group', b.uuid FROM before AS b, sums AS s
     WHERE b.state <> 'open' AND s.gone > 0 AND b.unfinished = s.gone
    UNION ALL
    -- As a submit does, for the tasks that are claimable now.
    SELECT 'scheduler', NULL FROM before AS b, sums AS s
     WHERE s.freed > 0 AND b.kind = 'managed'
       AND (SELECT count(*) FROM leases AS l WHERE l.group_id = b.group_id AND l.state <> 'ended')
           < least(b.max_managers, ceil(s.freed / (2.0 * b.worker_count)))
    RETURNING 1
)
SELECT EXISTS (SELECT FROM due) AS due,
       CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS notified_relay,
       CASE WHEN b.hungry AND s.freed > 0 THEN pg_notify('mitosis_wake', b.group_id::text) END AS notified_claims,
       (SELECT count(pg_notify('mitosis_wake', x.named_task_id || '@' || x.n))
          FROM (SELECT f.named_task_id, count(*) AS n FROM freed AS f
                 WHERE f.state = 0 AND f.named_task_id IS NOT NULL GROUP BY f.named_task_id) AS x) AS notified_services,
       CASE WHEN b.watched AND s.gone + s.freed > 0
            THEN pg_notify('mitosis_wake', b.group_id || '!') END AS notified_watchers
  FROM before AS b, sums AS s
