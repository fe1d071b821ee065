-- What a decision changes. The round holds its lock; see scheduler.sql.

-- name: end_decided
-- An offer is withdrawn. What has not started under any other lease is asked back now, or later if there is a grace
-- or none is asked back: until then its tasks go on, and it claims nothing more. A claim in between is harmless: its
-- tasks finish and report first. A lease that another transaction has locked is left to the next round: this one may
-- hold groups, and the lock order forbids waiting for a lease after a group.
WITH chosen AS MATERIALIZED (
    SELECT c.epoch, c.state AS was, u.reason, u.freed_for, u.was_idle, u.at_once, u.ask_back_at
      FROM leases AS c
      JOIN unnest(%(epochs)s::bigint[], %(reasons)s::text[], %(freed_for)s::bigint[], %(was_idle)s::boolean[],
                  %(at_once)s::boolean[], %(ask_back_at)s::float8[])
           AS u (epoch, reason, freed_for, was_idle, at_once, ask_back_at) ON u.epoch = c.epoch
     WHERE c.state IN ('offered', 'active')
       FOR UPDATE OF c SKIP LOCKED
), ended AS (
    UPDATE leases AS l
       SET state = CASE WHEN t.was = 'offered' THEN 'ended' WHEN t.at_once THEN 'ending' ELSE l.state END,
           ended_at = CASE WHEN t.was = 'offered' THEN now() END,
           end_reason = CASE WHEN t.was = 'offered' OR t.at_once THEN t.reason ELSE l.end_reason END,
           draining = l.draining OR NOT t.at_once,
           ask_back_at = to_timestamp(t.ask_back_at),
           freed_for = t.freed_for,
           contested_at = CASE WHEN t.freed_for IS NOT NULL THEN now() END,
           was_idle = t.was_idle
      FROM chosen AS t
     WHERE l.epoch = t.epoch
    RETURNING l.manager_id, l.group_id
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'manager', m.uuid FROM ended AS l JOIN managers AS m ON m.id = l.manager_id
)
SELECT pg_notify('mitosis_wake', group_id::text) FROM ended

-- name: renew_decided
-- One that is locked is left to the next round, as in end_decided. The workflow of the host sets its timer.
WITH renewed AS (
    UPDATE leases AS l SET affinity_until = to_timestamp(t.until), renewed = true
      FROM (SELECT c.epoch, u.until
              FROM leases AS c
              JOIN unnest(%(epochs)s::bigint[], %(until)s::float8[]) AS u (epoch, until) ON u.epoch = c.epoch
             WHERE c.state = 'active'
               FOR UPDATE OF c SKIP LOCKED) AS t
     WHERE l.epoch = t.epoch
    RETURNING l.manager_id
)
INSERT INTO outbox (kind, subject)
SELECT 'manager', m.uuid FROM renewed AS l JOIN managers AS m ON m.id = l.manager_id

-- name: note_idle
-- From when on hosts may be taken because they are idle: for the workflow of the host, which sets its timer. All
-- other leases are in use, or no group waits for their hosts.
WITH noted AS (
    UPDATE leases AS l SET idle_until = to_timestamp(t.until)
      FROM (SELECT c.epoch, u.until
              FROM leases AS c
              LEFT JOIN unnest(%(epochs)s::bigint[], %(until)s::float8[]) AS u (epoch, until) ON u.epoch = c.epoch
             WHERE c.kind = 'manager' AND c.state = 'active' AND c.idle_until IS DISTINCT FROM to_timestamp(u.until)
               FOR UPDATE OF c SKIP LOCKED) AS t
     WHERE l.epoch = t.epoch
    RETURNING l.manager_id
)
INSERT INTO outbox (kind, subject)
SELECT 'manager', m.uuid FROM noted AS l JOIN managers AS m ON m.id = l.manager_id

-- name: note_hostless
-- Since when task groups have claimable tasks and no host. What is over is deleted: it begins again.
WITH over AS (DELETE FROM hostless_groups WHERE group_id <> ALL(%(groups)s::bigint[]))
INSERT INTO hostless_groups (group_id) SELECT unnest(%(groups)s::bigint[]) ON CONFLICT DO NOTHING

-- name: hold_groups
-- Shared with submits and reports, not with endings: an ending of the group comes before or after this
-- round's offers, never between.
SELECT v.group_id FROM group_live AS v
 WHERE v.group_id = ANY(%(groups)s::bigint[]) AND v.state IN ('open', 'closed') AND NOT v.discarding
 ORDER BY v.group_id
   FOR KEY SHARE OF v

-- name: offer
-- The host is on its way to this group now, and to no other. A host that has been drained, resumed or deleted
-- since its facts were read is left to the next round, and so is one that another transaction holds, which may
-- wait for a group. Role and membership are checked again. A removal holds the group, so it comes before or after
-- this.
WITH reached AS (
    UPDATE leases SET freed_for = NULL
     WHERE freed_for IS NOT NULL AND state = 'ended' AND manager_id = ANY(%(managers)s::bigint[])
)
INSERT INTO leases (group_id, manager_id)
SELECT c.group_id, c.manager_id
  FROM (SELECT o.group_id, o.manager_id
          FROM unnest(%(groups)s::bigint[], %(managers)s::bigint[])
               AS o (group_id, manager_id)
          JOIN managers AS m ON m.id = o.manager_id
          JOIN task_groups AS g ON g.id = o.group_id
         WHERE NOT m.draining AND m.deleted_at IS NULL AND $may_serve$ AND $member$
           FOR SHARE OF m SKIP LOCKED) AS c
    ON CONFLICT (manager_id) WHERE kind = 'manager' AND state <> 'ended' DO NOTHING
