"""The code of one version of a pipeline file: its files and the digest that names them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import PurePosixPath


def bundle_digest(sources: Mapping[str, bytes], *, entry: str) -> str:
    """SHA-256 (hex) over the path of the pipeline file and all files in order of path.

    ``sources`` maps paths below the pipelines folder to contents. Lengths go in first, so that no two versions read
    alike; the pipeline file is named, because two that import each other consist of the same files.
    """
    digest = hashlib.sha256()
    for part in (entry.encode(), *(part for path in sorted(sources) for part in (path.encode(), sources[path]))):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def is_inside(path: str) -> bool:
    """Whether ``path`` is a relative path that stays below the folder it is joined to."""
    pure = PurePosixPath(path)
    return bool(pure.parts) and not pure.is_absolute() and ".." not in pure.parts and "\0" not in path
