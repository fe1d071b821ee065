-- Rows in every table, as after long use: one large task group beside many others. :n is the number of tasks.

INSERT INTO users (username) SELECT 'user' || i FROM generate_series(1, 100) AS i;

INSERT INTO user_groups (name, creator_id) SELECT 'user' || i, i FROM generate_series(1, 100) AS i;

INSERT INTO user_group_members SELECT i, i, 'admin' FROM generate_series(1, 100) AS i;

INSERT INTO managers (name, creator_id, tags) SELECT 'host' || i, 1, ARRAY['common', 't' || i % 20] FROM
  generate_series(1, 200) AS i;

INSERT INTO manager_live (manager_id, last_contact_at, offline) SELECT i, now(), i > 150 FROM
  generate_series(1, 200) AS i;

-- Deleted ones were registered before them: their numbers are lower.
INSERT INTO managers (id, name, creator_id, created_at, deleted_at) OVERRIDING SYSTEM VALUE
  SELECT -i, 'left' || i, 1, now() - interval '90 d', now() - make_interval(days => 30, secs => i)
    FROM generate_series(1, :n / 20) AS i;

INSERT INTO user_group_managers SELECT 1 + i % 100, i, 'admin' FROM generate_series(1, 200) AS i;

INSERT INTO task_groups (name, user_group_id, creator_id, worker_allocation_plan, tags, created_at) SELECT 'g'
  || i, 1 + i % 100, 1 + i % 100, '{"worker_count": 1}', ARRAY['t' || i % 20], now() - make_interval(secs =>
  :n - i) FROM generate_series(1, :n / 10) AS i;

INSERT INTO group_live (group_id, state, total, unfinished, terminal_at, settled_at, result) SELECT i,
  CASE WHEN o THEN 'open' ELSE 'complete' END, CASE WHEN o THEN 5 ELSE 0 END, CASE WHEN o THEN 5 ELSE 0 END,
  CASE WHEN NOT o THEN now() END, CASE WHEN NOT o THEN now() END, CASE WHEN NOT o THEN 'success' END
  FROM (SELECT i, i = 1 OR i > :n / 10 - 300 FROM generate_series(1, :n / 10) AS i) AS g (i, o);

INSERT INTO task_group_managers (task_group_id, manager_id, assignment_method, matched_tags) SELECT i, 1 + i %
  200, 'tag_matched', ARRAY['t1'] FROM generate_series(1, :n / 10) AS i;

INSERT INTO manager_config (task_group_id) SELECT i FROM generate_series(1, :n / 10) AS i;

INSERT INTO task (id, group_id, spec) SELECT i, CASE WHEN i % 2 = 0 THEN 1 ELSE 1 + i % (:n / 10) END, '{}'
  FROM generate_series(1, :n) AS i;

INSERT INTO open_task (group_id, id, priority, state, epoch, claim_seq, started_at, not_before, claimed_by)
  SELECT group_id, id, 0, CASE WHEN id % 1000 = 0 THEN 1 WHEN id % 1000 = 2 THEN 4 ELSE 0 END,
  CASE WHEN id % 1000 = 0 THEN 1 + id / 1000 % 200 END, CASE WHEN id % 1000 = 0 THEN 1 END,
  CASE WHEN id % 1000 = 0 THEN now() END, CASE WHEN id % 1000 = 2 THEN now() + interval '1 day' END,
  CASE WHEN id % 1000 = 0 THEN 1 + id / 1000 % 200 END
  FROM task WHERE (group_id = 1 AND id <= :n) OR group_id > :n / 10 - 300;

INSERT INTO task_result (task_id, group_id, seq, state, attempt, manager_id, finished_at)
  SELECT id, group_id, row_number() OVER (PARTITION BY group_id), CASE WHEN id % 50 = 1 THEN 'failed'
  WHEN id % 50 = 3 THEN 'cancelled' ELSE 'succeeded' END, 1, 1 + id % 200, now()
  FROM task WHERE group_id BETWEEN 2 AND :n / 10 - 300;

INSERT INTO task_result (task_id, group_id, seq, state, attempt, manager_id, finished_at)
  SELECT id + :n, group_id, row_number() OVER (), 'succeeded', 1, 1 + id % 200, now() FROM task WHERE group_id = 1;

