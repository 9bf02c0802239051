"""Statements that remove old rows which nothing refers to: processes, versions, code, errors of files that are gone."""

from __future__ import annotations

from datetime import datetime

from app.domain.retention import Kind
from app.store.dags import DECLARATION_LOCK
from app.store.database import HotConnection

#: Rows (as ``r``) that may go: older than $1 and named by nothing.
_UNUSED = {
    Kind.JOBS: """
        FROM job r
        WHERE r.ended_at < $1::timestamptz
          AND NOT EXISTS (SELECT FROM task_instance t WHERE t.owner_id = r.id)
          AND NOT EXISTS (SELECT FROM trigger t WHERE t.owner_id = r.id)
          AND NOT EXISTS (SELECT FROM leadership l WHERE l.owner_id = r.id)
    """,
    Kind.IMPORT_ERRORS: """
        FROM import_error r
        WHERE r."timestamp" < $1::timestamptz
          AND NOT EXISTS (SELECT FROM dag_file f WHERE f.path = r.filename AND f.missing_since IS NULL)
    """,
    Kind.VERSIONS: """
        FROM dag_version r
        WHERE r.created_at < $1::timestamptz
          AND NOT EXISTS (SELECT FROM dag_run n WHERE n.dag_version_id = r.id)
          AND EXISTS (SELECT FROM dag d JOIN dag_version c ON c.id = d.current_version_id
                      WHERE d.dag_id = r.dag_id AND c.version_number > r.version_number)
    """,
    Kind.BUNDLES: """
        FROM bundle r
        WHERE r.created_at < $1::timestamptz
          AND NOT EXISTS (SELECT FROM dag_version v WHERE v.bundle_digest = r.digest)
          AND NOT EXISTS (SELECT FROM dag_file f WHERE f.bundle_digest = r.digest)
          AND NOT EXISTS (SELECT FROM asset_watcher_source s WHERE s.bundle_digest = r.digest)
          AND NOT EXISTS (SELECT FROM trigger t WHERE t.bundle_digest = r.digest)
    """,
}
_KEYS = {Kind.JOBS: "id", Kind.IMPORT_ERRORS: "id", Kind.VERSIONS: "id", Kind.BUNDLES: "digest"}
_TABLES = {
    Kind.JOBS: "job",
    Kind.IMPORT_ERRORS: "import_error",
    Kind.VERSIONS: "dag_version",
    Kind.BUNDLES: "bundle",
}
UNUSED = frozenset(_UNUSED)


async def try_lock_declarations(hot: HotConnection) -> bool:
    """Keep declarations from naming code and versions while they are removed; False: one is being made right now."""
    held: bool = await hot.fetchval("SELECT pg_try_advisory_xact_lock($1::int, $2::int)", *DECLARATION_LOCK)
    return held


async def count_unused(hot: HotConnection, *, kind: Kind, before: datetime) -> int:
    """How many rows of a kind could go."""
    count: int = await hot.fetchval("SELECT count(*)" + _UNUSED[kind], before)
    return count


async def remove_unused(hot: HotConnection, *, kind: Kind, before: datetime, limit: int) -> int:
    """Delete up to ``limit`` rows of a kind that could go and nobody works on; how many."""
    key = _KEYS[kind]
    status: str = await hot.execute(
        f"DELETE FROM {_TABLES[kind]} WHERE {key} IN (SELECT r.{key} {_UNUSED[kind]} "  # noqa: S608 - of fixed parts
        f"ORDER BY r.{key} LIMIT $2 FOR UPDATE OF r SKIP LOCKED)",
        before,
        limit,
    )
    return int(status.rpartition(" ")[2])
