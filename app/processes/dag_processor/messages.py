"""Frames between the dag processor and a loader child: it is ready, one order, one answer."""

from __future__ import annotations

import msgspec

from app.domain.specs import LoadResult


class Load(msgspec.Struct, frozen=True, kw_only=True, tag="load"):
    """Load the pipeline file ``file`` of the folder ``root``.

    After ``patience`` seconds the child writes where it stands to standard error; a little later it is killed.
    ``max_kwargs_bytes`` is the size of the largest arguments of a trigger, encoded.
    """

    root: str
    file: str
    patience: float
    max_kwargs_bytes: int


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The child has started; from now on its time counts."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True, tag="loaded"):
    """What the file declares, or why it does not."""

    result: LoadResult


ToChild = Load
ToParent = Ready | Loaded
