-- Recording reports: two or three statements for a whole batch (protocol P1-P3).
-- Lock order: lease, group_live, task rows. A statement that waits for the lock of a lease or of
-- group_live continues with the current row, and takes task rows only in their current state.
-- Rows of a batch are always found as (group, id = ANY(array)): a join alone is planned by guesses about
-- the group's size and may read all of it.

-- name: of_host
-- Replaces $lease$ in reports of a host: its lease, and who claimed the attempts.
SELECT l.group_id, l.manager_id, l.manager_id AS claimant, l.state, $live_epoch$ AS live_epoch
  FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
 WHERE l.epoch = %(epoch)s AND m.uuid = %(holder)s

-- name: of_service
-- The same for a worker service. It is no host that tasks could fail on (C-33): manager_id is null.
SELECT l.group_id, l.manager_id, w.id AS claimant, l.state, $live_epoch_of_service$ AS live_epoch
  FROM leases AS l JOIN worker_services AS w ON w.uuid = l.worker_uuid
 WHERE l.epoch = %(epoch)s AND w.uuid = %(holder)s

-- name: lock_for_report
-- First statement of a report: locks the lease, to be ordered with its ending, then the group. The next
-- statement has a new snapshot, so it reads the current row of the group. (If one statement locked and
-- updated the row under a snapshot older than the row, two reports could deadlock.)
WITH lease AS MATERIALIZED (
    $lease$
       FOR KEY SHARE OF l
)
SELECT v.group_id FROM group_live AS v JOIN lease AS l ON l.group_id = v.group_id
   FOR NO KEY UPDATE OF v

-- name: other_hosts
-- Second statement, if a report is of a failure: whether other hosts work on the group, and whether one could try
-- the task or is expected back. Settings of the transaction carry the answer to the next statement: reading hosts
-- is most of what the planner would have to do there, and wants other joins.
WITH lease AS MATERIALIZED (
    $lease$
)
SELECT set_config('mitosis.working', ($working$)::text, true),
       set_config('mitosis.expected', (
           v.manager_id IS NOT NULL AND $expected$
           OR EXISTS (SELECT FROM host_failures AS x JOIN managers AS m ON m.id = x.manager_id
                       WHERE x.group_id = v.group_id AND x.manager_id = v.manager_id AND x.kind = 'tasks_failed'
                         AND x.phase = 'quarantined' AND x.incarnation = m.incarnation))::text, true)
  FROM lease AS v

