-- The ids of one page of the tasks of a group. No page reads more of its group than it shows, or than %(scan)s rows.

-- name: any
SELECT t.id FROM task AS t WHERE t.group_id = %(group_number)s AND t.id > %(after)s
 ORDER BY t.id LIMIT %(limit)s

-- name: ended
-- The comparison of rows keeps the index of all results by task from being taken for as good.
SELECT r.task_id AS id FROM task_result AS r
 WHERE r.group_id = %(group_number)s AND r.state = %(state)s
   AND (r.group_id, r.state, r.task_id) > (%(group_number)s, %(state)s, %(after)s)
 ORDER BY r.task_id LIMIT %(limit)s

-- name: held
-- All that hosts have claimed, by the index of the claimed ones: without an order there, no other index seems as good.
SELECT h.id
  FROM (SELECT o.id, o.started_at FROM open_task AS o
         WHERE o.group_id = %(group_number)s AND o.state = 1 OFFSET 0) AS h
 WHERE h.id > %(after)s AND (h.started_at IS NOT NULL OR NOT %(running)s)
 ORDER BY h.id LIMIT %(limit)s

-- name: delayed
-- Those that are due first come first.
SELECT o.id, o.not_before FROM open_task AS o
 WHERE o.group_id = %(group_number)s AND o.state = 4 AND o.not_before > now()
   AND (o.not_before, o.id) > (%(after_time)s::timestamptz, %(after)s)
 ORDER BY o.not_before, o.id LIMIT %(limit)s

-- name: unclaimed
-- Ready or blocked ones. Claimed and unstarted tasks count as ready, delayed and due ones as well. A page with fewer
-- rows, but with a place (seen_to), is not the last one: the rows between are in other states.
WITH seen AS MATERIALIZED (
    SELECT o.id, o.state, o.not_before, o.started_at FROM open_task AS o
     WHERE o.group_id = %(group_number)s AND o.id > %(after)s ORDER BY o.id LIMIT %(scan)s
)
SELECT ARRAY(SELECT s.id FROM seen AS s
              WHERE (s.state = 2) = %(blocked)s
                AND (s.state = 4 AND s.not_before > now()) IS NOT TRUE
                AND (s.state = 1 AND s.started_at IS NOT NULL) IS NOT TRUE
              ORDER BY s.id LIMIT %(limit)s) AS ids,
       (SELECT CASE WHEN count(*) = %(scan)s THEN max(s.id) END FROM seen AS s) AS seen_to
