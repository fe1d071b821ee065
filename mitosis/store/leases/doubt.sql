-- Who is to blame when tasks fail: their host or they (C-33). The caller holds group_live.
-- Expressions are over "v", a row with group_id and manager_id (the host whose tasks failed).

-- name: blamed
-- Whether the host m is suspected or quarantined for the group of v, or would be if there were another host.
-- The last is no reason to believe a host that is quarantined already; nor is it one to believe a host that is
-- suspected for that many failures if m is suspected for fewer: a wrong task failed there.
EXISTS (SELECT FROM host_failures AS q
         WHERE q.group_id = v.group_id AND q.manager_id = m.id AND q.kind = 'tasks_failed'
           AND ((q.phase = 'suspected'
                 AND NOT (q.failures < %(quarantine_after)s
                          AND EXISTS (SELECT FROM host_failures AS own
                                       WHERE own.group_id = v.group_id AND own.manager_id = v.manager_id
                                         AND own.kind = 'tasks_failed' AND own.phase = 'suspected'
                                         AND own.failures >= %(quarantine_after)s)))
                OR (q.phase = 'quarantined' AND q.incarnation = m.incarnation)
                OR (q.phase = 'watched' AND q.failures >= %(quarantine_after)s
                    AND NOT EXISTS (SELECT FROM host_failures AS own
                                     WHERE own.group_id = v.group_id AND own.manager_id = v.manager_id
                                       AND own.phase = 'quarantined'))))

-- name: working
-- Whether another host serves the group now and is not blamed.
EXISTS (SELECT FROM leases AS l
          JOIN managers AS m ON m.id = l.manager_id
          JOIN environments AS e ON e.manager_id = l.manager_id AND e.group_id = l.group_id
         WHERE l.group_id = v.group_id AND l.manager_id <> v.manager_id AND l.state = 'active'
           AND l.alive_until > now() AND e.state = 'ready' AND NOT $blamed$)

-- name: serving
-- Whether another host that is not blamed has a lease of the group and goes on claiming, or runs a task that failed on
-- the host of the row f of host_failures: it decides sooner or later. No excused host speaks for another one.
EXISTS (SELECT FROM leases AS l
          JOIN managers AS m ON m.id = l.manager_id
          JOIN manager_live AS c ON c.manager_id = l.manager_id
         WHERE l.group_id = v.group_id AND l.manager_id <> v.manager_id AND l.state <> 'ended' AND l.alive_until > now()
           AND c.last_contact_at > now() - make_interval(secs => %(awaited)s::float8)
           AND ((l.state = 'active' AND NOT l.draining AND NOT m.draining)
                OR EXISTS (SELECT FROM open_task AS o WHERE o.group_id = l.group_id AND o.epoch = l.epoch AND o.state = 1
                              AND o.id = ANY(f.tasks) AND o.started_at IS NOT NULL))
           AND NOT (f.phase = 'excused' AND EXISTS (
                    SELECT FROM host_failures AS q WHERE q.group_id = v.group_id AND q.manager_id = m.id
                       AND q.kind = 'tasks_failed' AND q.phase = 'excused'))
           AND NOT $blamed$)

-- name: failed_there
-- Whether the setup of the group of v failed on the host m; not after a change of the hook.
EXISTS (SELECT FROM host_failures AS q
         WHERE q.manager_id = m.id AND q.incarnation = m.incarnation
           AND q.group_id = v.group_id
           AND q.hook = (SELECT md5(coalesce(k.environment_setup_hook::text, '')) FROM task_groups AS k
                          WHERE k.id = q.group_id)
           AND q.kind = 'setup_failed')

