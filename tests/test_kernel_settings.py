"""Settings: read once, located errors, nothing secret shown, the docs in step."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from app.interfaces.cli.running import warn_of_unknown_variables
from app.kernel.errors import SettingsError
from app.kernel.settings import LogLevel, load_settings, secret_variables, settings_table, unknown_variables

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIDEGATE_HOME", "TIDEGATE_API_PORT", "TIDEGATE_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_documentation_is_in_step() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == settings_table(), (
        "run `python -m app.kernel.settings > docs/settings.md`"
    )


def test_defaults_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("TIDEGATE_LOG_LEVEL", "debug")
    monkeypatch.setenv("TIDEGATE_PARALLELISM", "3")
    monkeypatch.setenv("TIDEGATE_ADMIN_PASSWORD", "")
    settings = load_settings()
    assert settings.home == Path("/somewhere/.tidegate")
    assert settings.pipelines_folder == Path("/somewhere/.tidegate/dags")
    assert settings.log_level is LogLevel.DEBUG
    assert settings.parallelism == 3
    assert settings.admin_password is None
    assert settings.lease_seconds == 6


def test_overrides_win_and_none_means_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_API_PORT", "9000")
    assert load_settings(api_port=None).api_port == 9000
    assert load_settings(api_port=9001).api_port == 9001


def test_settings_cannot_change() -> None:
    with pytest.raises(ValidationError):
        load_settings().parallelism = 4  # type: ignore[misc]


def test_each_wrong_variable_is_named_and_no_value_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_API_PORT", "hunter2")
    monkeypatch.setenv("TIDEGATE_DEDUP_RETENTION_DAYS", "1")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "TIDEGATE_API_PORT" in str(caught.value)
    assert "TIDEGATE_DEDUP_RETENTION_DAYS" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_typing_mistake_is_found() -> None:
    environment = {"TIDEGATE_PARALELISM": "3", "TIDEGATE_CONN_AWS": "x", "TIDEGATE_HOME": "/x", "PATH": "/bin"}
    assert unknown_variables(environment) == {"TIDEGATE_PARALELISM": "TIDEGATE_PARALLELISM"}


def test_a_typing_mistake_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PARALELISM", "hunter2")
    monkeypatch.setenv("TIDEGATE_MEMORY_BROKER", "/x")
    with capture_logs() as lines:
        warn_of_unknown_variables()
    said = str(lines)
    assert "there is no setting TIDEGATE_PARALELISM; did you mean TIDEGATE_PARALLELISM?" in said
    assert "hunter2" not in said
    assert "MEMORY" not in said


def test_secrets_are_masked() -> None:
    settings = load_settings(
        database_url="postgresql://me:secret-1@db:5432/tidegate", admin_password="secret-2", token_secret="secret-3"
    )
    shown = settings.shown()
    assert shown["database_url"] == "postgresql://me:***@db:5432/tidegate"
    assert "secret-" not in repr(settings) + str(shown)
    assert secret_variables() == {
        "TIDEGATE_DATABASE_URL",
        "TIDEGATE_ADMIN_PASSWORD",
        "TIDEGATE_ENCRYPTION_KEY",
        "TIDEGATE_TOKEN_SECRET",
    }
