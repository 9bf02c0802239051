"""Statements that say which files of a home are still needed: logs of runs and triggers, folders of code."""

from __future__ import annotations

from collections.abc import Sequence

from app.store.database import HotConnection


async def runs_of(hot: HotConnection, *, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], bool]:
    """Those of the runs ``(dag_id, run_id)`` that exist, and whether each has ended."""
    rows = await hot.fetch(
        """
        SELECT r.dag_id, r.run_id, r.end_date IS NOT NULL
        FROM dag_run r JOIN unnest($1::text[], $2::text[]) AS n(dag_id, run_id) USING (dag_id, run_id)
        """,
        [dag_id for dag_id, _ in names],
        [run_id for _, run_id in names],
    )
    return {(row[0], row[1]): row[2] for row in rows}


async def triggers_of(hot: HotConnection, *, ids: Sequence[int]) -> set[int]:
    """Those of the triggers that exist."""
    rows = await hot.fetch("SELECT id FROM trigger WHERE id = ANY($1::bigint[])", ids)
    return {row[0] for row in rows}


async def bundles_of(hot: HotConnection, *, digests: Sequence[str]) -> set[str]:
    """Those of the bundles that are stored."""
    rows = await hot.fetch("SELECT digest FROM bundle WHERE digest = ANY($1::text[])", digests)
    return {row[0] for row in rows}
