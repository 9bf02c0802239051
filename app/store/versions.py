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


async def read_current_code(hot: HotConnection, *, limit: int) -> list[tuple[str, str]]:
    """Digest and entry of the code that runs of active, unpaused DAGs would have now, the newest first."""
    rows = await hot.fetch(
        """
        SELECT b.digest, b.entry
        FROM dag d JOIN dag_version v ON v.id = d.current_version_id JOIN bundle b ON b.digest = v.bundle_digest
        WHERE d.is_active AND NOT d.is_paused
        GROUP BY b.digest ORDER BY max(v.id) DESC LIMIT $1
        """,
        limit,
    )
    return [(row[0], row[1]) for row in rows]
