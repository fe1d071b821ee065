"""The tables of the migrations (a test compares both), for statements built from optional filters."""

from sqlalchemy import (
    JSON,
    REAL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Sequence,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.types import UserDefinedType

METADATA = MetaData()
Moment = DateTime(timezone=True)


class TransactionId(UserDefinedType[str]):
    """The number of a transaction, which is never used again."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Return the name of the type."""
        return "xid8"


READY, CLAIMED, BLOCKED, DELAYED, DOUBTED = TASK_STATES = (0, 1, 2, 4, 5)
"""Values of ``open_task.state``; DELAYED until ``not_before``.

BLOCKED: it waits for other tasks (``waits_for``), and may not be claimed.

DOUBTED: its last attempt failed, and its host is under suspicion: the failure is not final yet (C-33).
"""


def _part_of(table: str) -> ForeignKey:
    """Refer to a row whose deletion deletes this one."""
    return ForeignKey(f"{table}.id", ondelete="CASCADE")


Sequence("lease_epoch", metadata=METADATA)
Sequence("task_id", metadata=METADATA)
Sequence("tag_version", metadata=METADATA)

users = Table(
    "users",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("uuid", Uuid, nullable=False, unique=True, server_default=text("gen_random_uuid()")),
    Column("username", Text, nullable=False, unique=True),
    Column("password_hash", Text),
    Column("is_admin", Boolean, nullable=False, server_default=text("false")),
    Column("state", Text, nullable=False, server_default=text("'active'")),
    CheckConstraint("state IN ('active', 'locked', 'deleted')"),
    Column("token_version", Integer, nullable=False, server_default=text("1")),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    Column("tokens_expire_at", Moment, server_default=text("now()")),
)

user_groups = Table(
    "user_groups",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("uuid", Uuid, nullable=False, unique=True, server_default=text("gen_random_uuid()")),
    Column("name", Text, nullable=False, unique=True),
    Column("creator_id", BigInteger, ForeignKey("users.id"), nullable=False),
    Column("state", Text, nullable=False, server_default=text("'active'")),
    CheckConstraint("state IN ('active', 'locked', 'deleted')"),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    Column("keep_seconds", Double),
    CheckConstraint("keep_seconds > 0"),
)

user_group_members = Table(
    "user_group_members",
    METADATA,
    Column(
        "user_group_id",
        BigInteger,
        _part_of("user_groups"),
        nullable=False,
    ),
    Column("user_id", BigInteger, _part_of("users"), nullable=False),
    Column("role", Text, nullable=False),
    CheckConstraint("role IN ('read', 'write', 'admin')"),
    PrimaryKeyConstraint("user_group_id", "user_id"),
    Index("user_group_members_user", "user_id"),
)

managers = Table(
    "managers",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("uuid", Uuid, nullable=False, unique=True, server_default=text("gen_random_uuid()")),
    Column("name", Text, nullable=False),
    Column("creator_id", BigInteger, ForeignKey("users.id"), nullable=False),
    Column("tags", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("labels", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("token_version", Integer, nullable=False, server_default=text("1")),
    Column("draining", Boolean, nullable=False, server_default=text("false")),
    Column("incarnation", BigInteger, nullable=False, server_default=text("0")),
    Column("machine_id", Text),
    Column("boot_id", Text),
    Column("host_name", Text),
    Column("cores", ARRAY(Integer), nullable=False, server_default=text("'{}'")),
    Column("agent_version", Text),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    Column("updated_at", Moment, nullable=False, server_default=text("now()")),
    Column("draining_since", Moment),
    Column("drain_reason", Text),
    Column("deleted_at", Moment),
    Column("tokens_expire_at", Moment, server_default=text("now()")),
    Column("groups_known", Boolean, nullable=False, server_default=text("true")),
    Index("managers_tags", "tags", postgresql_using="gin"),
    Index("managers_kept", "id", postgresql_where=text("deleted_at IS NULL")),
    Index("managers_deleted", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")),
)

manager_live = Table(
    "manager_live",
    METADATA,
    Column(
        "manager_id",
        BigInteger,
        _part_of("managers"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("last_contact_at", Moment),
    Column("contact_since", Moment),
    Column("offline", Boolean, nullable=False, server_default=text("true")),
    Column("report_trouble", Text),
)

former_manager_tags = Table(
    "former_manager_tags",
    METADATA,
    Column("manager_id", BigInteger, _part_of("managers"), nullable=False),
    Column("until_version", BigInteger, nullable=False),
    Column("tags", ARRAY(Text), nullable=False),
    PrimaryKeyConstraint("manager_id", "until_version"),
)

environment_durations = Table(
    "environment_durations",
    METADATA,
    Column("group_id", BigInteger, _part_of("task_groups")),
    Column("manager_id", BigInteger, _part_of("managers")),
    Column("kind", Text, nullable=False),
    CheckConstraint("kind IN ('setup', 'teardown', 'drain', 'kept')"),
    Column("mean_seconds", Double, nullable=False),
    Column("runs", Integer, nullable=False),
    Column("all_runs", BigInteger, nullable=False),
    Column("all_seconds", Double, nullable=False),
    CheckConstraint("group_id IS NOT NULL OR manager_id IS NOT NULL"),
    Index(
        "environment_durations_of",
        "group_id",
        "manager_id",
        "kind",
        unique=True,
        postgresql_nulls_not_distinct=True,
    ),
    Index("environment_durations_by_manager", "manager_id"),
)

user_group_managers = Table(
    "user_group_managers",
    METADATA,
    Column(
        "user_group_id",
        BigInteger,
        _part_of("user_groups"),
        nullable=False,
    ),
    Column("manager_id", BigInteger, _part_of("managers"), nullable=False),
    Column("role", Text, nullable=False),
    CheckConstraint("role IN ('read', 'write', 'admin')"),
    PrimaryKeyConstraint("user_group_id", "manager_id"),
    Index("user_group_managers_manager", "manager_id"),
)

task_groups = Table(
    "task_groups",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("uuid", Uuid, nullable=False, unique=True, server_default=text("gen_random_uuid()")),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False, server_default=text("'managed'")),
    CheckConstraint("kind IN ('managed', 'direct', 'service')"),
    Column("user_group_id", BigInteger, ForeignKey("user_groups.id"), nullable=False),
    Column("creator_id", BigInteger, ForeignKey("users.id"), nullable=False),
    Column("tags", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("labels", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("tag_match", Text, nullable=False, server_default=text("'all'")),
    CheckConstraint("tag_match IN ('all', 'any')"),
    Column("member_tags", ARRAY(Text)),
    Column("member_tag_match", Text),
    CheckConstraint("member_tag_match IN ('all', 'any')"),
    Column(
        "member_version", BigInteger, nullable=False, server_default=text("nextval('tag_version')")
    ),
    Column("priority", Integer, nullable=False, server_default=text("0")),
    Column("worker_allocation_plan", JSONB, nullable=False),
    Column("environment_setup_hook", JSONB),
    Column("environment_teardown_hook", JSONB),
    Column("environment_probe", JSONB),
    Column("auto_close_timeout_seconds", Double),
    CheckConstraint("auto_close_timeout_seconds > 0"),
    Column("close_deadline", Moment),
    Column("max_managers", Integer),
    CheckConstraint("max_managers > 0"),
    Column("assignment_method", Text, nullable=False, server_default=text("'tag_matched'")),
    CheckConstraint("assignment_method IN ('tag_matched', 'user_specified')"),
    Column("reopen_on_submit", Boolean, nullable=False, server_default=text("false")),
    Column("cancel_grace_seconds", Double, nullable=False, server_default=text("30")),
    Column("host_lost_after_seconds", Double),
    CheckConstraint("host_lost_after_seconds >= 10"),
    Column("fence", Text, nullable=False, server_default=text("'finish'")),
    CheckConstraint("fence IN ('finish', 'kill')"),
    Column("preference_seconds", Double),
    CheckConstraint("preference_seconds >= 0"),
    Column("on_setup_failure", Text, nullable=False, server_default=text("'end_when_closed'")),
    CheckConstraint("on_setup_failure IN ('end_when_closed', 'end', 'wait')"),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    Column("updated_at", Moment, nullable=False, server_default=text("now()")),
    UniqueConstraint("user_group_id", "name"),
    Index("task_groups_newest", "user_group_id", text("(-id)")),
    Index("task_groups_tags", "tags", postgresql_using="gin"),
    Index("task_groups_labels", "labels", postgresql_using="gin"),
    Index(
        "task_groups_direct", "user_group_id", unique=True, postgresql_where=text("kind = 'direct'")
    ),
)

manager_config = Table(
    "manager_config",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("task_group_id", BigInteger, _part_of("task_groups"), nullable=False, unique=True),
    Column("lease_duration_seconds", Double, server_default=text("3600")),
    Column("longest_lease_seconds", Double),
    Column("idle_threshold_seconds", Double, server_default=text("300")),
    Column("longest_idle_seconds", Double),
    Column("preemption_grace_seconds", Double),
    Column("updated_at", Moment, nullable=False, server_default=text("now()")),
)

task_group_managers = Table(
    "task_group_managers",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column(
        "task_group_id",
        BigInteger,
        _part_of("task_groups"),
        nullable=False,
    ),
    Column("manager_id", BigInteger, _part_of("managers"), nullable=False),
    Column("assignment_method", Text, nullable=False),
    CheckConstraint("assignment_method IN ('tag_matched', 'user_specified', 'removed')"),
    Column("matched_tags", ARRAY(Text)),
    Column("added_at", Moment, nullable=False, server_default=text("now()")),
    Column("added_by_user_id", BigInteger, ForeignKey("users.id")),
    UniqueConstraint("task_group_id", "manager_id"),
    Index("idx_task_group_managers_task_group", "task_group_id"),
    Index("idx_task_group_managers_manager", "manager_id"),
)

group_hosts = Table(
    "group_hosts",
    METADATA,
    Column("group_id", BigInteger, _part_of("task_groups"), nullable=False),
    Column("manager_id", BigInteger, _part_of("managers"), nullable=False),
    PrimaryKeyConstraint("manager_id", "group_id"),
    Index("group_hosts_by_group", "group_id"),
)

task_group_templates = Table(
    "task_group_templates",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("uuid", Uuid, nullable=False, unique=True, server_default=text("gen_random_uuid()")),
    Column("user_group_id", BigInteger, ForeignKey("user_groups.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("creator_id", BigInteger, ForeignKey("users.id"), nullable=False),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    Column("updated_at", Moment, nullable=False, server_default=text("now()")),
    UniqueConstraint("user_group_id", "name"),
)

jobs = Table(
    "jobs",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("uuid", Uuid, nullable=False, unique=True, server_default=text("gen_random_uuid()")),
    Column("user_group_id", BigInteger, ForeignKey("user_groups.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("latest", Integer, nullable=False, server_default=text("0")),
    UniqueConstraint("user_group_id", "name"),
)

job_versions = Table(
    "job_versions",
    METADATA,
    Column("job_id", BigInteger, _part_of("jobs"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("digest", Text, nullable=False),
    Column("definition", JSON, nullable=False),
    Column("creator_id", BigInteger, ForeignKey("users.id"), nullable=False),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    PrimaryKeyConstraint("job_id", "version"),
)

runs = Table(
    "runs",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("uuid", Uuid, nullable=False, unique=True, server_default=text("gen_random_uuid()")),
    Column("user_group_id", BigInteger, ForeignKey("user_groups.id"), nullable=False),
    Column("creator_id", BigInteger, ForeignKey("users.id"), nullable=False),
    Column("job_id", BigInteger, ForeignKey("jobs.id", ondelete="SET NULL")),
    Column("job_name", Text, nullable=False),
    Column("version", Integer),
    Column("digest", Text, nullable=False),
    Column("definition", JSON, nullable=False),
    Column("parameters", JSON, nullable=False),
    Column("name", Text),
    Column("labels", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("idempotency_key", Text),
    Column("asked", LargeBinary),
    Column("rerun_of", Uuid),
    Column("state", Text, nullable=False, server_default=text("'pending'")),
    CheckConstraint("state IN ('pending', 'running', 'success', 'failed', 'cancelled')"),
    Column("revision", BigInteger, nullable=False, server_default=text("1")),
    Column("due", Boolean, nullable=False, server_default=text("true")),
    Column("max_concurrent", Integer),
    Column("stopped_by", Text),
    CheckConstraint("stopped_by IN ('cancel', 'timeout', 'failures', 'error')"),
    Column("reason", Text),
    Column("skip_cleanup", Boolean, nullable=False, server_default=text("false")),
    Column("grace_seconds", Double),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    Column("started_at", Moment),
    Column("ended_at", Moment),
    Column("deadline", Moment),
    Column("deleting", Boolean, nullable=False, server_default=text("false")),
    Column("schedule_id", BigInteger),
    Column("nominal_time", Moment),
    Column("time_zone", Text),
    CheckConstraint("(ended_at IS NULL) = (state IN ('pending', 'running'))"),
    Index(
        "runs_of_schedule",
        "schedule_id",
        "nominal_time",
        unique=True,
        postgresql_where=text("schedule_id IS NOT NULL"),
    ),
    Index(
        "runs_unfinished_of_schedule",
        "schedule_id",
        postgresql_where=text("schedule_id IS NOT NULL AND ended_at IS NULL"),
    ),
    Index(
        "runs_by_key",
        "user_group_id",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    Index("runs_of_group", "user_group_id", "id"),
    Index(
        "runs_unfinished",
        "user_group_id",
        "job_name",
        "id",
        postgresql_where=text("ended_at IS NULL"),
    ),
    Index("runs_deleting", "id", postgresql_where=text("deleting")),
    Index("runs_of_creator", "creator_id", "id"),
    Index("runs_by_hand", "creator_id", "id", postgresql_where=text("schedule_id IS NULL")),
    Index(
        "runs_by_schedule",
        "schedule_id",
        "id",
        postgresql_where=text("schedule_id IS NOT NULL"),
    ),
    Index("runs_ended", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
)

run_groups = Table(
    "run_groups",
    METADATA,
    Column("run_id", BigInteger, _part_of("runs"), nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("task_group", Uuid, nullable=False),
    Column("standing", Boolean, nullable=False),
    Column("closed", Boolean, nullable=False, server_default=text("false")),
    PrimaryKeyConstraint("run_id", "name", "kind"),
    Index("run_groups_by_task_group", "task_group"),
)

schedules = Table(
    "schedules",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("uuid", Uuid, nullable=False, unique=True, server_default=text("gen_random_uuid()")),
    Column("user_group_id", BigInteger, ForeignKey("user_groups.id"), nullable=False),
    Column("creator_id", BigInteger, ForeignKey("users.id"), nullable=False),
    Column("job_id", BigInteger, ForeignKey("jobs.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Integer),
    Column("accepted_version", Integer),
    Column("parameters", JSON, nullable=False),
    Column("labels", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("timing", JSON, nullable=False),
    Column("time_zone", Text, nullable=False),
    Column("start_at", Moment),
    Column("end_at", Moment),
    Column("overlap", Text, nullable=False),
    CheckConstraint(
        "overlap IN ('skip', 'buffer_one', 'buffer_all', 'cancel_other', 'terminate_other', 'allow_all')"
    ),
    Column("jitter_seconds", Double, nullable=False),
    Column("catch_up_seconds", Double, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("note", Text),
    Column("revision", BigInteger, nullable=False, server_default=text("1")),
    Column("carried_revision", BigInteger, nullable=False, server_default=text("0")),
    Column("problem", Text),
    Column("problem_at", Moment),
    Column("problem_revision", BigInteger),
    Column("refusal", Text),
    Column("refused_at", Moment),
    Column("late_seconds", Double),
    Column("reverted", Text),
    Column("reverted_at", Moment),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    Column("updated_at", Moment, nullable=False, server_default=text("now()")),
    UniqueConstraint("user_group_id", "name"),
    Index("schedules_of_job", "job_id"),
)

schedule_spans = Table(
    "schedule_spans",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("schedule_id", BigInteger, _part_of("schedules"), nullable=False),
    Column("timing", JSON, nullable=False),
    Column("time_zone", Text, nullable=False),
    Column("start_at", Moment),
    Column("end_at", Moment),
    Column("from_at", Moment, nullable=False),
    Column("to_at", Moment),
    Column("next_at", Moment),
    Index("schedule_spans_of", "schedule_id", "id"),
    Index(
        "schedule_spans_open", "schedule_id", unique=True, postgresql_where=text("to_at IS NULL")
    ),
)

schedule_starts = Table(
    "schedule_starts",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("schedule_id", BigInteger, _part_of("schedules"), nullable=False),
    Column("nominal_time", Moment, nullable=False),
    Column("kind", Text, nullable=False),
    CheckConstraint("kind IN ('time', 'trigger', 'backfill', 'temporal')"),
    Column("overlap", Text),
    Column("ended_at", Moment),
    Column("run_id", Uuid),
    Column("reason", Text),
    Column("failures", Integer, nullable=False, server_default=text("0")),
    UniqueConstraint("schedule_id", "nominal_time"),
    CheckConstraint(
        "(ended_at IS NULL AND run_id IS NULL AND reason IS NULL)"
        " OR (ended_at IS NOT NULL AND (run_id IS NULL) <> (reason IS NULL))"
    ),
    Index(
        "schedule_starts_waiting",
        "schedule_id",
        "id",
        postgresql_where=text("ended_at IS NULL"),
    ),
    Index(
        "schedule_starts_without_run",
        "schedule_id",
        "ended_at",
        postgresql_where=text("reason IS NOT NULL"),
    ),
)

run_steps = Table(
    "run_steps",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("run_id", BigInteger, _part_of("runs"), nullable=False),
    Column("name", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("layer", Integer, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'waiting'")),
    CheckConstraint(
        "state IN ('waiting', 'running', 'succeeded', 'failed', 'skipped', 'cancelled')"
    ),
    Column("task_group", Uuid),
    Column("total", Integer),
    Column("created", Integer, nullable=False, server_default=text("0")),
    Column("succeeded", Integer, nullable=False, server_default=text("0")),
    Column("failed", Integer, nullable=False, server_default=text("0")),
    Column("cancelled", Integer, nullable=False, server_default=text("0")),
    Column("stopped_by", Text),
    CheckConstraint("stopped_by IN ('cancel', 'timeout', 'failures', 'error')"),
    Column("reason", Text),
    Column("source", BigInteger, nullable=False, server_default=text("0")),
    Column("reuses", BigInteger, nullable=False, server_default=text("0")),
    Column("taken", Integer, nullable=False, server_default=text("0")),
    Column("taken_from", Uuid),
    Column("started_at", Moment),
    Column("ended_at", Moment),
    Column("deadline", Moment),
    UniqueConstraint("run_id", "name"),
    CheckConstraint("succeeded + failed + cancelled <= created"),
    Index("run_steps_taken", "taken_from", postgresql_where=text("taken_from IS NOT NULL")),
)

step_tasks = Table(
    "step_tasks",
    METADATA,
    Column("step_id", BigInteger, _part_of("run_steps"), nullable=False),
    Column("start", Integer, nullable=False),
    Column("task_ids", ARRAY(BigInteger), nullable=False),
    PrimaryKeyConstraint("step_id", "start"),
)

step_ends = Table(
    "step_ends",
    METADATA,
    Column("step_id", BigInteger, nullable=False),
    Column("task_id", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    CheckConstraint("state IN ('succeeded', 'failed', 'cancelled')"),
    PrimaryKeyConstraint("step_id", "task_id"),
)

group_live = Table(
    "group_live",
    METADATA,
    Column(
        "group_id",
        BigInteger,
        _part_of("task_groups"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("state", Text, nullable=False, server_default=text("'open'")),
    CheckConstraint("state IN ('open', 'closed', 'complete', 'cancelled')"),
    Column("discarding", Boolean, nullable=False, server_default=text("false")),
    Column("kill_running", Boolean, nullable=False, server_default=text("false")),
    Column("grace_seconds", Double),
    Column("reason", Text),
    Column("hungry", Boolean, nullable=False, server_default=text("false")),
    Column("watched", Boolean, nullable=False, server_default=text("false")),
    Column("total", BigInteger, nullable=False, server_default=text("0")),
    Column("unfinished", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("unfinished >= 0"),
    Column("succeeded", BigInteger, nullable=False, server_default=text("0")),
    Column("failed", BigInteger, nullable=False, server_default=text("0")),
    Column("cancelled", BigInteger, nullable=False, server_default=text("0")),
    Column("runs", BigInteger, nullable=False, server_default=text("0")),
    Column("run_seconds", Double, nullable=False, server_default=text("0")),
    Column("drain_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("last_task_submitted_at", Moment),
    Column("opened_at", Moment, nullable=False, server_default=text("now()")),
    Column("closed_at", Moment),
    Column("terminal_at", Moment),
    Column("settled_at", Moment),
    Column("result", Text),
    CheckConstraint(
        "result IN ('success', 'tasks_failed', 'setup_failed', 'teardown_degraded', 'cancelled')"
    ),
    CheckConstraint("total = unfinished + succeeded + failed + cancelled"),
    CheckConstraint("(terminal_at IS NOT NULL) = (state IN ('complete', 'cancelled'))"),
    CheckConstraint("settled_at IS NULL OR state IN ('complete', 'cancelled')"),
    CheckConstraint("(settled_at IS NULL) = (result IS NULL)"),
    Index("group_live_unsettled", "group_id", postgresql_where=text("settled_at IS NULL")),
    Column("delete_when_settled", Boolean, nullable=False, server_default=text("false")),
    Column("setup_failed", Boolean, nullable=False, server_default=text("false")),
    Index("group_live_deleting", "group_id", postgresql_where=text("delete_when_settled")),
    Column("cancelled_before", BigInteger),
    Column("cancelled_running", BigInteger, nullable=False, server_default=text("0")),
    Index("group_live_newest", "state", text("(-group_id)")),
    Column("bookkeeping_deleted", Boolean, nullable=False, server_default=text("false")),
    Index(
        "group_live_bookkeeping",
        "settled_at",
        postgresql_where=text("settled_at IS NOT NULL AND NOT bookkeeping_deleted"),
    ),
    Index("group_live_settled", "settled_at", postgresql_where=text("settled_at IS NOT NULL")),
)

deleted_groups = Table(
    "deleted_groups",
    METADATA,
    Column("group_id", BigInteger, primary_key=True, autoincrement=False),
    Column("uuid", Uuid, nullable=False),
    Column("cancel_grace_seconds", Double, nullable=False),
    Column("step", SmallInteger, nullable=False, server_default=text("0")),
    Column("position", BigInteger, nullable=False, server_default=text("0")),
    Column("deleted_at", Moment, nullable=False, server_default=text("now()")),
    Column("finished_at", Moment),
    Index("deleted_groups_unfinished", "group_id", postgresql_where=text("finished_at IS NULL")),
    Index(
        "deleted_groups_finished",
        "finished_at",
        postgresql_where=text("finished_at IS NOT NULL"),
    ),
)

deleted_group_days = Table(
    "deleted_group_days",
    METADATA,
    Column("day", Date, primary_key=True),
    Column("user_group_id", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, primary_key=True),
    Column("result", Text, primary_key=True),
    Column("groups", BigInteger, nullable=False),
    Column("tasks", BigInteger, nullable=False),
    Column("succeeded", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("cancelled", BigInteger, nullable=False),
    Column("group_seconds", Double, nullable=False),
    Column("run_seconds", Double, nullable=False),
)

retention = Table(
    "retention",
    METADATA,
    Column("kind", Text, primary_key=True),
    Column("next_at", Moment, nullable=False, server_default=text("now()")),
    Column("seen_to", Moment),
    Column("pass_deleted", BigInteger, nullable=False, server_default=text("0")),
    Column("deleted", BigInteger, nullable=False, server_default=text("0")),
    Column("kept_seconds", Double),
    Column("finished_at", Moment),
)

leases = Table(
    "leases",
    METADATA,
    Column(
        "epoch",
        BigInteger,
        primary_key=True,
        server_default=text("nextval('lease_epoch')"),
        autoincrement=False,
    ),
    Column("kind", Text, nullable=False, server_default=text("'manager'")),
    CheckConstraint("kind IN ('manager', 'worker')"),
    Column("group_id", BigInteger, nullable=False),
    Column("manager_id", BigInteger, _part_of("managers")),
    Column("worker_uuid", Uuid),
    Column("worker_tags", ARRAY(Text)),
    Column("state", Text, nullable=False, server_default=text("'offered'")),
    CheckConstraint("state IN ('offered', 'active', 'ending', 'ended')"),
    Column("acked_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("alive_until", Moment),
    Column("affinity_until", Moment),
    Column("offered_at", Moment, nullable=False, server_default=text("now()")),
    Column("taken_at", Moment),
    Column("last_claim_at", Moment),
    Column("busy_at", Moment),
    Column("ended_at", Moment),
    Column("end_reason", Text),
    Column("freed_for", BigInteger),
    Column("draining", Boolean, nullable=False, server_default=text("false")),
    Column("renewed", Boolean, nullable=False, server_default=text("false")),
    Column("idle_until", Moment),
    Column("contested_at", Moment),
    Column("was_idle", Boolean, nullable=False, server_default=text("false")),
    Column("ask_back_at", Moment),
    CheckConstraint("(manager_id IS NOT NULL) = (kind = 'manager')"),
    CheckConstraint("(worker_uuid IS NOT NULL) = (kind = 'worker')"),
    CheckConstraint("(state = 'ended') = (ended_at IS NOT NULL)"),
    CheckConstraint(
        "kind = 'worker' OR state NOT IN ('active', 'ending') OR alive_until IS NOT NULL"
    ),
    Index(
        "leases_one_per_manager",
        "manager_id",
        unique=True,
        postgresql_where=text("kind = 'manager' AND state <> 'ended'"),
    ),
    Index(
        "leases_one_per_worker_and_group",
        "worker_uuid",
        "group_id",
        unique=True,
        postgresql_where=text("kind = 'worker' AND state <> 'ended'"),
    ),
    Index(
        "leases_of_worker",
        "worker_uuid",
        "group_id",
        "epoch",
        postgresql_where=text("kind = 'worker'"),
    ),
    Index("leases_by_manager", "manager_id", postgresql_where=text("manager_id IS NOT NULL")),
    Index("leases_contested", "contested_at", postgresql_where=text("contested_at IS NOT NULL")),
    Index("leases_ended", "ended_at", postgresql_where=text("state = 'ended'")),
    Index("leases_ended_by_group", "group_id", postgresql_where=text("state = 'ended'")),
    Index("leases_freed_for", "freed_for", postgresql_where=text("freed_for IS NOT NULL")),
    Index("leases_live_by_group", "group_id", postgresql_where=text("state <> 'ended'")),
    Index(
        "leases_alive_until", "alive_until", postgresql_where=text("state IN ('active', 'ending')")
    ),
)

scheduling_decisions = Table(
    "scheduling_decisions",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("decided_at", Moment, nullable=False, server_default=text("now()")),
    Column("inputs", LargeBinary, nullable=False),
)

hostless_groups = Table(
    "hostless_groups",
    METADATA,
    Column("group_id", BigInteger, primary_key=True, autoincrement=False),
    Column("since", Moment, nullable=False, server_default=text("now()")),
)

fleet_changes = Table(
    "fleet_changes",
    METADATA,
    Column("xid", TransactionId(), nullable=False, server_default=text("pg_current_xact_id()")),
    Column("manager_id", BigInteger),
    Column("group_id", BigInteger),
    Column("changed_at", Moment, nullable=False, server_default=text("now()")),
    Index("fleet_changes_xid", "xid"),
)

environments = Table(
    "environments",
    METADATA,
    Column("manager_id", BigInteger, _part_of("managers"), nullable=False),
    Column("group_id", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    CheckConstraint("state IN ('preparing', 'ready', 'tearing_down', 'gone', 'owed')"),
    Column("fingerprint", Text, nullable=False),
    Column("epoch", BigInteger),
    Column("machine_id", Text),
    Column("boot_id", Text),
    Column("degraded", Boolean, nullable=False, server_default=text("false")),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    Column("changed_at", Moment, nullable=False, server_default=text("now()")),
    Column("task_group_uuid", Uuid),
    Column("task_group_name", Text),
    Column("group_name", Text),
    Column("worker_count", Integer),
    Column("teardown_hook", JSONB),
    PrimaryKeyConstraint("manager_id", "group_id"),
    Index("environments_by_group", "group_id", postgresql_where=text("state <> 'gone'")),
    Index("environments_gone", "changed_at", postgresql_where=text("state = 'gone'")),
    Index("environments_by_manager", "manager_id", postgresql_where=text("state <> 'gone'")),
)

hook_runs = Table(
    "hook_runs",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("manager_id", BigInteger, _part_of("managers"), nullable=False),
    Column("group_id", BigInteger, nullable=False),
    Column("epoch", BigInteger),
    Column("kind", Text, nullable=False),
    CheckConstraint("kind IN ('setup', 'teardown')"),
    Column("state", Text, nullable=False),
    CheckConstraint("state IN ('waiting', 'running', 'succeeded', 'failed')"),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("message", Text),
    Column("stdout_tail", Text),
    Column("stderr_tail", Text),
    Column("retry_count", Integer, nullable=False, server_default=text("0")),
    Column("started_at", Moment, nullable=False, server_default=text("now()")),
    Column("finished_at", Moment),
    Index("hook_runs_started", "started_at"),
    Index("hook_runs_latest", "group_id", "started_at"),
    Index("hook_runs_by_group", "group_id", "manager_id", "kind"),
    Index("hook_runs_by_manager", "manager_id"),
)

host_failures = Table(
    "host_failures",
    METADATA,
    Column("group_id", BigInteger, _part_of("task_groups"), nullable=False),
    Column("manager_id", BigInteger, _part_of("managers"), nullable=False),
    Column("kind", Text, nullable=False),
    CheckConstraint(
        "kind IN ('setup_failed', 'unreachable', 'workers_not_started', 'no_progress',"
        " 'tasks_failed')"
    ),
    Column("phase", Text),
    CheckConstraint("phase IN ('watched', 'suspected', 'excused', 'cleared', 'quarantined')"),
    Column("failures", Integer, nullable=False, server_default=text("1")),
    Column("reason", Text, nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("hook", Text, nullable=False),
    Column("next_at", Moment),
    Column("tasks", ARRAY(BigInteger), nullable=False, server_default=text("'{}'")),
    Column("failed_at", Moment, nullable=False, server_default=text("now()")),
    PrimaryKeyConstraint("group_id", "manager_id", "kind"),
    CheckConstraint("(phase IS NOT NULL) = (kind = 'tasks_failed')"),
    Index("host_failures_by_manager", "manager_id"),
)

task = Table(
    "task",
    METADATA,
    Column(
        "id",
        BigInteger,
        primary_key=True,
        server_default=text("nextval('task_id')"),
        autoincrement=False,
    ),
    Column("group_id", BigInteger, nullable=False),
    Column("spec", JSON, nullable=False),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    Index("task_by_group", "group_id", "id"),
)

open_task = Table(
    "open_task",
    METADATA,
    Column("group_id", BigInteger, nullable=False),
    Column("id", BigInteger, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("state", SmallInteger, nullable=False, server_default=text("0")),
    CheckConstraint("state IN (0, 1, 2, 4, 5)"),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("epoch", BigInteger),
    Column("claim_seq", BigInteger),
    Column("started_at", Moment),
    Column("not_before", Moment),
    Column("exit_failures", SmallInteger, nullable=False, server_default=text("0")),
    Column("crash_failures", SmallInteger, nullable=False, server_default=text("0")),
    Column("lost_count", SmallInteger, nullable=False, server_default=text("0")),
    Column("spent", Boolean, nullable=False, server_default=text("false")),
    Column("max_attempts", SmallInteger, nullable=False, server_default=text("1")),
    Column("retry_delay_seconds", REAL, nullable=False, server_default=text("0")),
    Column("retry_exit_codes", ARRAY(Integer)),
    Column("dedup_key", Text),
    Column("avoid", BigInteger),
    Column("announce", Boolean, nullable=False, server_default=text("false")),
    Column("terminations", SmallInteger, nullable=False, server_default=text("0")),
    Column("claimed_by", BigInteger),
    Column("named_task_id", BigInteger),
    Column("waits_for", Integer),
    Column("has_children", Boolean),
    Column("step_id", BigInteger),
    PrimaryKeyConstraint("group_id", "id"),
    CheckConstraint("state <> 2 OR waits_for > 0"),
    CheckConstraint("(state = 1) = (epoch IS NOT NULL)"),
    CheckConstraint("(state = 1) = (claim_seq IS NOT NULL)"),
    CheckConstraint("(state = 4) = (not_before IS NOT NULL)"),
    CheckConstraint("NOT (spent AND state = 1)"),
    Index(
        "open_task_ready",
        "group_id",
        text("priority DESC"),
        "id",
        postgresql_where=text("state = 0"),
    ),
    Index("open_task_claimed", "group_id", "epoch", postgresql_where=text("state = 1")),
    Index("open_task_by_time", "group_id", "not_before", "id", postgresql_where=text("state = 4")),
    Index(
        "open_task_requeued",
        "group_id",
        "claimed_by",
        postgresql_where=text("claimed_by IS NOT NULL"),
    ),
    Index("open_task_doubted", "group_id", "avoid", postgresql_where=text("state = 5")),
    Index(
        "open_task_named",
        "named_task_id",
        "group_id",
        text("priority DESC"),
        "id",
        postgresql_where=text("state = 0 AND named_task_id IS NOT NULL"),
    ),
    Index(
        "open_task_named_delayed",
        "named_task_id",
        "not_before",
        postgresql_where=text("state = 4 AND named_task_id IS NOT NULL"),
    ),
    Index(
        "open_task_dedup",
        "group_id",
        "dedup_key",
        unique=True,
        postgresql_where=text("dedup_key IS NOT NULL"),
    ),
)

task_edges = Table(
    "task_edges",
    METADATA,
    Column("parent", BigInteger, nullable=False),
    Column("child", BigInteger, nullable=False),
    Column("child_group_id", BigInteger, nullable=False),
    PrimaryKeyConstraint("parent", "child_group_id", "child"),
    Index("task_edges_by_child", "child"),
)

task_parents = Table(
    "task_parents",
    METADATA,
    Column("parent", BigInteger, nullable=False),
    Column("child_group_id", BigInteger, nullable=False),
    Column("outcome", Text),
    CheckConstraint("outcome IN ('succeeded', 'failed', 'cancelled')"),
    Column("resolved_up_to", BigInteger, nullable=False, server_default=text("0")),
    PrimaryKeyConstraint("parent", "child_group_id"),
    Index(
        "task_parents_due",
        "child_group_id",
        "parent",
        postgresql_where=text("outcome IS NOT NULL"),
    ),
    Index("task_parents_by_group", "child_group_id"),
)

task_result = Table(
    "task_result",
    METADATA,
    Column("task_id", BigInteger, primary_key=True, autoincrement=False),
    Column("group_id", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    CheckConstraint("state IN ('succeeded', 'failed', 'cancelled')"),
    Column("attempt", Integer, nullable=False),
    Column("manager_id", BigInteger),
    Column("kind", Text),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("started_at", Moment),
    Column("finished_at", Moment),
    Column("recorded_at", Moment, nullable=False, server_default=text("now()")),
    Column("detail", JSON),
    Index("task_result_by_group", "group_id", "state", "task_id"),
    Index("task_result_in_order", "group_id", "seq", unique=True),
)

task_failures = Table(
    "task_failures",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("task_id", BigInteger, nullable=False),
    Column("group_id", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("manager_id", BigInteger),
    Column("kind", Text, nullable=False),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("detail", JSON),
    Column("failed_at", Moment, nullable=False, server_default=text("now()")),
    Column("first_attempt", Integer),
    Column("failure_count", Integer, nullable=False, server_default=text("1")),
    Column("forgiven", Boolean, nullable=False, server_default=text("false")),
    UniqueConstraint("task_id", "attempt"),
    Index("task_failures_by_group", "group_id", "task_id"),
)

task_stops = Table(
    "task_stops",
    METADATA,
    Column("epoch", BigInteger, nullable=False),
    Column("task_id", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("grace_seconds", Double, nullable=False),
    Column("reason", Text, nullable=False),
    PrimaryKeyConstraint("epoch", "task_id", "attempt"),
)

submission = Table(
    "submission",
    METADATA,
    Column("group_id", BigInteger, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("part", Integer, nullable=False, server_default=text("0")),
    Column("digest", LargeBinary, nullable=False),
    Column("task_ids", ARRAY(BigInteger), nullable=False),
    Column("created", Integer, nullable=False),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    PrimaryKeyConstraint("group_id", "idempotency_key", "part"),
)

task_retries = Table(
    "task_retries",
    METADATA,
    Column("group_id", BigInteger, nullable=False),
    Column("task_id", BigInteger, primary_key=True, autoincrement=False),
    Column("new_task_id", BigInteger, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Index("task_retries_by_group", "group_id"),
)

outbox = Table(
    "outbox",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("kind", Text, nullable=False),
    CheckConstraint("kind IN ('task_group', 'manager', 'scheduler', 'run', 'schedule')"),
    Column("subject", Uuid),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("due_at", Moment, nullable=False, server_default=text("now()")),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    CheckConstraint("(subject IS NULL) = (kind = 'scheduler')"),
    Index("outbox_due", "due_at", "id"),
)

output_followers = Table(
    "output_followers",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("group_id", BigInteger, nullable=False),
    Column("task_id", BigInteger),
    Column("until", Moment, nullable=False),
    Column("read_to", BigInteger),
    Index("output_followers_by_group", "group_id"),
    prefixes=["UNLOGGED"],
)

task_output = Table(
    "task_output",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("group_id", BigInteger, nullable=False),
    Column("task_id", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("stream", Text, nullable=False),
    CheckConstraint("stream IN ('stdout', 'stderr')"),
    Column("position", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("written_at", Moment, nullable=False, server_default=text("now()")),
    Column("whole", Boolean, nullable=False, server_default=text("false")),
    Index("task_output_by_group", "group_id", "id"),
    prefixes=["UNLOGGED"],
)

api_pulse = Table(
    "api_pulse",
    METADATA,
    Column("only_row", Boolean, primary_key=True, server_default=text("true")),
    CheckConstraint("only_row"),
    Column("beat_at", Moment, nullable=False),
)

live_processes = Table(
    "live_processes",
    METADATA,
    Column("id", Uuid, primary_key=True),
    Column("kind", Text, nullable=False),
    CheckConstraint("kind IN ('api', 'control')"),
    Column("version", Text, nullable=False),
    Column("host_name", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("knows", JSONB, nullable=False),
    Column("started_at", Moment, nullable=False, server_default=text("now()")),
    Column("beat_at", Moment, nullable=False),
)

named_tasks = Table(
    "named_tasks",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("user_group_id", BigInteger, _part_of("user_groups"), nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    UniqueConstraint("user_group_id", "namespace", "name", "version"),
)

worker_services = Table(
    "worker_services",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("uuid", Uuid, nullable=False, unique=True, server_default=text("gen_random_uuid()")),
    Column("worker_id", Text, nullable=False, unique=True),
    Column("creator_id", BigInteger, ForeignKey("users.id"), nullable=False),
    Column("metadata", JSONB, nullable=False, server_default=text("'{}'")),
    Column("tags", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("labels", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    Column("token_version", Integer, nullable=False, server_default=text("1")),
    Column("incarnation", BigInteger, nullable=False, server_default=text("0")),
    Column("machine_id", Text),
    Column("slots", Integer, nullable=False, server_default=text("1")),
    CheckConstraint("slots > 0"),
    Column("silence_seconds", Double, nullable=False, server_default=text("600")),
    CheckConstraint("silence_seconds >= 10"),
    Column("draining_since", Moment),
    Column("drain_reason", Text),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    Column("updated_at", Moment, nullable=False, server_default=text("now()")),
    Column("tokens_expire_at", Moment, server_default=text("now()")),
    Column("groups_known", Boolean, nullable=False, server_default=text("true")),
    Column("deleted_version", Integer, nullable=False, server_default=text("0")),
    Index("worker_services_tokens", "tokens_expire_at"),
)

group_services = Table(
    "group_services",
    METADATA,
    Column("group_id", BigInteger, _part_of("task_groups"), nullable=False),
    Column("service_id", BigInteger, _part_of("worker_services"), nullable=False),
    PrimaryKeyConstraint("service_id", "group_id"),
    Index("group_services_by_group", "group_id"),
)

user_group_workers = Table(
    "user_group_workers",
    METADATA,
    Column("user_group_id", BigInteger, _part_of("user_groups"), nullable=False),
    Column("service_id", BigInteger, _part_of("worker_services"), nullable=False),
    Column("role", Text, nullable=False),
    CheckConstraint("role IN ('read', 'write', 'admin')"),
    PrimaryKeyConstraint("user_group_id", "service_id"),
    Index("user_group_workers_service", "service_id"),
)

worker_named_tasks = Table(
    "worker_named_tasks",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("service_id", BigInteger, _part_of("worker_services"), nullable=False),
    Column("named_task_id", BigInteger, _part_of("named_tasks"), nullable=False),
    Column("configuration", JSONB, nullable=False, server_default=text("'{}'")),
    Column("configuration_version", Integer, nullable=False, server_default=text("1")),
    Column("priority", Integer, nullable=False, server_default=text("100")),
    Column("max_concurrent", Integer),
    CheckConstraint("max_concurrent > 0"),
    Column("withdrawn_at", Moment),
    Column("created_at", Moment, nullable=False, server_default=text("now()")),
    UniqueConstraint("service_id", "named_task_id"),
    Index(
        "worker_named_tasks_task",
        "named_task_id",
        text("priority DESC"),
        postgresql_where=text("withdrawn_at IS NULL"),
    ),
    Index(
        "worker_named_tasks_withdrawn",
        "withdrawn_at",
        postgresql_where=text("withdrawn_at IS NOT NULL"),
    ),
)

worker_registrations = Table(
    "worker_registrations",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("service_id", BigInteger, _part_of("worker_services"), nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("connection_type", Text, nullable=False),
    CheckConstraint("connection_type IN ('pull', 'tcp', 'unix')"),
    Column("connection_details", JSONB, nullable=False, server_default=text("'{}'")),
    Column("registered_at", Moment, nullable=False, server_default=text("now()")),
    Column("last_heartbeat_at", Moment),
    Column("waiting_until", Moment),
    Column("alive_until", Moment, nullable=False),
    Column("unregistered_at", Moment),
    Column("failure_reason", Text),
    CheckConstraint("unregistered_at IS NOT NULL OR failure_reason IS NULL"),
    Index(
        "worker_registrations_current",
        "service_id",
        unique=True,
        postgresql_where=text("unregistered_at IS NULL"),
    ),
    Index("worker_registrations_history", "service_id", text("id DESC")),
    Index("worker_registrations_began", "registered_at"),
    Index(
        "worker_registrations_ended",
        "unregistered_at",
        postgresql_where=text("unregistered_at IS NOT NULL"),
    ),
)

service_claims = Table(
    "service_claims",
    METADATA,
    Column("task_id", BigInteger, nullable=False, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("service_id", BigInteger, nullable=False),
    Column("configuration_version", Integer, nullable=False),
    Column("claimed_at", Moment, nullable=False, server_default=text("now()")),
    Column("fraction", REAL),
    Column("stage", Text),
    Column("message", Text),
    Column("checkpoint", JSON),
    Column("progress_at", Moment),
    PrimaryKeyConstraint("task_id", "attempt"),
)