-- name: paused_since
-- Since when the host m, in the pause after an offer that it did not take, or after it could not start workers or made
-- no progress for the group g, takes no offer. Null: it can be offered. An offer of any group counts; the first one
-- since it took one, and the first failure in a row. The pauses (10 s or 30 s, then twice the last one) before the last
-- failure sum up to 10 or 30 * (2^(failures - 1) - 1) s.
(SELECT least(CASE WHEN bool_or(q.next_at > now() AND q.kind = 'unreachable')
                   THEN min(q.began_at) FILTER (WHERE q.kind = 'unreachable') END,
              min(q.began_at) FILTER (WHERE q.kind <> 'unreachable'))
   FROM (SELECT p.kind, p.next_at,
                p.failed_at - (2 ^ least(p.failures - 1, 16) - 1)
                              * CASE p.kind WHEN 'no_progress' THEN interval '30 seconds'
                                            ELSE interval '10 seconds' END AS began_at
           FROM host_failures AS p
          WHERE p.manager_id = m.id AND p.incarnation = m.incarnation
            AND (p.kind = 'unreachable'
                 OR (p.kind IN ('workers_not_started', 'no_progress') AND p.group_id = g.id AND p.next_at > now()
                     AND p.hook = md5(coalesce(g.environment_setup_hook::text, ''))))) AS q)

-- name: fits
-- Whether the workers of the group g can be bound to the cores of the host m, as in scheduling/binding.py. Any plan
-- fits a host that has never said which cores it has.
(SELECT m.machine_id IS NULL OR b.plan IS NULL
        OR (m.cores <> '{}' AND b.cores <@ m.cores
            AND (b.plan ->> 'strategy' <> 'exclusive' OR b.needed <= cardinality(b.cores)))
   FROM (SELECT a.plan, CASE WHEN a.plan -> 'cores' <> 'null'
                             THEN ARRAY(SELECT jsonb_array_elements_text(a.plan -> 'cores')::int)
                             ELSE m.cores END AS cores,
                (g.worker_allocation_plan ->> 'worker_count')::int
                * coalesce((a.plan ->> 'cores_per_worker')::int, 1) AS needed
           FROM (SELECT nullif(g.worker_allocation_plan -> 'cpu_binding', 'null') AS plan) AS a) AS b)

-- name: busy_since
-- Since when the host m is kept from new tasks: the start of the oldest task under a lease that ends or drains, or the last
-- step of a teardown, or of a setup for another group. Null: by nothing. Ended leases are ruled out for the index.
least((SELECT min(o.started_at) FROM leases AS n JOIN open_task AS o ON o.group_id = n.group_id AND o.epoch = n.epoch
        WHERE n.manager_id = m.id AND n.kind = 'manager' AND n.state <> 'ended' AND (n.state = 'ending' OR n.draining)
          AND o.state = 1),
      (SELECT min(x.changed_at) FROM environments AS x
        WHERE x.manager_id = m.id
          AND (x.state IN ('tearing_down', 'owed') OR (x.state = 'preparing' AND x.group_id <> g.id))))

-- name: fails_there
-- Whether tasks of the group g fail on the host of its lease n, and it has had no success since.
(EXISTS (SELECT FROM host_failures AS w WHERE w.group_id = g.id AND w.manager_id = n.manager_id
            AND w.kind = 'tasks_failed' AND w.phase IN ('watched', 'suspected'))
 OR EXISTS (SELECT FROM open_task AS w WHERE w.group_id = g.id AND w.state = 5 AND w.avoid = n.manager_id))

-- name: own_fails_there
-- The same in a report of failures of the row v, which are not noted yet.
(n.manager_id = v.manager_id OR $noted_there$)

