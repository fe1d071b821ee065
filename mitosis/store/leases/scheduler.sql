-- The assignment round. Its advisory lock makes rounds take turns until the transaction ends; other
-- transactions are held off by row locks only.

-- name: lock
SELECT pg_advisory_xact_lock(hashtext('mitosis.assign_round'))

-- name: hosts_of_round
-- Appended to host_facts. Applies the condition no_contact, because hosts that never return can be many.
 WHERE NOT c.offline AND c.last_contact_at > now() - make_interval(secs => %(suspect_after)s)
 ORDER BY m.id

-- name: groups_of_round
-- Appended to group_facts. Applies the conditions ended and no_work; best group first, page by page. A group
-- without unfinished tasks has no ready ones, so the cheap column is checked before tasks are counted.
 WHERE g.kind = 'managed' AND v.settled_at IS NULL AND v.state IN ('open', 'closed') AND NOT v.discarding
   AND v.unfinished > 0 AND r.ready > 0
   AND (-g.priority::bigint, g.id) > (-%(after_priority)s::bigint, %(after_id)s::bigint)
 ORDER BY g.priority DESC, g.id
 LIMIT %(limit)s

-- name: move_leases
-- End idle leases so that their hosts can go to other groups. A claim in between is harmless: its tasks
-- finish and report first. A lease locked by another transaction is left to the next round: this one holds
-- groups, and the lock order forbids waiting for a lease after a group.
WITH moved AS (
    UPDATE leases AS l SET state = 'ending', end_reason = 'moved', freed_for = t.group_id
      FROM (SELECT c.epoch, u.group_id
              FROM leases AS c
              JOIN unnest(%(epochs)s::bigint[], %(groups)s::bigint[]) AS u (epoch, group_id)
                ON u.epoch = c.epoch
             WHERE c.state = 'active'
               FOR UPDATE OF c SKIP LOCKED) AS t
     WHERE l.epoch = t.epoch
    RETURNING l.manager_id, l.group_id
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'manager', m.uuid FROM moved AS l JOIN managers AS m ON m.id = l.manager_id
)
SELECT pg_notify('mitosis_wake', group_id::text) FROM moved

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
          FROM unnest(%(groups)s::bigint[], %(managers)s::bigint[], %(draining)s::boolean[])
               AS o (group_id, manager_id, draining)
          JOIN managers AS m ON m.id = o.manager_id
          JOIN task_groups AS g ON g.id = o.group_id
         WHERE m.draining = o.draining AND m.deleted_at IS NULL AND $may_serve$ AND $member$
           FOR SHARE OF m SKIP LOCKED) AS c
    ON CONFLICT (manager_id) WHERE kind = 'manager' AND state <> 'ended' DO NOTHING

-- name: poke_offered
-- Poke the host of every open offer, including this round's, and each host that has been silent for long
-- enough to be lost.
INSERT INTO outbox (kind, subject)
SELECT 'manager', m.uuid FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
 WHERE l.kind = 'manager'
   AND (l.state = 'offered' OR (l.state IN ('active', 'ending') AND l.alive_until < now()))

-- name: next_failure
-- Seconds until the first of the hosts that failed is tried again.
SELECT extract(epoch FROM min(f.next_at) - now())::float8 AS seconds
  FROM host_failures AS f WHERE f.next_at > now()

-- name: next_delayed
-- Seconds until the next delayed task of a group without a lease is due.
SELECT extract(epoch FROM min(d.due) - now())::float8 AS seconds
  FROM group_live AS v
 CROSS JOIN LATERAL (SELECT min(o.not_before) AS due FROM open_task AS o
                      WHERE o.group_id = v.group_id AND o.state = 4) AS d
 WHERE v.settled_at IS NULL AND v.unfinished > 0 AND v.state IN ('open', 'closed')
   AND NOT EXISTS (SELECT FROM leases AS l WHERE l.group_id = v.group_id AND l.state <> 'ended')

-- name: notify_relay
SELECT pg_notify('mitosis_outbox', '')