-- name: report
-- A report counts if the open row has the same attempt, its sender claimed it, and it has not been reported
-- (spent), under any epoch. Per row: another attempt (requeued, now or with a pause that doubles), or the end (deleted, with
-- a result). The caller holds lease and group (lock_for_report): the lock of group_live comes before any row
-- and makes the counters, the drain edge and a submit's dedup keys exact. It also numbers the results,
-- continuing from the number of ended tasks; the lock is held until the commit, so a reader that has read up
-- to a number has missed no earlier result.
WITH lease AS MATERIALIZED (
    $lease$
), live AS MATERIALIZED (
    SELECT v.group_id, v.state, v.unfinished, v.total - v.unfinished AS ended_before, v.hungry, v.watched,
           l.manager_id, l.claimant, l.live_epoch, v.state IN ('open', 'closed') AND NOT v.discarding AS goes_on
      FROM group_live AS v, lease AS l WHERE v.group_id = (SELECT group_id FROM lease)
), said AS MATERIALIZED (
    -- lost: with all workers of its host. It is charged as a lost host (P5): the count decides alone. What
    -- an ending has requeued before (no epoch) was judged by that ending: one loss is charged once.
    SELECT s.*, s.kind IS NOT DISTINCT FROM 'workers_lost' AS lost
      FROM unnest(%(ids)s::bigint[], %(attempts)s::int[], %(outcomes)b::text[], %(kinds)b::text[],
                         %(exit_codes)s::int[], %(signals)s::int[], %(started)s::float8[],
                         %(finished)s::float8[], %(details)b::text[], %(crash_limits)s::int[],
                         %(termination_limits)s::int[])
           AS s (id, attempt, outcome, kind, exit_code, signal, started, finished, detail, crash_limit,
                 termination_limit)
), other_hosts AS MATERIALIZED (
    -- Of the statement other_hosts; settings of an earlier transaction are empty.
    SELECT coalesce(current_setting('mitosis.working', true) = 'true', false) AS working,
           coalesce(current_setting('mitosis.expected', true) = 'true', false) AS expected
), failing AS MATERIALIZED (
    -- Failures that end their attempt. The policy of the task gives another attempt, or the failure is final;
    -- a final one is doubted while its host may be to blame (C-33): another host could run the task or is expected
    -- back, or this one is quarantined and probed, and it has not succeeded since. recent: it began after the last
    -- success in this batch: what runs may go on when a host breaks.
    -- Every pause grows; without one of the task's own the first is none.
    SELECT s.id, f.retries, f.recent, NOT f.retries AND f.recent AND h.expected AND NOT EXISTS (
               SELECT FROM host_failures AS x
                WHERE x.group_id = v.group_id AND x.manager_id = v.manager_id AND x.kind = 'tasks_failed'
                  AND x.phase = 'excused' AND x.next_at > now()) AS doubted,
           CASE WHEN NOT f.retries THEN 0
                WHEN s.termination_limit IS NOT NULL
                    THEN least(%(termination_pause)s * power(2::float8, o.terminations), %(longest_pause)s)
                WHEN s.crash_limit IS NULL AND NOT s.lost AND o.retry_delay_seconds > 0
                    THEN least(o.retry_delay_seconds * power(2::float8, o.exit_failures), 86400 * 365.0)
                WHEN n.failures = 0 THEN 0
                ELSE least(%(first_pause)s * power(2::float8, n.failures - 1), %(longest_pause)s) END AS delay,
           h.working
      FROM said AS s, live AS v, other_hosts AS h, open_task AS o
     CROSS JOIN LATERAL (SELECT
           (CASE WHEN s.lost THEN o.lost_count + (o.epoch IS NOT NULL)::int < %(lost_limit)s
                 WHEN s.termination_limit IS NOT NULL THEN o.terminations + 1 < s.termination_limit
                 WHEN s.crash_limit IS NOT NULL
                     THEN s.crash_limit = 0 OR o.crash_failures + 1 < s.crash_limit
                     ELSE o.exit_failures + 1 < o.max_attempts
                          AND (o.retry_exit_codes IS NULL OR s.kind IN ('timeout', 'stuck')
                               OR (s.kind = 'exit_code' AND s.exit_code = ANY(o.retry_exit_codes))) END) IS TRUE AS retries,
           s.kind NOT LIKE 'result_%%' AND s.termination_limit IS NULL AND NOT s.lost
             AND coalesce(s.started > (SELECT max(y.started) FROM said AS y WHERE y.outcome = 'succeeded'), true)
               AS recent) AS f
     CROSS JOIN LATERAL (SELECT CASE WHEN s.lost THEN o.lost_count
                                     WHEN s.crash_limit IS NULL THEN o.exit_failures
                                     ELSE o.crash_failures END AS failures) AS n
     WHERE o.group_id = (SELECT group_id FROM live)
       AND o.id = ANY(ARRAY(SELECT id FROM said WHERE outcome = 'failed'))
       AND o.id = s.id AND o.attempt = s.attempt AND NOT o.spent AND $claimed_here$
       AND s.outcome = 'failed' AND v.goes_on
), again AS (
    -- Other hosts go first (avoid): a delayed task of no delay, which this host may claim later than others.
    UPDATE open_task AS o
       SET state = CASE WHEN f.doubted THEN 5 WHEN f.working OR f.delay > 0 THEN 4 ELSE 0 END,
           not_before = CASE WHEN (f.working OR f.delay > 0) AND NOT f.doubted
                             THEN now() + make_interval(secs => f.delay) END,
           avoid = CASE WHEN f.doubted OR f.working THEN v.manager_id END,
           spent = true, epoch = NULL, claim_seq = NULL,
           started_at = CASE WHEN f.doubted THEN to_timestamp(s.started) END,
           exit_failures = o.exit_failures + (s.crash_limit IS NULL AND NOT s.lost)::int,
           lost_count = o.lost_count + (s.lost AND o.epoch IS NOT NULL)::int,
           crash_failures = least(o.crash_failures
                                  + (s.crash_limit IS NOT NULL AND s.termination_limit IS NULL)::int, 32767),
           terminations = CASE WHEN s.termination_limit IS NULL THEN 0 ELSE o.terminations + 1 END
      FROM said AS s, live AS v, failing AS f
     WHERE o.group_id = (SELECT group_id FROM live) AND o.id = ANY(ARRAY(SELECT id FROM failing))
       AND o.id = s.id AND o.attempt = s.attempt AND NOT o.spent AND $claimed_here$
       AND f.id = s.id AND (f.retries OR f.doubted)
    RETURNING o.id AS task_id, o.named_task_id, v.manager_id, v.group_id,
              CASE WHEN s.lost THEN o.lost_count WHEN s.termination_limit IS NULL THEN o.crash_failures
                   ELSE o.terminations END AS crashes, s.*
), ended AS (
    DELETE FROM open_task AS o
     USING said AS s, live AS v
     WHERE o.group_id = (SELECT group_id FROM live) AND o.id = ANY(%(ids)s::bigint[])
       AND o.id = s.id AND o.attempt = s.attempt AND NOT o.spent AND $claimed_here$
       AND o.id <> ALL(ARRAY(SELECT id FROM failing WHERE retries OR doubted))
    RETURNING o.id AS task_id, v.manager_id, v.group_id, v.ended_before,
              CASE WHEN s.lost THEN o.lost_count WHEN s.termination_limit IS NULL THEN o.crash_failures
                   ELSE o.terminations END + 1 AS crashes,
              s.outcome = 'failed' AND CASE WHEN s.lost THEN o.lost_count + 1 >= %(lost_limit)s
                   WHEN s.termination_limit IS NOT NULL
                   THEN o.terminations + 1 >= s.termination_limit
                   ELSE s.crash_limit > 0 AND o.crash_failures + 1 >= s.crash_limit END AS given_up, s.*
), results AS (
    INSERT INTO task_result (task_id, group_id, seq, state, attempt, manager_id, kind, exit_code, signal,
                             started_at, finished_at, detail)
    SELECT e.task_id, e.group_id, e.ended_before + row_number() OVER (), e.outcome, e.attempt, e.manager_id, e.kind, e.exit_code, e.signal,
           to_timestamp(e.started), to_timestamp(e.finished),
           (CASE WHEN e.given_up AND e.lost THEN %(poison)s || substr(e.detail, 1 + length(%(message)s))
                 WHEN e.given_up AND e.kind <> 'signal'
                 THEN CASE WHEN e.termination_limit IS NULL THEN %(given_up)s ELSE %(terminated)s END
                      || e.crashes || ' times: ' || substr(e.detail, 1 + length(%(message)s))
                 ELSE e.detail END)::json
      FROM ended AS e
), failed AS MATERIALIZED (
    SELECT task_id, group_id, attempt, manager_id, coalesce(kind, 'exit_code') AS kind, exit_code, signal,
           CASE WHEN lost AND crashes >= %(alone_at)s THEN %(lost_again)s || substr(detail, 1 + length(%(message)s))
                ELSE detail END AS detail,
           crashes, termination_limit FROM again
    UNION ALL
    SELECT task_id, group_id, attempt, manager_id, kind, exit_code, signal, detail, crashes, termination_limit
      FROM ended WHERE outcome = 'failed' AND (crash_limit >= 0 OR lost)
), folded AS (
    -- Terminations in a row are one failure, however many there are.
    UPDATE task_failures AS f
       SET attempt = n.attempt, first_attempt = coalesce(f.first_attempt, f.attempt), failed_at = now(),
           failure_count = f.failure_count + 1, manager_id = n.manager_id, kind = n.kind, signal = n.signal,
           detail = n.detail::json
      FROM failed AS n
     WHERE f.task_id = ANY(ARRAY(SELECT task_id FROM failed WHERE termination_limit IS NOT NULL AND crashes > 1))
       AND f.task_id = n.task_id AND f.kind = 'terminated'
       AND f.attempt = (SELECT max(l.attempt) FROM task_failures AS l WHERE l.task_id = n.task_id)
    RETURNING f.task_id
), failures AS (
    INSERT INTO task_failures (task_id, group_id, attempt, manager_id, kind, exit_code, signal, detail)
    SELECT f.task_id, f.group_id, f.attempt, f.manager_id, f.kind, f.exit_code, f.signal, f.detail::json
      FROM failed AS f
     WHERE NOT EXISTS (SELECT FROM folded AS o WHERE o.task_id = f.task_id)
        ON CONFLICT (task_id, attempt) DO UPDATE
       SET kind = excluded.kind, exit_code = excluded.exit_code, signal = excluded.signal,
           detail = excluded.detail, manager_id = excluded.manager_id
), accepted AS MATERIALIZED (
    SELECT task_id, attempt FROM again UNION ALL SELECT task_id, attempt FROM ended
), sums AS MATERIALIZED (
    SELECT (SELECT count(*) FROM again) AS again, count(*) AS ended,
           count(*) FILTER (WHERE outcome = 'succeeded') AS succeeded,
           count(*) FILTER (WHERE outcome = 'failed') AS failed,
           count(*) FILTER (WHERE outcome = 'cancelled') AS cancelled,
           count(*) FILTER (WHERE outcome <> 'cancelled' AND finished - started BETWEEN 0 AND 1e9) AS runs,
           coalesce(sum(finished - started) FILTER (WHERE outcome <> 'cancelled'
                                                      AND finished - started BETWEEN 0 AND 1e9), 0) AS run_seconds
      FROM ended
), counted AS (
    UPDATE group_live AS v
       SET unfinished = v.unfinished - n.ended, succeeded = v.succeeded + n.succeeded,
           failed = v.failed + n.failed, cancelled = v.cancelled + n.cancelled,
           cancelled_running = v.cancelled_running
                               + CASE WHEN (SELECT manager_id FROM live) IS NULL THEN 0 ELSE n.cancelled END,
           runs = v.runs + n.runs, run_seconds = v.run_seconds + n.run_seconds,
           drain_seq = v.drain_seq + (v.state <> 'open' AND n.ended > 0 AND v.unfinished = n.ended)::int,
           hungry = v.hungry AND n.again = 0, watched = false
      FROM sums AS n
     WHERE v.group_id = (SELECT group_id FROM live) AND (n.ended > 0 OR n.again > 0)
), pokes AS (
    INSERT INTO outbox (kind, subject)
    SELECT 'task_group', g.uuid
      FROM live AS v, task_groups AS g, sums AS n
     WHERE g.id = (SELECT group_id FROM live)
       AND v.state <> 'open' AND n.ended > 0 AND v.unfinished = n.ended
    RETURNING 1
)
SELECT l.state AS lease_state, v.group_id AS group_number, v.manager_id AS manager_number,
       (SELECT array_agg(id) FROM failing WHERE recent) AS failed_tasks, n.succeeded > 0 AS succeeded,
       n.succeeded > 0 AND EXISTS (
           SELECT FROM ended AS e
            WHERE e.outcome = 'succeeded'
              AND coalesce(to_timestamp(e.started) > (
                      SELECT max(o.started_at) FROM open_task AS o
                       WHERE o.group_id = v.group_id AND o.state = 5 AND o.avoid = v.manager_id), true)) AS clears,
       EXISTS (SELECT FROM host_failures AS f
                WHERE f.group_id = v.group_id AND f.kind = 'tasks_failed'
                  AND (f.manager_id = v.manager_id OR f.phase IN ('watched', 'suspected'))) AS watched,
       coalesce((SELECT f.failures FROM host_failures AS f
                  WHERE f.group_id = v.group_id AND f.manager_id = v.manager_id AND f.kind = 'tasks_failed'
                    AND f.phase = 'watched'), 0) AS known_failures,
       (SELECT array_agg(task_id) FROM accepted) AS task_ids,
       (SELECT array_agg(attempt) FROM accepted) AS attempts,
       (SELECT json_agg(json_build_object('key', ARRAY[c.task_id, c.attempt], 'count', c.crashes,
                                          'given_up', c.given_up))
          FROM (SELECT task_id, attempt, crashes, false AS given_up FROM again WHERE crash_limit IS NOT NULL OR lost
                UNION ALL SELECT task_id, attempt, crashes, true FROM ended WHERE given_up) AS c) AS crashes,
       CASE WHEN EXISTS (SELECT FROM pokes) THEN pg_notify('mitosis_outbox', '') END AS notified_relay,
       CASE WHEN v.hungry AND n.again > 0 THEN pg_notify('mitosis_wake', v.group_id::text) END AS notified_claims,
       (SELECT count(pg_notify('mitosis_wake', x.named_task_id || '@' || x.n))
          FROM (SELECT g.named_task_id, count(*) AS n FROM again AS g
                 WHERE g.named_task_id IS NOT NULL GROUP BY g.named_task_id) AS x) AS notified_services,
       CASE WHEN v.watched AND n.again + n.ended > 0
            THEN pg_notify('mitosis_wake', v.group_id || '!') END AS notified_watchers
  FROM lease AS l LEFT JOIN live AS v ON v.group_id = l.group_id, sums AS n