-- name: full
-- The group g, with the hosts whose leases take its places. One that is to end takes none: that of a suspected host,
-- and that of one that fails while fewer than three are suspected, so that wrong tasks do not walk through a fleet;
-- but it would wait for a long task.
(SELECT g.*, CASE WHEN g.max_managers IS NOT NULL THEN ARRAY(
            SELECT n.manager_id FROM leases AS n
             WHERE n.group_id = g.id AND n.state <> 'ended'
               AND (EXISTS (SELECT FROM open_task AS w WHERE w.group_id = g.id AND w.epoch = n.epoch AND w.state = 1
                               AND w.started_at < now() - make_interval(secs => %(awaited)s::float8))
                    OR NOT ((n.manager_id = ANY(s.suspected) OR cardinality(s.suspected) < 3)
                            AND $fails_there$))) END AS taken
   FROM task_groups AS g
  CROSS JOIN LATERAL (SELECT ARRAY(SELECT w.manager_id FROM host_failures AS w
                                    WHERE w.group_id = g.id AND w.kind = 'tasks_failed' AND w.phase = 'suspected')
                                    AS suspected) AS s
  WHERE g.id = $group$ OFFSET 0)

-- name: able
-- Hosts m that may serve the group and were seen within the last hour; whether one works for another group (a lease
-- that is active), or could begin at once: it has a lease of this one, or none. kept_until: not before, it is free:
-- it is to be asked back for the group, or may be taken from then on because it is idle. busy_since and
-- paused_since: see there. The inner part is cheap: the rest is asked of the hosts that it leaves.
(SELECT m.*, $busy_since$ AS busy_since, $paused_since$ AS paused_since
   FROM $full$ AS g
  CROSS JOIN LATERAL (
        SELECT m.*, c.last_contact_at,
               NOT c.offline AND c.last_contact_at > now() - make_interval(secs => %(in_contact)s::float8) AS in_contact,
               l.state = 'active' AND l.group_id <> g.id AS elsewhere,
               l.epoch IS NULL OR (l.group_id = g.id AND l.state <> 'ending') AS at_once,
               CASE WHEN l.freed_for = g.id THEN coalesce(l.ask_back_at, l.contested_at)
                    WHEN l.state = 'active' THEN l.idle_until END AS kept_until
          FROM managers AS m
          JOIN manager_live AS c ON c.manager_id = m.id
          LEFT JOIN leases AS l ON l.manager_id = m.id AND l.kind = 'manager' AND l.state <> 'ended'
         WHERE NOT m.draining AND c.last_contact_at > now() - interval '1 hour'
        OFFSET 0) AS m
  WHERE $may_serve$ AND $member$ AND $fits$
    AND (g.taken IS NULL OR cardinality(array_remove(g.taken, m.id)) < g.max_managers))

-- name: other
-- Whether the host m is another one that could run the tasks.
m.id <> v.manager_id AND NOT $blamed$ AND NOT $failed_there$

-- name: possible
-- Whether another host in contact serves the group, or is free and clean and may serve it.
EXISTS (SELECT FROM $able_hosts$ AS m
         WHERE m.at_once AND m.in_contact AND m.busy_since IS NULL AND m.paused_since IS NULL AND $other$)

-- name: away_since
-- Since when the host m is away: since its last contact, since it takes no offers, or since it is busy with the end of
-- a lease. It starts again, can be reached again, can start workers again, or its lease ends. One that works for another group is away since
-- tasks last failed on the suspected host, or from now on; but one that is kept until some time, since that.
least(m.last_contact_at, m.paused_since,
      greatest(m.kept_until, least(now(), m.busy_since, CASE WHEN m.elsewhere THEN (
          SELECT f.failed_at FROM host_failures AS f
           WHERE f.group_id = v.group_id AND f.manager_id = v.manager_id AND f.kind = 'tasks_failed'
             AND f.phase IN ('suspected', 'quarantined')) END)))

-- name: expected
-- Whether another host could run the tasks, or is away for less than the time for which one is awaited.
EXISTS (SELECT FROM $able_hosts$ AS m
         WHERE $other$ AND $away_since$ > now() - make_interval(secs => %(awaited)s::float8))

-- name: away_seconds
-- The least time that one of the other hosts is away. Null also after an hour without contact, which changes no verdict.
(SELECT extract(epoch FROM now() - max($away_since$))::float8 FROM $able_hosts$ AS m WHERE $other$)

