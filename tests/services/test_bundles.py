"""Stored code, and the folders made from it."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from app.domain.bundles import bundle_digest, is_inside
from app.kernel.errors import NotFound
from app.services.bundles import BundleDamaged, materialise, store_bundle
from app.store.database import Database

SOURCES = {"a.py": b"import pkg.b\n", "pkg/__init__.py": b"", "pkg/b.py": b"\0\xff"}


async def store(database: Database, sources: dict[str, bytes] = SOURCES, *, entry: str = "a.py") -> str:
    async with database.transaction() as connection:
        return await store_bundle(connection, sources, entry=entry)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_version_is_stored_once_and_laid_out(database: Database, tmp_path: Path) -> None:
    digest = await store(database)
    assert await store(database) == digest == bundle_digest(SOURCES, entry="a.py")
    assert await store(database, entry="pkg/b.py") != digest
    previous = os.umask(0o077)
    try:
        folder = await materialise(database, digest, tmp_path / "bundles")
    finally:
        os.umask(previous)
    assert contents(folder) == SOURCES
    assert [mode(path) for path in (folder, folder / "pkg", folder / "pkg/b.py")] == [0o755, 0o755, 0o644]


async def test_many_at_once_agree_and_leave_nothing_else(database: Database, tmp_path: Path) -> None:
    digest = await store(database)
    folders = await asyncio.gather(*(materialise(database, digest, tmp_path) for _ in range(12)))
    assert set(folders) == {tmp_path / digest}
    assert names(tmp_path) == [digest]


async def test_unknown_and_damaged_versions_are_refused(database: Database, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await materialise(database, "0" * 64, tmp_path)
    digest = await store(database)
    async with database.transaction() as connection:
        await connection.execute(text("UPDATE bundle_file SET content = 'other' WHERE path = 'a.py'"))
    with pytest.raises(BundleDamaged):
        await materialise(database, digest, tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("path", ["../a.py", "/a.py", "", "a/../../b.py", "a\0.py"])
async def test_paths_outside_the_folder_are_refused(database: Database, path: str) -> None:
    with pytest.raises(ValueError, match="below the pipelines folder"):
        await store(database, {"a.py": b"", path: b""})


@given(st.dictionaries(st.text(min_size=1), st.binary()), st.dictionaries(st.text(min_size=1), st.binary()))
def test_digests_are_equal_exactly_for_equal_sources(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    def usable(sources: dict[str, bytes]) -> dict[str, bytes]:
        return {path: content for path, content in sources.items() if path.isprintable() and is_inside(path)}

    one, other = usable(one), usable(other)
    digest = bundle_digest(one, entry="e")
    assert (digest == bundle_digest(other, entry="e")) == (one == other)
    assert digest == bundle_digest(dict(reversed(one.items())), entry="e") != bundle_digest(one, entry="f")
