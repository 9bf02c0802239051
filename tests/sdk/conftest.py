from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.domain.specs import LoadResult
from app.sdk.loader import LoadedFile, describe, load_pipeline


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    """An empty pipelines folder."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    return folder


@pytest.fixture
def write(pipelines: Path) -> Callable[[str, str], Path]:
    """Write a file of the pipelines folder."""

    def write_file(name: str, text: str) -> Path:
        path = pipelines / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write_file


@pytest.fixture
def load(pipelines: Path) -> Iterator[Callable[[str], LoadedFile]]:
    """Load a file of the pipelines folder; everything is unloaded afterwards."""
    done: list[LoadedFile] = []

    def load_file(name: str) -> LoadedFile:
        loaded = load_pipeline(pipelines, name)
        done.append(loaded)
        return loaded

    yield load_file
    for loaded in reversed(done):
        loaded.unload()


@pytest.fixture
def parse(write: Callable[[str, str], Path], load: Callable[[str], LoadedFile]) -> Callable[[str], LoadResult]:
    """Describe a pipeline file given as text."""

    def parse_text(text: str) -> LoadResult:
        write("pipeline.py", text)
        return describe(load("pipeline.py"))

    return parse_text
