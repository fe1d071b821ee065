"""Every setting of every program, with its default, and the origin of its value.

Order: command line, then environment, then one TOML file, then the default. Only entry points read settings
and pass plain values on. ``Settings()`` reads nothing and has the defaults. Secrets are
:class:`~pydantic.SecretStr` and are shown as stars.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from mitosis.contracts.bounded_files import MOST_DOCUMENT_BYTES, read_bounded
from mitosis.contracts.errors import ConfigurationError
from mitosis.contracts.host_failures import QUARANTINE_AFTER
from mitosis.contracts.lease_settings import (
    DEFAULT_TERMS,
    LONGEST,
    MOVES_PER_HOUR,
    STARVE_AFTER,
    LeaseTerms,
)
from mitosis.contracts.liveness import HOST_LOST_AFTER, SUSPECT_AFTER
from mitosis.contracts.outcome import MAX_TERMINATIONS
from mitosis.contracts.retention import BOOKKEEPING, SHORTEST_BOOKKEEPING, SHORTEST_KEEP
from mitosis.contracts.variables import PREFIX

CONFIG_FILE_VARIABLE = "MITOSIS_CONFIG"

SHORT_NAMES: Mapping[str, str] = {
    "MITOSIS_DATABASE_URL": "database.url",
    "MITOSIS_TEMPORAL_ADDRESS": "temporal.address",
    "MITOSIS_API_URL": "api.url",
    "MITOSIS_TOKEN": "api.token",
    "MITOSIS_TOKEN_FILE": "api.token_file",
}
"""Environment names beside the long ones (``MITOSIS_DATABASE__URL``); the short name wins."""

FORMER_KEYS: Mapping[str, str] = {
    "worker.max_cached_workflows": "control.max_cached_workflows",
    "worker.max_concurrent_activities": "control.max_concurrent_activities",
}
"""Keys of the version before, in the file and as variables: accepted and not shown. The present key wins."""

PROGRAM_VARIABLES: Mapping[str, str] = {
    "MITOSIS_PG_BIN": "Folder of another PostgreSQL's postgres and initdb for the embedded server",
    "MITOSIS_TEMPORAL_BIN": "Another temporal program for the embedded server",
}
"""Read by ``mitosis.embedded`` to find programs; they are not settings."""

LONGEST_KEPT_SECONDS = 100 * 365 * 86_400.0

_CONTRADICTION = "contradiction"
_TLS = ("tls", "tls_certificate_file", "tls_key_file")

Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[float, Field(le=LONGEST_KEPT_SECONDS)]
LeaseSeconds = Annotated[float, Field(ge=0, le=LONGEST.total_seconds())]
"""As long as a task group may set."""
Tasks = Annotated[int, Field(ge=1, le=10**12)]


def _split(value: object) -> object:
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return value


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
"""Separated by commas in the environment."""


class SettingsError(ConfigurationError):
    """A setting is unknown or has no valid value; names the key, its origin and the rule."""

    code = "invalid_settings"


class Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def _contradiction(self, rule: str, *fields: str) -> PydanticCustomError:
        """Return an error that shows the values of these fields; none of them may be secret."""
        values = {name: getattr(self, name) for name in fields}
        return PydanticCustomError(_CONTRADICTION, "{rule}", {"rule": rule, "values": values})


class TemporalSettings(Group):
    """The Temporal server: an address replaces the embedded one."""

    address: str | None = Field(None, description="host:port of a running server; none: embedded")
    namespace: str = Field("mitosis", description="Namespace of our workflows")
    tls: bool = Field(False, description="Use TLS for the address")
    api_key: SecretStr | None = Field(None, description="API key for the address")
    ui_url: str | None = Field(None, description="Address of the Web UI of a running server")
    port: Port | None = Field(
        None, description="Port of the embedded server; none: a free one, kept in the data folder"
    )
    ui_port: Port | None = Field(None, description="Port of the embedded server's Web UI; as port")


class DatabaseSettings(Group):
    """PostgreSQL 15 or newer: a URL replaces the embedded one."""

    url: SecretStr | None = Field(
        None, description="postgresql://user:password@host:port/name; none: embedded"
    )
    direct_url: SecretStr | None = Field(
        None,
        description="Direct URL of the server behind a transaction pooler"
        " (postgresql://…?pgbouncer=1): LISTEN and migrations need a session; none: the URL",
    )
    pool_size: int = Field(10, ge=1, le=1000, description="Connections a process may hold")


class ApiSettings(Group):
    """The HTTP API, and how its clients (CLI, agents) reach it."""

    host: str = Field("127.0.0.1", description="Address the API listens on")
    port: Port | None = Field(
        None, description="Port the API listens on; none: a free one, kept in the data folder"
    )
    url: str | None = Field(
        None,
        description="Where clients find the API, http(s)://… or unix:/…; none: the stack of the data folder",
    )
    token: SecretStr | None = Field(
        None,
        description="Token of clients; none: that of the login, and over a unix socket none is needed",
    )
    token_file: Path | None = Field(
        None, description="File with the token of clients; wins over the token itself"
    )
    max_open_tasks_per_group: Tasks = Field(
        10_000_000,
        description="Limit on unfinished tasks of a task group; more are refused with Retry-After",
    )
    max_open_tasks_per_user: Tasks = Field(
        10_000_000, description="Limit on unfinished tasks in all task groups of one user"
    )
    max_open_tasks: Tasks = Field(
        20_000_000, description="Limit on unfinished tasks in all task groups"
    )
    signing_key_file: Path | None = Field(
        None, description="Ed25519 key (PEM) that signs tokens; none: the one of the data folder"
    )
    tls: Literal["off", "own", "files"] = Field(
        "off",
        description="off: plain HTTP; own: a certificate that an authority in the data folder issues"
        " (api-ca.pem is its certificate, for clients); files: yours",
    )
    tls_names: Words = Field(
        (),
        description="Further names and addresses that clients use, for the certificate of own;"
        " comma-separated in the environment",
    )
    tls_certificate_file: Path | None = Field(
        None, description="PEM: the certificate, then those of its intermediate authorities"
    )
    tls_key_file: Path | None = Field(
        None,
        description="PEM: the key of the certificate, without a password, readable by no others",
    )
    ca_file: Path | None = Field(
        None,
        description="PEM: the certificates that clients trust over https instead of the system's",
    )

    @model_validator(mode="after")
    def _files_of_tls(self) -> "ApiSettings":
        files = (self.tls_certificate_file, self.tls_key_file)
        if self.tls == "files" and None in files:
            raise self._contradiction("with tls = files both files are needed", *_TLS)
        if self.tls != "files" and files != (None, None):
            raise self._contradiction("certificate and key are used with tls = files only", *_TLS)
        return self


class AgentSettings(Group):
    """The manager agent of one host."""

    name: str | None = Field(None, description="Name of the host; none: its host name")
    tags: Words = Field((), description="Tags of the host, comma-separated in the environment")
    labels: Words = Field((), description="Labels of the host, comma-separated in the environment")
    groups: Words = Field(
        (), description="User groups that it works for, as name or name:role; none: your own"
    )
    state_dir: Path | None = Field(
        None, description="Identity, journal and scratch; none: agent/ in the data folder"
    )
    min_free_bytes: int = Field(
        64_000_000,
        ge=0,
        le=10**18,
        description="Claim no tasks while the disk of the state folder has less free space than this",
    )
    drain_seconds: Seconds = Field(
        30.0, ge=0, description="How long running tasks may continue after a stop"
    )
    stop_grace_seconds: Seconds = Field(
        4.0,
        ge=0,
        description="After that time, the longest from SIGTERM to SIGKILL of tasks that still run; "
        "a shorter cancel grace of their group applies",
    )
    stopped_limit_seconds: Seconds = Field(
        30.0,
        ge=1,
        description="A worker with a task that was stopped by a signal (SIGSTOP) for longer is killed; "
        "that is a crash of its task",
    )


class ControlSettings(Group):
    """The control worker: workflows and database activities."""

    max_cached_workflows: int = Field(
        1000, ge=1, le=1_000_000, description="Workflows kept in memory"
    )
    max_concurrent_activities: int = Field(
        50, ge=1, le=100_000, description="Activities at the same time"
    )


class SchedulingSettings(Group):
    """How long hosts stay with task groups; the same for API and control worker.

    A task group may have values of its own.
    """

    lease_duration_seconds: LeaseSeconds = Field(
        DEFAULT_TERMS.lease_duration,
        description="For at least this long a host stays with a task group while others go first",
    )
    longest_lease_seconds: LeaseSeconds = Field(
        DEFAULT_TERMS.longest_lease,
        description="For at most this long, also where setup, teardown and running tasks make a move dear",
    )
    idle_threshold_seconds: LeaseSeconds | None = Field(
        None,
        description="For at least this long a lease without work is safe from other task groups; none:"
        " 180, and 5 in a stack of one machine",
    )
    longest_idle_seconds: LeaseSeconds = Field(
        DEFAULT_TERMS.longest_idle,
        description="For at most this long, also where setup and teardown take longer",
    )
    preemption_grace_seconds: LeaseSeconds = Field(
        DEFAULT_TERMS.preemption_grace,
        description="When another task group takes a host: after so long the tasks that have not started"
        " there are asked back",
    )
    moves_per_hour: int = Field(
        MOVES_PER_HOUR,
        ge=1,
        le=10_000,
        description="At most so many times in an hour a host is taken from one task group for another",
    )
    starve_after_seconds: Seconds = Field(
        STARVE_AFTER.total_seconds(),
        ge=0,
        description="A task group with ready tasks and no host for so long goes before all others until it"
        " has one; 0: never",
    )

    @model_validator(mode="after")
    def _least_and_greatest(self) -> "SchedulingSettings":
        for least, greatest in self.lease_terms(DEFAULT_TERMS.idle_threshold).conflicts():
            names = (f"{least}_seconds", f"{greatest}_seconds")
            raise self._contradiction("the first must be at most the second", *names)
        if 0 < self.starve_after_seconds < self.longest_idle_seconds:
            raise self._contradiction(
                "the first must be at least the second: sooner, a task group would go before all although a"
                " host may be idle for it",
                "starve_after_seconds",
                "longest_idle_seconds",
            )
        return self

    def lease_terms(self, idle_threshold: float) -> LeaseTerms:
        """Return the values; the idle threshold holds unless the settings name one."""
        given = self.idle_threshold_seconds
        return LeaseTerms(
            lease_duration=self.lease_duration_seconds,
            longest_lease=self.longest_lease_seconds,
            idle_threshold=min(idle_threshold, self.longest_idle_seconds)
            if given is None
            else given,
            longest_idle=self.longest_idle_seconds,
            preemption_grace=self.preemption_grace_seconds,
        )


class HostSettings(Group):
    """When a silent host counts as suspect or lost; the same for API and control worker."""

    lost_after_seconds: Seconds = Field(
        HOST_LOST_AFTER.total_seconds(),
        ge=10,
        description="Silence after which a host is lost and its tasks are requeued; a task group may"
        " have its own value",
    )
    suspect_after_seconds: Seconds = Field(
        SUSPECT_AFTER.total_seconds(),
        ge=5,
        description="Silence after which a host is offered no new work",
    )
    quarantine_after: int = Field(
        QUARANTINE_AFTER,
        ge=2,
        le=32,
        description="So many different tasks in a row fail on a host before some are tried elsewhere",
    )


class TaskSettings(Group):
    """What ends a task, where it says nothing itself."""

    max_terminations: int = Field(
        MAX_TERMINATIONS,
        ge=1,
        le=1000,
        description="Deaths of a task by SIGTERM or SIGINT in a row after which it is not tried again",
    )


class RetentionSettings(Group):
    """How long what has ended is kept; read by the control worker."""

    bookkeeping_seconds: float = Field(
        BOOKKEEPING.total_seconds(),
        ge=SHORTEST_BOOKKEEPING.total_seconds(),
        le=LONGEST_KEPT_SECONDS,
        description="Ended leases, hook runs, environments and worker services that are gone,"
        " ended registrations, deleted hosts; failures and idempotency keys of submissions after their"
        " task group has settled",
    )
    task_groups_seconds: float | None = Field(
        None,
        ge=SHORTEST_KEEP.total_seconds(),
        le=LONGEST_KEPT_SECONDS,
        description="Settled task groups, with their tasks and results; none: until they are deleted",
    )


class TelemetrySettings(Group):
    """Logs."""

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Lowest level that is logged"
    )
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="auto: console on a terminal, JSON lines elsewhere"
    )


class Settings(BaseSettings):
    """All settings. Immutable."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    data_dir: Path | None = Field(
        None,
        description="Data folder; none: /var/lib/mitosis for root, else ~/.local/share/mitosis",
    )
    run_dir: Path | None = Field(
        None, description="Short folder for sockets; none: below $XDG_RUNTIME_DIR or /tmp"
    )
    temporal: TemporalSettings = TemporalSettings()
    database: DatabaseSettings = DatabaseSettings()
    api: ApiSettings = ApiSettings()
    agent: AgentSettings = AgentSettings()
    control: ControlSettings = ControlSettings()
    scheduling: SchedulingSettings = SchedulingSettings()
    hosts: HostSettings = HostSettings()
    tasks: TaskSettings = TaskSettings()
    retention: RetentionSettings = RetentionSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the arguments: :func:`load_settings` reads environment and file."""
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and the origin of every value that is not a default."""

    settings: Settings
    origins: Mapping[str, str]

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Return ``(key, value, origin)`` of every setting, secrets as stars."""
        for key, value in flatten(self.settings.model_dump()).items():
            yield key, "" if value is None else str(value), self.origins.get(key, "default")


def default_data_dir(uid: int | None = None, home: Path | None = None) -> Path:
    """Return ``/var/lib/mitosis`` for root, else ``~/.local/share/mitosis`` (or ``$XDG_DATA_HOME``)."""
    if (os.geteuid() if uid is None else uid) == 0:
        return Path("/var/lib/mitosis")
    base = os.environ.get("XDG_DATA_HOME") if home is None else None
    return Path(base or (home or Path.home()) / ".local/share") / "mitosis"


def load_settings(
    overrides: Mapping[str, Any] | None = None, config_file: Path | None = None
) -> Loaded:
    """Read environment and file, and put ``overrides`` (dotted keys, of the command line) first.

    The file is ``config_file``, else ``$MITOSIS_CONFIG``, else ``mitosis/config.toml`` below
    ``$XDG_CONFIG_HOME`` (``~/.config``) or ``/etc`` if there is one.

    Raises:
        SettingsError: an unknown key, an invalid value, or a file that cannot be read.
    """
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    path = config_file or _config_file()
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for found, origin in ((_file(path), f"file {path}"), *_environment(), (given, "command line")):
        values.update(found)
        origins.update(dict.fromkeys(found, origin))
    try:
        return Loaded(Settings(**_nest(values)), origins)
    except ValidationError as error:
        raise SettingsError("; ".join(_explain(error, origins))) from None


def flatten(nested: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return ``{"a": {"b": 1}}`` as ``{"a.b": 1}``."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        name = f"{above}{key}"
        flat.update(flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value})
    return flat


def environment_name(key: str) -> str:
    """Return ``api.port`` as ``MITOSIS_API__PORT``."""
    return PREFIX + key.upper().replace(".", "__")


def _environment() -> Iterator[tuple[dict[str, Any], str]]:
    """Return our variables only: others with our prefix belong to tasks, and are ignored.

    A section has no variable of its own, so ``MITOSIS_API`` is ignored.
    """
    source = EnvSettingsSource(Settings)
    for former, key in FORMER_KEYS.items():
        if value := os.environ.get(environment_name(former)):
            yield {key: value}, environment_name(former)
    groups = {environment_name(name).lower() for name in _groups()}
    source.env_vars = {k: v for k, v in source.env_vars.items() if k not in groups}
    for key, value in flatten(source()).items():
        yield {key: value}, environment_name(key)
    for name, key in SHORT_NAMES.items():
        if value := os.environ.get(name):
            yield {key: value}, name


def _groups() -> list[str]:
    return [key for key, value in Settings().model_dump().items() if isinstance(value, dict)]


def _config_file() -> Path | None:
    if path := os.environ.get(CONFIG_FILE_VARIABLE):
        return Path(path)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    usual = [folder / "mitosis/config.toml" for folder in (home, Path("/etc"))]
    return next((path for path in usual if path.is_file()), None)


def _file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = flatten(tomllib.loads(read_bounded(path, MOST_DOCUMENT_BYTES).decode()))
    except OSError as error:
        raise SettingsError(f"cannot read the settings file {path}: {error.strerror}") from error
    except ValueError as error:  # it is not UTF-8, or not TOML
        raise SettingsError(f"the settings file {path} is not TOML: {error}") from error
    former = {FORMER_KEYS[key]: value for key, value in found.items() if key in FORMER_KEYS}
    return former | {key: value for key, value in found.items() if key not in FORMER_KEYS}


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *groups, leaf = key.split(".")
        place = nested
        for group in groups:
            place = place.setdefault(group, {})
        place[leaf] = value
    return nested


def _explain(error: ValidationError, origins: Mapping[str, str]) -> Iterator[str]:
    for problem in error.errors(include_input=False, include_url=False):
        key = ".".join(str(step) for step in problem["loc"])
        if problem["type"] == _CONTRADICTION:
            yield f"{_values(key, problem['ctx']['values'], origins)}: {problem['msg']}"
            continue
        origin = next((origins[k] for k in origins if key in (k, *_heads(k))), "unknown origin")
        message = "unknown setting" if problem["type"] == "extra_forbidden" else problem["msg"]
        yield f"{key} ({origin}): {message}"


def _values(group: str, values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """Return ``api.tls = off (default), …``."""
    shown = []
    for name, value in values.items():
        key = f"{group}.{name}"
        text = f"{value:g}" if isinstance(value, float) else "none" if value is None else value
        shown.append(f"{key} = {text} ({origins.get(key, 'default')})")
    return ", ".join(shown)


def _heads(key: str) -> list[str]:
    parts = key.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]
