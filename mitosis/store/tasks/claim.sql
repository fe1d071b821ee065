-- Claiming tasks: one statement for a whole batch (protocol P1-P3, P7).
-- Lock order: lease, group_live, task rows. A statement that waits for the lock of a lease or of
-- group_live continues with the current row, and takes task rows only in their current state.
-- Rows of a batch are always found as (group, id = ANY(array)): a join alone is planned by guesses about
-- the group's size and may read all of it.

-- name: claim
-- First the rows of this epoch whose answer may have been lost (claim_seq > acked_seq), then new ones by
-- (priority desc, id), including delayed ones that are due. The update of the lease is the fence: it waits
-- for an ending and then finds the lease no longer active; it also refuses a claim that comes after the
-- acknowledgement of its own number (a connection that was given up). The inner LIMIT is the largest batch,
-- so that the planner always reads the index in order; no more rows are locked than taken. No row = no such
-- live lease; one row without an id = nothing to claim.
WITH lease AS MATERIALIZED (
    UPDATE leases AS l
       SET acked_seq = greatest(l.acked_seq, %(acked_seq)s), last_claim_at = now()
      FROM managers AS m
     WHERE l.epoch = %(epoch)s AND m.id = l.manager_id AND m.uuid = %(manager)s
       AND l.state = 'active' AND l.alive_until > now() AND l.acked_seq < %(claim_seq)s
    RETURNING l.group_id, l.manager_id, l.draining, m.incarnation
), allowed AS MATERIALIZED (
    -- A suspected or quarantined host gets no new task, and one at a time to prove itself (C-33). A drained one
    -- gets none.
    SELECT l.group_id, l.manager_id,
           CASE WHEN l.draining THEN 0
                WHEN f.phase IS NULL THEN %(max_tasks)s
                WHEN f.phase = 'suspected' OR f.next_at > now() THEN 0
                ELSE 1 - (SELECT count(*) FROM open_task AS o
                           WHERE o.group_id = l.group_id AND o.state = 1 AND o.epoch = %(epoch)s) END AS most
      FROM lease AS l
      JOIN group_live AS v ON v.group_id = l.group_id
      JOIN environments AS e ON e.manager_id = l.manager_id AND e.group_id = l.group_id
      LEFT JOIN host_failures AS f
        ON f.group_id = l.group_id AND f.manager_id = l.manager_id AND f.kind = 'tasks_failed'
           AND (f.phase = 'suspected' OR (f.phase = 'quarantined' AND f.incarnation = l.incarnation))
     WHERE v.state IN ('open', 'closed') AND NOT v.discarding AND e.state = 'ready'
), again AS MATERIALIZED (
    SELECT o.id, o.attempt, o.priority, o.lost_count, o.announce
      FROM open_task AS o, allowed AS a
     WHERE o.group_id = a.group_id AND o.state = 1 AND o.epoch = %(epoch)s
       AND o.claim_seq > %(acked_seq)s
), room AS MATERIALIZED (
    SELECT greatest(least(%(max_tasks)s, (SELECT most FROM allowed)) - count(*), 0) AS n FROM again
), ready AS MATERIALIZED (
    SELECT r.id, r.priority FROM (
        SELECT o.id, o.priority FROM open_task AS o
         WHERE o.group_id = (SELECT group_id FROM allowed) AND o.state = 0
         ORDER BY o.priority DESC, o.id LIMIT 1000
           FOR UPDATE OF o SKIP LOCKED) AS r
     LIMIT (SELECT n FROM room)
), due AS MATERIALIZED (
    SELECT d.id, d.priority FROM (
        SELECT o.id, o.priority FROM open_task AS o
         WHERE o.group_id = (SELECT group_id FROM allowed) AND o.state = 4 AND o.not_before <= now()
           AND (o.avoid IS DISTINCT FROM (SELECT manager_id FROM allowed)
                OR o.not_before <= now() - make_interval(secs => %(others_first)s::float8))
         ORDER BY o.not_before LIMIT 1000
           FOR UPDATE OF o SKIP LOCKED) AS d
     LIMIT (SELECT n FROM room)
), picked AS MATERIALIZED (
    SELECT id FROM (SELECT * FROM ready UNION ALL SELECT * FROM due) AS both_kinds
     ORDER BY priority DESC, id LIMIT (SELECT n FROM room)
), taken AS (
    UPDATE open_task AS o
       SET state = 1, attempt = o.attempt + 1, spent = false, not_before = NULL, started_at = NULL,
           claimed_by = NULL, epoch = %(epoch)s, claim_seq = %(claim_seq)s
     WHERE o.group_id = (SELECT group_id FROM allowed) AND o.id = ANY(ARRAY(SELECT id FROM picked))
    RETURNING o.id, o.attempt, o.priority, o.lost_count, o.announce
), answered AS (
    SELECT * FROM again UNION ALL SELECT * FROM taken
)
SELECT l.group_id, c.id, c.attempt, c.lost_count, c.announce, t.spec::text AS spec
  FROM lease AS l
  LEFT JOIN answered AS c ON true
  LEFT JOIN task AS t ON t.id = c.id
 ORDER BY c.priority DESC, c.id

-- name: hungry
-- A claim waits for work of this group: the next statement that makes a task claimable notifies it. The
-- caller claims once more after this. Returns the seconds until the next delayed task is due.
WITH marked AS (
    UPDATE group_live SET hungry = true
     WHERE group_id = %(group_number)s AND NOT hungry AND state IN ('open', 'closed')
)
SELECT extract(epoch FROM min(o.not_before + CASE WHEN o.avoid = m.id
               THEN make_interval(secs => %(others_first)s::float8) ELSE '0' END)
             - clock_timestamp())::float8 AS due_in_seconds
  FROM (SELECT d.not_before, d.avoid FROM open_task AS d
         WHERE d.group_id = %(group_number)s AND d.state = 4 ORDER BY d.not_before LIMIT 100) AS o,
       managers AS m
 WHERE m.uuid = %(manager)s

-- name: lease_state
-- Why a claim found no live lease.
SELECT l.state FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
 WHERE l.epoch = %(epoch)s AND m.uuid = %(manager)s
