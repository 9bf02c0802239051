"""The deployment's name, after which consumer groups at brokers are named."""

from __future__ import annotations

from app.kernel.ids import short_suffix
from app.store.database import Database
from app.store.deployment import ensure_deployment


async def deployment_name(database: Database) -> str:
    """The name of this deployment, the same for every process on its database; made by whoever asks first."""
    proposed = f"tidegate-{short_suffix()}"
    return await database.retrying_hot(lambda hot: ensure_deployment(hot, name=proposed))
