-- What a process that keeps the facts of the fleet reads to bring them up to date (ADR 0013).

-- name: changes
-- What has changed since the facts were read by the transaction "own", which saw what "seen" shows; "first" is the
-- first transaction that may have changed something since. A mark of a transaction that had not ended then is new
-- now, also with a lower number; those of the own transaction may be of after the reading.
WITH news AS MATERIALIZED (
    SELECT c.manager_id, c.group_id FROM fleet_changes AS c
     WHERE c.xid >= %(first)s::text::xid8
       AND (c.xid = %(own)s::text::xid8 OR NOT pg_visible_in_snapshot(c.xid, %(seen)s::text::pg_snapshot))
)
SELECT extract(epoch FROM now())::float8 AS now,
       -- Another server, another start of it, a database made again: its transactions have other numbers.
       concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()),
                 (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()),
                 'fleet_changes'::regclass::oid) AS origin,
       pg_current_snapshot()::text AS seen,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS first,
       coalesce(pg_current_xact_id_if_assigned()::text::bigint, 0) AS own,
       (SELECT c.xid::text::bigint FROM fleet_changes AS c ORDER BY c.xid LIMIT 1) AS oldest,
       EXISTS (SELECT FROM news AS n WHERE n.manager_id IS NULL AND n.group_id IS NULL) AS everything,
       ARRAY(SELECT n.manager_id FROM news AS n WHERE n.manager_id IS NOT NULL
             UNION SELECT e.manager_id FROM news AS n JOIN environments AS e ON e.group_id = n.group_id
                    WHERE e.state <> 'gone'
             UNION SELECT f.manager_id FROM news AS n JOIN host_failures AS f ON f.group_id = n.group_id
             UNION SELECT l.manager_id FROM news AS n JOIN leases AS l ON l.group_id = n.group_id
                    WHERE l.state <> 'ended' AND l.manager_id IS NOT NULL) AS hosts,
       -- The time of a contact is not marked: it changes all the time.
       (SELECT coalesce(json_agg(json_build_array(c.manager_id, extract(epoch FROM c.last_contact_at))), '[]')
          FROM manager_live AS c
         WHERE NOT c.offline AND c.last_contact_at <= now() - make_interval(secs => %(suspect_after)s)) AS silent

-- name: one_snapshot
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ

-- name: all_hosts
-- In the order in which a decision takes hosts that are alike: those that come into contact later have their place.
SELECT m.id AS number FROM managers AS m WHERE m.deleted_at IS NULL ORDER BY m.id

-- name: in_contact_or_leased
 WHERE m.id = ANY(%(managers)s::bigint[])
   AND ((NOT c.offline AND c.last_contact_at > now() - make_interval(secs => %(suspect_after)s))
        OR l.epoch IS NOT NULL)
 ORDER BY m.id

-- name: progress_of_hosts
-- What claims, ends of tasks and the clock change of leases; all else about them is marked.
SELECT l.manager_id AS number, l.epoch, $progress$ AS progress,
       $empty_since$ AS empty_since
  FROM leases AS l
  JOIN manager_live AS c ON c.manager_id = l.manager_id
  JOIN task_groups AS g ON g.id = l.group_id
  LEFT JOIN environments AS e ON e.manager_id = l.manager_id AND e.group_id = l.group_id
 WHERE l.kind = 'manager' AND l.state IN ('offered', 'active') AND l.manager_id = ANY(%(managers)s::bigint[])

-- name: forget_changes
-- The newest of the old ones stays: while one is older than what a process has seen, that process has missed none.
-- It is older than every transaction that runs, so a long one does not make all processes read everything.
-- Numbers that no transaction has had yet come from another server.
DELETE FROM fleet_changes AS c
 WHERE c.xid < (SELECT o.xid FROM fleet_changes AS o WHERE o.changed_at < now() - make_interval(secs => %(kept)s)
                   AND o.xid < pg_snapshot_xmin(pg_current_snapshot())
                 ORDER BY o.xid DESC LIMIT 1)
    OR (c.xid >= pg_snapshot_xmax(pg_current_snapshot()) AND c.xid <> pg_current_xact_id())