-- name: suspects
-- Every host whose tasks failed in the group, with what is known since its last success there. Able hosts are read once
-- for all of them, and only as far as they are needed.
WITH able AS MATERIALIZED $able$
SELECT v.manager_id AS manager, m.name, f.phase, coalesce(f.failures, 0) AS failures,
       coalesce(f.tasks, '{}') AS tasks, m.incarnation = f.incarnation AS same_process,
       extract(epoch FROM f.next_at - now())::float8 AS left_seconds,
       ARRAY(SELECT o.id FROM open_task AS o
              WHERE o.group_id = v.group_id AND o.state = 5 AND o.avoid = v.manager_id ORDER BY o.id) AS doubted,
       (SELECT count(*) FROM task_result AS r
         WHERE r.task_id = ANY(f.tasks) AND r.state = 'succeeded' AND r.manager_id <> v.manager_id)
           AS succeeded_elsewhere,
       (SELECT count(*) FROM task_result AS r
         WHERE r.task_id = ANY(f.tasks) AND r.state = 'failed' AND r.manager_id <> v.manager_id)
           AS failed_elsewhere,
       (SELECT count(*) FROM open_task AS o
         WHERE o.group_id = v.group_id AND o.id = ANY(f.tasks)
           AND NOT (o.state = 5 AND o.avoid = v.manager_id)) AS trying,
       EXISTS (SELECT FROM leases AS l JOIN open_task AS o ON o.group_id = l.group_id
                WHERE l.group_id = v.group_id AND l.manager_id = v.manager_id AND l.state <> 'ended'
                  AND ((o.state = 1 AND o.epoch = l.epoch) OR (o.state = 0 AND l.state = 'active')))
           AS has_more,
       EXISTS (SELECT FROM open_task AS o
                WHERE o.group_id = v.group_id AND o.state = 5 AND o.avoid <> v.manager_id)
       OR EXISTS (SELECT FROM open_task AS o WHERE o.group_id = v.group_id AND o.state = 4) AS may_get_more,
       h.others, CASE WHEN NOT h.others THEN $away_seconds$ END AS away_seconds,
       CASE WHEN f.phase IN ('suspected', 'excused') THEN $serving$ ELSE false END AS serving
  FROM (SELECT d.group_id, d.manager_id FROM host_failures AS d
         WHERE d.group_id = %(group_number)s AND d.kind = 'tasks_failed'
        UNION SELECT o.group_id, o.avoid FROM open_task AS o
         WHERE o.group_id = %(group_number)s AND o.state = 5) AS v
  JOIN managers AS m ON m.id = v.manager_id
  LEFT JOIN host_failures AS f
    ON f.group_id = v.group_id AND f.manager_id = v.manager_id AND f.kind = 'tasks_failed'
 CROSS JOIN LATERAL (SELECT $possible$ AS others OFFSET 0) AS h
 ORDER BY v.manager_id

-- name: known
-- What is known about one host.
SELECT f.phase, f.failures, m.incarnation = f.incarnation AS same_process,
       extract(epoch FROM f.next_at - now())::float8 AS left_seconds
  FROM host_failures AS f JOIN managers AS m ON m.id = f.manager_id
 WHERE f.group_id = %(group_number)s AND f.manager_id = %(manager_number)s AND f.kind = 'tasks_failed'