-- name: stopped
-- Reports of attempts whose tasks were cancelled one by one. The first report ends the order to stop. Of a
-- stopped attempt it adds to the result where it ran, how it ended and what it wrote; the state stays.
WITH obeyed AS (
    DELETE FROM task_stops AS x USING unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS s (id, attempt)
     WHERE x.epoch = %(epoch)s AND x.task_id = s.id AND x.attempt = s.attempt
    RETURNING x.task_id, x.attempt
)
UPDATE task_result AS r
   SET manager_id = l.manager_id, exit_code = s.exit_code, signal = s.signal,
       started_at = to_timestamp(s.started), finished_at = to_timestamp(s.finished), detail = s.detail::json
  FROM obeyed AS o, leases AS l,
       unnest(%(ids)s::bigint[], %(outcomes)b::text[], %(exit_codes)s::int[], %(signals)s::int[],
              %(started)s::float8[], %(finished)s::float8[], %(details)b::text[])
       AS s (id, outcome, exit_code, signal, started, finished, detail)
 WHERE l.epoch = %(epoch)s AND s.id = o.task_id AND s.outcome = 'cancelled' AND s.started IS NOT NULL
   AND r.task_id = o.task_id AND r.attempt = o.attempt AND r.state = 'cancelled'

-- name: why_not
-- Why reports did not count, read after the fact. An attempt that is recorded is a duplicate, unless
-- the recorded end did not come from a host (loss, cancellation of a task that never ran).
SELECT s.id, s.attempt,
       CASE WHEN (r.attempt = s.attempt AND r.kind IS DISTINCT FROM 'host_lost'
                  AND (r.state <> 'cancelled' OR s.outcome = 'cancelled'))
              OR f.kind <> 'host_lost' THEN 'duplicate'
            WHEN t.id IS NOT NULL THEN 'superseded'
            ELSE 'unknown' END AS status
  FROM unnest(%(ids)s::bigint[], %(attempts)s::int[], %(outcomes)b::text[]) AS s (id, attempt, outcome)
  LEFT JOIN task AS t ON t.id = s.id
       AND t.group_id = (SELECT group_id FROM leases WHERE epoch = %(epoch)s)
  LEFT JOIN task_result AS r ON r.task_id = t.id
  LEFT JOIN task_failures AS f ON f.task_id = t.id AND s.attempt BETWEEN coalesce(f.first_attempt, f.attempt) AND f.attempt
