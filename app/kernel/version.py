"""The version of this program."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def program_version() -> str:
    """The installed version, or that of a bare checkout."""
    try:
        return version("tidegate")
    except PackageNotFoundError:
        return "0+checkout"
