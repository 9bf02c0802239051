"""Who wrote what: a row for each write of each process, by the database role that it has for itself."""

from __future__ import annotations

from collections.abc import Iterable

import asyncpg

from tests.chaos.fleet import Fleet
from tests.chaos.nodes import Node

#: Written only by whoever owns a trigger (or makes runs of what was stored).
WATCHED = ("trigger", "asset_event", "event_body", "event_identity", "source_position", "dead_letter", "demand")
_TABLE = """
CREATE TABLE chaos_audit (
    id bigserial PRIMARY KEY, role name NOT NULL DEFAULT session_user, place name NOT NULL, operation text NOT NULL,
    owner_id bigint, at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_audit (place, operation, owner_id)
    VALUES (TG_TABLE_NAME, TG_OP, (to_jsonb(coalesce(NEW, OLD)) ->> 'owner_id')::bigint);
    RETURN NULL;
END $$;
"""
_TRIGGER = (
    "CREATE TRIGGER chaos_note AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW EXECUTE FUNCTION chaos_note();"
)


async def install(fleet: Fleet) -> None:
    """From now on each write of a row is noted, in the transaction of the write."""
    statements = [_TABLE, *(_TRIGGER.format(name) for name in WATCHED)]
    await fleet.execute("".join(statements))


async def writes_of(fleet: Fleet, node: Node, *, after: int, but_owner: Iterable[int] = ()) -> list[asyncpg.Record]:
    """What a process wrote since a place in the audit, except as one of these (newer) owners."""
    return await fleet.fetch(
        "SELECT place, operation, owner_id, at FROM chaos_audit "
        "WHERE role = $1 AND id > $2 AND NOT coalesce(owner_id = ANY($3), false) ORDER BY id",
        fleet.role(node),
        after,
        list(but_owner),
    )


async def place(fleet: Fleet) -> int:
    """Where the audit is now."""
    return int(await fleet.value("SELECT coalesce(max(id), 0) FROM chaos_audit"))
