"""Statements that read DAG versions as schedulers need them."""

from __future__ import annotations

import msgspec

from app.store.database import HotConnection


class VersionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A DAG version; ``spec`` is the JSON text of a ``DagSpec``, ``entry`` the pipeline file in its bundle."""

    id: int
    dag_id: str
    bundle_digest: str
    entry: str
    spec: str


async def read_version(hot: HotConnection, *, version_id: int) -> VersionRow | None:
    """One version; it never changes once stored."""
    row = await hot.fetchrow(
        """
        SELECT v.id, v.dag_id, v.bundle_digest, b.entry, v.spec::text AS spec
        FROM dag_version v JOIN bundle b ON b.digest = v.bundle_digest WHERE v.id = $1
        """,
        version_id,
    )
    return VersionRow(**dict(row)) if row is not None else None