-- name: note
-- More tasks failed on a host; fresh: a new streak replaces what was known. At most 32 tasks are kept.
INSERT INTO host_failures AS f (group_id, manager_id, kind, phase, failures, reason, incarnation, hook, next_at, tasks)
SELECT %(group_number)s, m.id, 'tasks_failed', 'watched', cardinality(%(tasks)s::bigint[]), %(reason)s,
       m.incarnation, '', now() + make_interval(secs => %(hold)s::float8), (%(tasks)s::bigint[])[1:32]
  FROM managers AS m WHERE m.id = %(manager_number)s
    ON CONFLICT (group_id, manager_id, kind) DO UPDATE
   SET phase = CASE WHEN %(fresh)s THEN 'watched' ELSE f.phase END,
       next_at = CASE WHEN %(fresh)s OR f.next_at IS NULL THEN excluded.next_at ELSE f.next_at END,
       failures = CASE WHEN %(fresh)s THEN excluded.failures ELSE f.failures
                       + (SELECT count(*)::int FROM unnest(%(tasks)s::bigint[]) AS t (id)
                           WHERE t.id <> ALL(f.tasks)) END,
       tasks = CASE WHEN %(fresh)s THEN excluded.tasks ELSE (f.tasks
                    || ARRAY(SELECT t.id FROM unnest(%(tasks)s::bigint[]) AS t (id)
                              WHERE t.id <> ALL(f.tasks)))[1:32] END,
       reason = CASE WHEN %(fresh)s OR f.phase = 'watched' THEN excluded.reason ELSE f.reason END,
       failed_at = now(),
       incarnation = excluded.incarnation

-- name: set_phase
UPDATE host_failures AS f
   SET phase = %(phase)s, reason = coalesce(%(reason)s::text, f.reason), failures = %(failures)s,
       next_at = now() + make_interval(secs => %(seconds)s::float8),
       incarnation = (SELECT m.incarnation FROM managers AS m WHERE m.id = f.manager_id)
 WHERE f.group_id = %(group_number)s AND f.manager_id = %(manager_number)s AND f.kind = 'tasks_failed'

-- name: count_as_tried
-- Tasks that are tried elsewhere belong to the streak, also those that came too late to be kept.
UPDATE host_failures AS f
   SET tasks = (%(tasks)s::bigint[]
                || ARRAY(SELECT t.id FROM unnest(f.tasks) AS t (id) WHERE t.id <> ALL(%(tasks)s::bigint[])))[1:32]
 WHERE f.group_id = %(group_number)s AND f.manager_id = %(manager_number)s AND f.kind = 'tasks_failed'

-- name: rest
-- Nothing is doubted: the passing of time changes nothing for a watched host.
UPDATE host_failures SET next_at = NULL
 WHERE group_id = %(group_number)s AND manager_id = %(manager_number)s AND phase = 'watched' AND next_at IS NOT NULL

-- name: forget_tasks
DELETE FROM host_failures
 WHERE group_id = %(group_number)s AND manager_id = %(manager_number)s AND kind = 'tasks_failed'

-- name: release
-- Doubted tasks become ready again; the attempt that failed is not charged.
WITH forgiven AS (
    UPDATE task_failures AS f SET forgiven = true
      FROM open_task AS o
     WHERE o.group_id = %(group_number)s AND o.state = 5 AND o.id = ANY(%(tasks)s::bigint[])
       AND f.task_id = o.id AND f.attempt = o.attempt AND f.group_id = o.group_id
    RETURNING f.task_id, f.kind = ANY(%(crashes)b::text[]) AS crash
)
UPDATE open_task AS o
   SET state = 0, started_at = NULL, exit_failures = greatest(0, o.exit_failures - (NOT f.crash)::int),
       crash_failures = greatest(0, o.crash_failures - f.crash::int)
  FROM forgiven AS f
 WHERE o.group_id = %(group_number)s AND o.state = 5 AND o.id = f.task_id

-- name: groups_of_doubted
-- Task groups that blame a host or doubt failures there.
SELECT v.group_id AS group_number, v.manager_id AS manager_number
  FROM (SELECT f.group_id, f.manager_id FROM host_failures AS f WHERE f.kind = 'tasks_failed'
        UNION SELECT o.group_id, o.avoid FROM open_task AS o WHERE o.state = 5) AS v
  JOIN managers AS m ON m.id = v.manager_id
  JOIN task_groups AS g ON g.id = v.group_id
 WHERE m.uuid = %(manager)s AND (%(group)s::uuid IS NULL OR g.uuid = %(group)s::uuid)
 ORDER BY v.group_id

