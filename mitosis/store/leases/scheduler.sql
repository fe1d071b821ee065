-- The assignment round. Its advisory lock makes rounds take turns until the transaction ends; other
-- transactions are held off by row locks only.

-- name: lock
-- The transaction gets its number, by which the marks of its own changes are known.
SELECT pg_advisory_xact_lock(hashtext('mitosis.assign_round')), pg_current_xact_id()

-- name: ask_back
-- The grace of leases that have been taken from their groups is over: what has not started is asked back.
WITH ended AS (
    UPDATE leases AS l SET state = 'ending', end_reason = 'moved'
      FROM (SELECT c.epoch FROM leases AS c
             WHERE c.kind = 'manager' AND c.state = 'active' AND c.ask_back_at <= now()
               FOR UPDATE SKIP LOCKED) AS t
     WHERE l.epoch = t.epoch
    RETURNING l.manager_id
)
INSERT INTO outbox (kind, subject)
SELECT 'manager', m.uuid FROM ended AS l JOIN managers AS m ON m.id = l.manager_id

-- name: poke_offered
-- Poke the host of every open offer, including this round's, and each host that has been silent for long
-- enough to be lost; silence means nothing while no API is alive.
INSERT INTO outbox (kind, subject)
SELECT 'manager', m.uuid FROM leases AS l JOIN managers AS m ON m.id = l.manager_id
 WHERE l.kind = 'manager'
   AND (l.state = 'offered'
        OR (l.state IN ('active', 'ending') AND l.alive_until < now()
            AND NOT EXISTS (SELECT FROM api_pulse AS p
                             WHERE p.beat_at < now() - make_interval(secs => %(api_stale_after)s))))

-- name: next_ask_back
-- Seconds until the first grace of a lease that was taken from its group is over.
SELECT extract(epoch FROM min(l.ask_back_at) - now())::float8 AS seconds
  FROM leases AS l WHERE l.kind = 'manager' AND l.state = 'active' AND l.ask_back_at IS NOT NULL

-- name: notify_relay
SELECT pg_notify('mitosis_outbox', '')
