"""Code of pipelines: stored once per content, laid out as a folder wherever it has to run."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from app.domain.bundles import bundle_digest, is_inside
from app.kernel.errors import NotFound, TidegateError
from app.store import bundles, versions
from app.store.database import Connection, Database

_FOLDER_MODE = 0o755
_FILE_MODE = 0o644


class BundleDamaged(TidegateError):
    """The stored code {digest} does not have the content its name promises; it is not run. Edit or touch the pipeline
    file so that it is stored again."""


async def store_bundle(connection: Connection, sources: Mapping[str, bytes], *, entry: str) -> str:
    """Store the files of one version of a pipeline file, unless they are there already, and return their digest.

    ``entry`` is the path of the pipeline file among ``sources``. Part of the caller's transaction.
    """
    if entry not in sources:
        raise ValueError(f"the pipeline file {entry!r} is not among its own sources")
    refused = [path for path in sources if not is_inside(path)]
    if refused:
        raise ValueError(f"not below the pipelines folder: {refused[0]!r}")
    digest = bundle_digest(sources, entry=entry)
    if await bundles.insert_bundle(connection, digest, entry=entry):
        await bundles.insert_files(connection, digest, sources)
    return digest


async def current_code(database: Database, *, limit: int) -> list[tuple[str, str]]:
    """Digest and pipeline file of the code that new runs would have, newest first, at most ``limit`` of them."""
    async with database.glance() as hot:
        return await versions.read_current_code(hot, limit=limit)


async def materialise(database: Database, digest: str, root: Path) -> Path:
    """The folder ``root/digest`` with the files of that version, made if it is not there yet.

    A folder under its final name is complete: it is filled under another name and renamed. Any number of processes may
    do this at once. Raises :class:`NotFound` if the version is not stored, :class:`BundleDamaged` if its content does
    not have that digest.
    """
    target = root / digest
    if await asyncio.to_thread(target.is_dir):
        return target
    async with database.transaction() as connection:
        entry = await bundles.read_entry(connection, digest)
        sources = await bundles.read_files(connection, digest)
    if entry is None:
        raise NotFound(what=f"stored code {digest}")
    if bundle_digest(sources, entry=entry) != digest or not all(map(is_inside, sources)):
        raise BundleDamaged(digest=digest)
    await asyncio.to_thread(_lay_out, sources, target)
    return target


def _lay_out(sources: Mapping[str, bytes], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}")
    draft.mkdir()
    try:
        for path, content in sources.items():
            file = draft / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(_FILE_MODE)
        for folder, _, _ in os.walk(draft):
            # Whatever the umask: children may run as another user.
            Path(folder).chmod(_FOLDER_MODE)
        draft.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        # Another process was first with the same content.
    finally:
        shutil.rmtree(draft, ignore_errors=True)