INSERT INTO leases (group_id, manager_id, state, ended_at, end_reason) SELECT 1 + i % (:n / 10), 1 + i % 200,
  'ended', now() - make_interval(secs => i), 'drained' FROM generate_series(1, :n / 5) AS i;

INSERT INTO leases (group_id, manager_id, state, alive_until, taken_at) SELECT :n / 10 - i, i, 'active', now() +
  interval '1 min', now() FROM generate_series(1, 150) AS i;

INSERT INTO environments (manager_id, group_id, state, fingerprint, epoch) SELECT 1 + i % 200, :n / 10 - i / 200,
  CASE WHEN i <= 300 THEN 'ready' ELSE 'gone' END, 'f', i FROM generate_series(1, :n / 20) AS i;

INSERT INTO hook_runs (manager_id, group_id, kind, state, started_at) SELECT 1 + i % 200, 1 + i % (:n / 10),
  'setup', 'succeeded', now() - make_interval(secs => i) FROM generate_series(1, :n / 5) AS i;

INSERT INTO environment_durations (group_id, manager_id, kind, mean_seconds, runs, all_runs, all_seconds)
  SELECT 1 + i / 2, 1 + i % 200, CASE i % 2 WHEN 0 THEN 'setup' ELSE 'teardown' END, 1, 1, 1, 1 FROM generate_series(1, :n / 20) AS i;

INSERT INTO host_failures (group_id, manager_id, kind, reason, incarnation, hook) SELECT :n / 10 - i, 1 + i % 200,
  'setup_failed', 'r', 1, 'h' FROM generate_series(1, 100) AS i;

INSERT INTO task_failures (task_id, group_id, attempt, manager_id, kind) SELECT id, group_id, 0, 1 + id % 200,
  'exit_code' FROM task WHERE id % 5 < 2;

INSERT INTO submission (group_id, idempotency_key, digest, task_ids, created, created_at) SELECT 1 + i % (:n / 10), 'key' ||
  i, 'd', '{}', 1, now() - make_interval(secs => i) FROM generate_series(1, :n / 5) AS i;

INSERT INTO task_retries (group_id, task_id, new_task_id, idempotency_key) SELECT group_id, task_id, task_id + 1, 'key' FROM
  task_result WHERE task_id % 10 < 2;

INSERT INTO task_edges SELECT id, id + 1, group_id FROM task WHERE id % 8 < 2;

INSERT INTO task_parents (parent, child_group_id) SELECT id, group_id FROM task WHERE id % 8 < 2;

INSERT INTO task_output (group_id, task_id, attempt, stream, position, data, written_at) SELECT group_id, id,
  1, 'stdout', 0, 'd', now() FROM task WHERE id <= 1000;

INSERT INTO fleet_changes (manager_id) SELECT 1 + i % 200 FROM generate_series(1, :n / 50) AS i;

INSERT INTO scheduling_decisions (inputs) SELECT 'd' FROM generate_series(1, 2000) AS i;

INSERT INTO jobs (user_group_id, name) SELECT 1 + i % 100, 'j' || i FROM generate_series(1, 1000) AS i;

INSERT INTO job_versions (job_id, version, digest, definition, creator_id) SELECT i, 1, 'd', '{}', 1 FROM
  generate_series(1, 1000) AS i;

INSERT INTO runs (user_group_id, creator_id, job_id, job_name, version, digest, definition, parameters, state,
  created_at, ended_at) SELECT 1 + i % 100, 1, 1 + i % 1000, 'j', 1, 'd', '{}', '{}', CASE WHEN i <= 500 THEN
  'running' ELSE 'success' END, now() - make_interval(secs => i), CASE WHEN i > 500 THEN now() END FROM
  generate_series(1, :n / 20) AS i;

INSERT INTO run_groups SELECT id, 'group', 'host', gen_random_uuid(), false, true FROM runs;

INSERT INTO run_steps (run_id, name, position, layer, state, task_group) SELECT r.id, 's' || i, i, i, CASE r.state WHEN 'success' THEN 'succeeded' ELSE 'running' END,
  gen_random_uuid() FROM runs AS r, generate_series(0, 2) AS i;

INSERT INTO step_tasks SELECT id, 0, ARRAY[id] FROM run_steps;

