"""Statements about the deployment: one row with its name, after which consumer groups are named."""

from __future__ import annotations

from app.store.database import HotConnection


async def ensure_deployment(hot: HotConnection, *, name: str) -> str:
    """Name the deployment if it has no name yet; return the name it has."""
    await hot.execute("INSERT INTO deployment (id, name) VALUES (1, $1) ON CONFLICT (id) DO NOTHING", name)
    found: str = await hot.fetchval("SELECT name FROM deployment WHERE id = 1")
    return found