-- name: doubted
SELECT ARRAY(SELECT o.id FROM open_task AS o
              WHERE o.group_id = %(group_number)s AND o.state = 5 AND o.avoid = %(manager_number)s
              ORDER BY o.id) AS tasks

-- name: forgive
-- A host is quarantined: open tasks get back every attempt that it failed.
WITH forgiven AS (
    UPDATE task_failures AS f SET forgiven = true
     WHERE f.group_id = %(group_number)s AND f.manager_id = %(manager_number)s AND NOT f.forgiven
       AND f.kind NOT IN ('host_lost', 'workers_lost', 'terminated')
    RETURNING f.task_id, f.kind = ANY(%(crashes)b::text[]) AS crash
), sums AS (
    SELECT task_id, count(*) FILTER (WHERE NOT crash) AS exits, count(*) FILTER (WHERE crash) AS crashes
      FROM forgiven GROUP BY task_id
)
UPDATE open_task AS o
   SET exit_failures = greatest(0, o.exit_failures - s.exits),
       crash_failures = greatest(0, o.crash_failures - s.crashes)
  FROM sums AS s WHERE o.group_id = %(group_number)s AND o.id = s.task_id

-- name: fail
-- Doubted failures are final: the recorded attempt becomes the result.
WITH gone AS (
    DELETE FROM open_task AS o
     WHERE o.group_id = %(group_number)s AND o.state = 5 AND o.id = ANY(%(tasks)s::bigint[])
    RETURNING o.id, o.attempt, o.started_at, o.crash_failures
), recorded AS MATERIALIZED (
    SELECT g.id, g.attempt, g.started_at, g.crash_failures, f.manager_id, f.kind, f.exit_code, f.signal, f.detail,
           f.failed_at, f.id AS failure, f.kind = ANY(%(crashes)b::text[]) AS crash
      FROM gone AS g JOIN task_failures AS f ON f.task_id = g.id AND f.attempt = g.attempt
), once AS (
    DELETE FROM task_failures AS f
     WHERE f.id = ANY(ARRAY(SELECT failure FROM recorded WHERE NOT crash))
), results AS (
    INSERT INTO task_result (task_id, group_id, seq, state, attempt, manager_id, kind, exit_code, signal,
                             started_at, finished_at, detail)
    SELECT r.id, v.group_id, v.total - v.unfinished + row_number() OVER (ORDER BY r.id), 'failed', r.attempt,
           r.manager_id, r.kind, r.exit_code, r.signal, r.started_at, r.failed_at,
           CASE WHEN r.crash AND r.kind <> 'signal'
                THEN (%(given_up)s || r.crash_failures || ' times: '
                      || substr(r.detail::text, 1 + length(%(message)s)))::json ELSE r.detail END
      FROM recorded AS r, group_live AS v WHERE v.group_id = %(group_number)s
), sums AS MATERIALIZED (
    SELECT count(*) AS n FROM recorded
), before AS MATERIALIZED (
    SELECT v.group_id, v.state, v.discarding, v.unfinished, v.watched, g.uuid
      FROM group_live AS v JOIN task_groups AS g ON g.id = v.group_id WHERE v.group_id = %(group_number)s
), counted AS (
    UPDATE group_live AS v
       SET unfinished = v.unfinished - s.n, failed = v.failed + s.n, watched = false,
           drain_seq = v.drain_seq + (v.state <> 'open' AND s.n > 0 AND v.unfinished = s.n)::int
      FROM sums AS s WHERE v.group_id = %(group_number)s AND s.n > 0
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'task_group', b.uuid FROM before AS b, sums AS s
     WHERE s.n > 0 AND b.state <> 'open' AND b.unfinished = s.n
    RETURNING 1
)
SELECT s.n AS failed,
       CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS notified_relay,
       CASE WHEN b.watched THEN pg_notify('mitosis_wake', b.group_id || '!') END AS notified_watchers
  FROM sums AS s, before AS b

