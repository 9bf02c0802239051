"""Statements about XComs: what task instances leave for others of their run."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from app.store.database import HotConnection


class XComRow(msgspec.Struct, frozen=True, kw_only=True):
    """A value a task instance left. ``value`` is the canonical text of ``watchers.encoding``."""

    dag_run_id: int
    task_id: str
    map_index: int
    key: str
    value: str


async def upsert_xcoms(hot: HotConnection, *, rows: Sequence[XComRow]) -> None:
    """Store values; a value of the same key is replaced. No key of an instance may be named twice."""
    await hot.execute(
        """
        INSERT INTO xcom (dag_run_id, task_id, map_index, key, value, "timestamp")
        SELECT x.*, now() FROM unnest($1::bigint[], $2::text[], $3::int[], $4::text[], $5::json[]) AS x
        ON CONFLICT (dag_run_id, task_id, map_index, key)
        DO UPDATE SET value = EXCLUDED.value, "timestamp" = EXCLUDED."timestamp"
        """,
        [row.dag_run_id for row in rows],
        [row.task_id for row in rows],
        [row.map_index for row in rows],
        [row.key for row in rows],
        [row.value for row in rows],
    )


async def read_xcoms(
    hot: HotConnection, *, dag_id: str, run_id: str, task_ids: Sequence[str], key: str, map_index: int | None = None
) -> list[XComRow]:
    """The values of this key that these tasks of a run left (of one mapped instance or all), by task and map index."""
    rows = await hot.fetch(
        """
        SELECT x.dag_run_id, x.task_id, x.map_index, x.key, x.value::text AS value
        FROM xcom x JOIN dag_run r ON r.id = x.dag_run_id
        WHERE r.dag_id = $1 AND r.run_id = $2 AND x.task_id = ANY($3::text[]) AND x.key = $4
          AND ($5::int IS NULL OR x.map_index = $5) ORDER BY x.task_id, x.map_index
        """,
        dag_id,
        run_id,
        task_ids,
        key,
        map_index,
    )
    return [XComRow(**dict(row)) for row in rows]
