"""Statements about roles that one process at a time has, for a term."""

from __future__ import annotations

import msgspec

from app.store.database import HotConnection
from app.store.jobs import IS_DEAD
from app.store.tables.processes import JOB_LOCK_SPACE


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """The time for which a process has a role. Whatever it does in that role repeats this."""

    role: str
    owner_id: int
    number: int


#: The holder may be replaced ($1: lease, $2: lock space, $4: who asks): its process ended, or is dead by the rule that
#: ends processes, or it lives but has not renewed its term for a lease, so that it does not do what it is there for; or
#: whoever asks has the role already and does not know (the answer that told it was lost).
_VACANT = f"""
    l.owner_id = $4::bigint
    OR l.renewed_at < clock_timestamp() - make_interval(secs => $1::float8)
    OR EXISTS (SELECT FROM job j WHERE j.id = l.owner_id AND (j.ended_at IS NOT NULL OR {IS_DEAD}))
"""
_TAKE = f"""
INSERT INTO leadership AS l (role, owner_id, term, taken_at, renewed_at)
SELECT $3::text, c.id, 1, clock_timestamp(), clock_timestamp() FROM job c
WHERE c.id = $4::bigint AND c.ended_at IS NULL
  AND NOT EXISTS (SELECT FROM leadership l WHERE l.role = $3::text AND NOT ({_VACANT}))
ON CONFLICT (role) DO UPDATE
SET owner_id = EXCLUDED.owner_id, term = l.term + 1, taken_at = EXCLUDED.taken_at, renewed_at = EXCLUDED.renewed_at
WHERE {_VACANT}
RETURNING term
"""  # noqa: S608 - of fixed parts


async def renew(hot: HotConnection, *, term: Term) -> bool:
    """Renew a term; False: somebody else has the role, or the holder's process is on record as ended."""
    row = await hot.fetchrow(
        """
        UPDATE leadership SET renewed_at = clock_timestamp()
        WHERE role = $1::text AND owner_id = $2::bigint AND term = $3::bigint
          AND EXISTS (SELECT FROM job WHERE id = $2::bigint AND ended_at IS NULL)
        RETURNING 1
        """,
        term.role,
        term.owner_id,
        term.number,
    )
    return row is not None


async def take_over(hot: HotConnection, *, role: str, owner_id: int, lease: float) -> Term | None:
    """Take a role that nobody has, or whose holder is gone; None: somebody has it. ``lease`` is in seconds."""
    number = await hot.fetchval(_TAKE, lease, JOB_LOCK_SPACE, role, owner_id)
    return None if number is None else Term(role=role, owner_id=owner_id, number=number)


async def is_current(hot: HotConnection, *, term: Term) -> bool:
    """Whether a term still lasts."""
    found: bool = await hot.fetchval(
        "SELECT EXISTS (SELECT FROM leadership WHERE role = $1::text AND owner_id = $2::bigint AND term = $3::bigint)",
        term.role,
        term.owner_id,
        term.number,
    )
    return found