-- name: wake
-- Tasks became ready, or a host is no longer usable: wake waiting claims and the scheduler.
WITH hungry AS (
    UPDATE group_live SET hungry = false WHERE group_id = %(group_number)s AND hungry RETURNING group_id
), pokes AS (
    INSERT INTO outbox (kind, subject) VALUES ('scheduler', NULL)
)
SELECT pg_notify('mitosis_outbox', ''),
       (SELECT pg_notify('mitosis_wake', group_id::text) FROM hungry),
       pg_notify('mitosis_wake', %(group_number)s::bigint || '!')

-- name: groups_in_doubt
-- Unsettled groups whose doubted tasks or hosts are due for a decision.
SELECT v.group_id AS number, v.state IN ('open', 'closed') AND NOT v.discarding AS goes_on
  FROM group_live AS v
 WHERE v.settled_at IS NULL
   AND v.group_id IN (SELECT o.group_id FROM open_task AS o WHERE o.state = 5
                      UNION SELECT f.group_id FROM host_failures AS f
                       WHERE f.kind = 'tasks_failed'
                         AND (f.phase = 'suspected' OR (f.phase = 'watched' AND f.next_at <= now()))
                      UNION SELECT f.group_id FROM host_failures AS f WHERE f.phase = 'quarantined'
                      UNION SELECT f.group_id FROM host_failures AS f
                       WHERE f.kind = 'tasks_failed' AND f.phase = 'excused'
                         AND EXISTS (SELECT FROM leases AS l
                                      WHERE l.group_id = f.group_id AND l.manager_id <> f.manager_id
                                        AND l.state = 'active'))
 ORDER BY v.group_id

-- name: next_judgement
-- Seconds until the round judges again: soon while a failure is doubted or a host suspected, since no report may
-- come; seldom for a host that stays quarantined while it is alone.
SELECT least(CASE WHEN EXISTS (SELECT FROM open_task AS o WHERE o.state = 5) OR EXISTS (
                      SELECT FROM host_failures AS f JOIN group_live AS v ON v.group_id = f.group_id
                       WHERE f.kind = 'tasks_failed' AND f.phase = 'suspected' AND v.unfinished > 0)
                  THEN %(soon)s::float8 END,
             CASE WHEN EXISTS (
                      SELECT FROM host_failures AS f JOIN group_live AS v ON v.group_id = f.group_id
                       WHERE f.kind = 'tasks_failed' AND f.phase = 'quarantined' AND v.unfinished > 0)
                  THEN %(seldom)s::float8 END) AS seconds

-- name: end_leases
-- Leases of quarantined hosts end, and those of suspected ones as soon as nothing runs under them: they can serve other
-- groups, and leave their place among max_managers to a host that can try the tasks. A locked one is left to the
-- next round. Tasks of a claim that commits beside it end under the ending lease or go back.
WITH ended AS (
    UPDATE leases AS l SET state = 'ending', end_reason = t.phase
      FROM (SELECT c.epoch, f.phase FROM leases AS c
             JOIN managers AS m ON m.id = c.manager_id
             JOIN host_failures AS f ON f.group_id = c.group_id AND f.manager_id = c.manager_id
            WHERE c.state = 'active' AND f.kind = 'tasks_failed'
              AND ((f.phase = 'quarantined' AND f.incarnation = m.incarnation AND f.next_at > now())
                   OR (f.phase = 'suspected'
                       AND NOT EXISTS (SELECT FROM open_task AS o
                                        WHERE o.group_id = c.group_id AND o.epoch = c.epoch AND o.state = 1)))
              FOR UPDATE OF c SKIP LOCKED) AS t
     WHERE l.epoch = t.epoch
    RETURNING l.manager_id, l.group_id
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'manager', m.uuid FROM ended AS l JOIN managers AS m ON m.id = l.manager_id
)
SELECT pg_notify('mitosis_wake', group_id::text) FROM ended
