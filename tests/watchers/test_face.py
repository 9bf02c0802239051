from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import watchers
from watchers import errors
from watchers.describe import describe_trigger
from watchers.temporal import DateTimeTrigger
from watchers.watcher import AssetWatcher


def test_the_face_names_what_it_shows_in_order() -> None:
    shown = {name for name, value in vars(watchers).items() if not name.startswith("_") and not inspect.ismodule(value)}
    shown = (shown - {"TYPE_CHECKING", "Any", "annotations"}) | watchers._ON_DEMAND.keys()
    assert set(watchers.__all__) == shown
    assert watchers.__all__ == sorted(watchers.__all__)
    for name in watchers.__all__:
        assert getattr(watchers, name).__name__ == name
    every_error = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert every_error <= set(watchers.__all__)


def test_it_is_cheap_to_import() -> None:
    code = (
        "import sys, watchers, watchers.describe, watchers.bodies, watchers.masking\n"
        "heavy = ('watchfiles', 'jmespath', 'jsonschema', 'importlib.metadata', 'anyio')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.strip() == "[]"


def test_a_plain_trigger_is_refused_with_a_reason(tmp_path: object) -> None:
    moment = watchers.DateTimeTrigger.__new__(DateTimeTrigger)
    with pytest.raises(watchers.WatcherDeclarationError, match="for ever"):
        AssetWatcher("w", moment)  # type: ignore[arg-type]
    with pytest.raises(watchers.WatcherDeclarationError, match="not blank"):
        AssetWatcher(" ", watchers.FileEventTrigger("/x"))
    with pytest.raises(watchers.WatcherDeclarationError, match="is not JMESPath"):
        AssetWatcher("w", watchers.FileEventTrigger("/x"), when="[[")
    assert AssetWatcher("w", watchers.FileEventTrigger("/x"), when="size > `0`").when == "size > `0`"


def test_the_triggers_of_the_face_can_be_described() -> None:
    assert describe_trigger(watchers.FileEventTrigger("/x")).classpath == "watchers.files.FileEventTrigger"
