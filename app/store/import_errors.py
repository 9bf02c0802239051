"""Statements on the errors of pipeline files."""

from __future__ import annotations

from sqlalchemy import delete, func, or_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.domain.specs import LocatedError
from app.store.tables import import_error


async def upsert_error(connection: AsyncConnection, error: LocatedError) -> bool:
    """Record the error of a file in place of the one before; whether anything changed."""
    row = insert(import_error).values(
        filename=error.file,
        line=error.line,
        message=error.message,
        stack_trace=error.traceback or error.message,
        timestamp=func.now(),
    )
    new = row.excluded
    statement = row.on_conflict_do_update(
        index_elements=[import_error.c.filename],
        set_={"line": new.line, "message": new.message, "stack_trace": new.stack_trace, "timestamp": new.timestamp},
        where=or_(
            import_error.c.line.is_distinct_from(new.line),
            import_error.c.message != new.message,
            import_error.c.stack_trace != new.stack_trace,
        ),
    ).returning(import_error.c.id)
    return (await connection.execute(statement)).first() is not None


async def delete_error(connection: AsyncConnection, file_path: str) -> bool:
    """Forget the error of a file; whether it had one."""
    statement = delete(import_error).where(import_error.c.filename == file_path).returning(import_error.c.id)
    return (await connection.execute(statement)).first() is not None