INSERT INTO step_ends SELECT i / 10 + 1, i, 'succeeded' FROM generate_series(1, :n / 5) AS i;

INSERT INTO schedules (user_group_id, creator_id, job_id, name, parameters, timing, time_zone, overlap,
  jitter_seconds, catch_up_seconds, paused) SELECT 1 + i % 100, 1, i, 's' || i, '{}', '{}', 'UTC', 'skip', 0,
  60, false FROM generate_series(1, 1000) AS i;

INSERT INTO schedule_spans (schedule_id, timing, time_zone, from_at, next_at) SELECT i, '{}', 'UTC', now(),
  now() + interval '1 h' FROM generate_series(1, 1000) AS i;

INSERT INTO schedule_starts (schedule_id, nominal_time, kind, ended_at, reason) SELECT 1 + i % 1000, now() -
  make_interval(secs => i), 'time', now(), 'skipped' FROM generate_series(1, :n / 10) AS i;

INSERT INTO task_group_templates (user_group_id, name, spec, creator_id) SELECT 1 + i % 100, 't' || i, '{}', 1
  FROM generate_series(1, 1000) AS i;

INSERT INTO named_tasks (user_group_id, namespace, name, version) SELECT 1 + i % 100, 'n', 't' || i, '1' FROM
  generate_series(1, 500) AS i;

INSERT INTO worker_services (worker_id, creator_id) SELECT 'w' || i, 1 FROM generate_series(1, 200) AS i;

INSERT INTO user_group_workers SELECT 1 + i % 100, i, 'admin' FROM generate_series(1, 200) AS i;

INSERT INTO worker_named_tasks (service_id, named_task_id) SELECT 1 + i % 200, 1 + i / 200 FROM
  generate_series(0, 1999) AS i;

INSERT INTO worker_registrations (service_id, incarnation, connection_type, registered_at, alive_until, unregistered_at)
  SELECT 1 + i % 200, i, 'pull', now() - make_interval(secs => 20 * i), now(),
  CASE WHEN i > 200 THEN now() - make_interval(secs => 20 * i - 1) END FROM generate_series(1, :n / 10) AS i;

-- Services that never came back: numbers below those of the others, as they registered before them.
INSERT INTO worker_services (id, worker_id, creator_id, tokens_expire_at) OVERRIDING SYSTEM VALUE
  SELECT -i, 'pod' || i, 1, now() - make_interval(days => 1, secs => i) FROM generate_series(1, :n / 20) AS i;

INSERT INTO user_group_workers SELECT 1 + i % 100, -i, 'write' FROM generate_series(1, :n / 20) AS i;

INSERT INTO worker_named_tasks (service_id, named_task_id, withdrawn_at) SELECT -i, 1 + j,
  CASE WHEN j > 4 THEN now() - make_interval(days => 30, secs => i) END
  FROM generate_series(1, :n / 20) AS i, generate_series(0, 5) AS j;

INSERT INTO worker_registrations (service_id, incarnation, connection_type, registered_at, alive_until,
  unregistered_at) SELECT -i, 1, 'pull', now() - make_interval(days => 31, secs => i), now(),
  now() - make_interval(days => 30, secs => i) FROM generate_series(1, :n / 20) AS i;

INSERT INTO group_services (group_id, service_id) SELECT i, -1 - i % (:n / 20) FROM generate_series(1, :n / 10) AS i;

INSERT INTO service_claims (task_id, attempt, service_id, configuration_version, claimed_at) SELECT i, 1, 1 +
  i % 200, 1, now() FROM generate_series(1, :n / 20) AS i;

INSERT INTO group_hosts (group_id, manager_id) SELECT i, -1 - i % (:n / 20) FROM generate_series(1, :n / 10) AS i;

INSERT INTO deleted_groups (group_id, uuid, cancel_grace_seconds, finished_at) SELECT 10000000 + i,
  gen_random_uuid(), 1, now() FROM generate_series(1, :n / 20) AS i;

INSERT INTO deleted_group_days SELECT current_date - i, 1 + i % 100, 'host', 'success', 1, 1, 1, 1, 1, 1, 1
  FROM generate_series(1, :n / 50) AS i;

INSERT INTO outbox (kind, subject) SELECT 'task_group', gen_random_uuid() FROM generate_series(1, 100) AS i;
