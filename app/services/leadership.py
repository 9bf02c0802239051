"""Roles that one process at a time has. A term is fencing: what its holder does in the role repeats it."""

from __future__ import annotations

from app.kernel.settings import Settings
from app.store import leadership as statements
from app.store.database import Database
from app.store.leadership import Term

__all__ = ["HOUSEKEEPING", "Term", "hold"]

#: Ending dead processes, bringing their attempts back, and retention.
HOUSEKEEPING = "housekeeping"


async def hold(
    database: Database, settings: Settings, *, role: str, owner_id: int, known: Term | None = None
) -> Term | None:
    """Renew the term ``known``, or take the role if its holder's process is gone or neglects it; None: another has it.

    Ask at least once in a lease; a take-over is as late as the next question.
    """
    if known is not None and await database.retrying_statement(lambda hot: statements.renew(hot, term=known)):
        return known
    return await database.retrying_statement(
        lambda hot: statements.take_over(hot, role=role, owner_id=owner_id, lease=settings.lease_seconds)
    )
