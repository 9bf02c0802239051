"""`tidegate dead-letters`: messages that could not become events."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.domain.states import DeadLetterState
from app.interfaces.cli.context import Session, every_row, with_session
from app.interfaces.cli.output import Format, show_details, show_rows
from app.interfaces.cli.values import json_text, moment
from app.kernel.errors import RequestRefused

if TYPE_CHECKING:
    from app.store.listings.dead_letters import LetterFilter

commands = typer.Typer(
    help="Dead letters: messages that could not become events. Look, requeue, delete.", no_args_is_help=True
)

LARGEST_ID = 2**63 - 1
Output = Annotated[Format, typer.Option("--output", "-o", help="How to print.")]
Ids = Annotated[list[int] | None, typer.Argument(metavar="ID", min=0, max=LARGEST_ID, help="Letters by their id.")]
TriggerId = Annotated[int | None, typer.Option("--trigger-id", min=0, max=LARGEST_ID, help="Only of this trigger.")]
AssetName = Annotated[str | None, typer.Option("--asset", metavar="NAME", help="Only refused by this asset.")]
Code = Annotated[str | None, typer.Option(help="Only with this code, such as schema, size or nan.")]
Source = Annotated[str | None, typer.Option(help="Only from this source.")]
Before = Annotated[datetime | None, typer.Option(parser=moment, metavar="MOMENT", help="Only made before this moment.")]
Limit = Annotated[int, typer.Option(min=1, help="Most letters that the options choose; the oldest first.")]
_COLUMNS = ["id", "state", "code", "asset_name", "trigger_id", "source", "key", "reason", "raw_size", "created_at"]
_DETAILS = [*_COLUMNS, "requeued_at", "event_ids", "raw_truncated", "has_payload", "payload", "raw_text", "raw"]
_OUTCOME = ["id", "outcome", "event_ids", "created", "dead_letters", "detail"]


@commands.command("list")
def list_letters(
    state: Annotated[DeadLetterState | None, typer.Option(help="Only those in this state.")] = None,
    trigger_id: TriggerId = None,
    asset: AssetName = None,
    code: Code = None,
    source: Source = None,
    key: Annotated[str | None, typer.Option(help="Only the message of this identity.")] = None,
    before: Before = None,
    output: Output = Format.TABLE,
) -> None:
    """List dead letters, newest first."""
    from app.store.listings import dead_letters as listed

    chosen = listed.LetterFilter(
        state=state, trigger_id=trigger_id, asset_name=asset, code=code, source=source, key=key, created_at_lt=before
    )

    async def work(session: Session) -> list[Mapping[str, Any]]:
        async with session.database.transaction() as connection:
            return await every_row(lambda paging: listed.list_dead_letters(connection, paging, chosen=chosen))

    show_rows(with_session(work), _COLUMNS, output)


@commands.command("show")
def show_letter(
    letter_id: Annotated[int, typer.Argument(metavar="ID", min=0, max=LARGEST_ID, help="The letter's id.")],
    raw: Annotated[bool, typer.Option("--raw", help="Write only the bytes that were kept of the message.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show a dead letter with what was kept of its message. Nothing in it is masked."""
    from app.domain.letter_content import shown_letter
    from app.services.dead_letters import LetterUnknown
    from app.store.listings import dead_letters as listed

    async def work(session: Session) -> Mapping[str, Any]:
        async with session.database.transaction() as connection:
            row = await listed.read_dead_letter(connection, letter_id)
        if row is None:
            raise LetterUnknown(id=letter_id)
        return row

    row = with_session(work)
    if raw:
        sys.stdout.buffer.write(row["raw"] or b"")
        return
    show_details(shown_letter(row), _DETAILS, output)


@commands.command("requeue")
def requeue_letters(
    ids: Ids = None,
    payload: Annotated[
        str | None,
        typer.Option(parser=json_text, metavar="JSON", help="Takes the place of the payload of the one letter named."),
    ] = None,
    trigger_id: TriggerId = None,
    asset: AssetName = None,
    code: Code = None,
    source: Source = None,
    before: Before = None,
    limit: Limit = 100,
    output: Output = Format.TABLE,
) -> None:
    """Make the events that the messages would have made: of letters named by id, or of held ones chosen by options.

    Each once. Exit status 1 if any of them makes none; the others are requeued all the same.
    """
    if payload is not None and len(ids or ()) != 1:
        raise typer.BadParameter("a payload is for one letter, named by its id", param_hint="--payload")
    chosen = _chosen(ids, trigger_id=trigger_id, asset=asset, code=code, source=source, before=before, held=True)
    from app.processes.requeueing import Checker, Requeuer

    async def work(session: Session) -> list[dict[str, Any]]:
        text = None if payload is None else _checked(payload, session)
        requeuer = Requeuer(session.database, session.notifier, session.settings)

        async def one(letter_id: int, checker: Checker) -> dict[str, Any]:
            try:
                done = await requeuer.requeue(letter_id, payload=text, checker=checker)
            except RequestRefused as refused:
                return {"id": letter_id, "outcome": "refused", "detail": str(refused)}
            made = {"event_ids": list(done.event_ids), "created": done.created, "dead_letters": list(done.dead_letters)}
            return {"id": letter_id, "outcome": "requeued", **made}

        async with requeuer.checking() as checker:
            return [await one(each, checker) for each in await _ids(session, ids, chosen, limit=limit)]

    _tell(with_session(work), output)


@commands.command("delete")
def delete_letters(
    ids: Ids = None,
    state: Annotated[DeadLetterState | None, typer.Option(help="Only those in this state.")] = None,
    trigger_id: TriggerId = None,
    asset: AssetName = None,
    code: Code = None,
    source: Source = None,
    before: Before = None,
    limit: Limit = 100,
    output: Output = Format.TABLE,
) -> None:
    """Delete dead letters for ever: those named by id, or chosen by options."""
    chosen = _chosen(ids, state=state, trigger_id=trigger_id, asset=asset, code=code, source=source, before=before)
    from app.services.dead_letters import LetterUnknown, delete

    async def work(session: Session) -> list[dict[str, Any]]:
        wanted = await _ids(session, ids, chosen, limit=limit)
        gone = await delete(session.database, wanted)
        return [
            {"id": each, "outcome": "deleted"}
            if each in gone
            else {"id": each, "outcome": "refused", "detail": str(LetterUnknown(id=each))}
            for each in wanted
        ]

    _tell(with_session(work), output)


def _chosen(
    ids: list[int] | None,
    *,
    asset: str | None,
    before: datetime | None,
    state: DeadLetterState | None = None,
    held: bool = False,
    **equal: Any,
) -> LetterFilter | None:
    """What the options choose; None if letters are named by id. One or the other is needed, so that a bare command
    does nothing to all letters."""
    options = [asset, before, state, *equal.values()]
    if bool(ids) == any(option is not None for option in options):
        raise typer.BadParameter("name letters by id, or choose them by options", param_hint="ID")
    if ids:
        return None
    from app.store.listings.dead_letters import LetterFilter

    return LetterFilter(asset_name=asset, created_at_lt=before, state=DeadLetterState.HELD if held else state, **equal)


async def _ids(session: Session, ids: list[int] | None, chosen: LetterFilter | None, *, limit: int) -> list[int]:
    if chosen is None:
        return list(dict.fromkeys(ids or ()))
    from app.store.listings.dead_letters import ids_of

    async with session.database.transaction() as connection:
        return await ids_of(connection, chosen=chosen, limit=limit)


def _checked(payload: str, session: Session) -> str:
    from app.domain.json_values import payload_text

    limits = session.settings
    return payload_text(
        json.loads(payload),
        what="the payload",
        max_bytes=limits.max_payload_bytes,
        max_depth=limits.max_payload_depth,
    )


def _tell(rows: list[dict[str, Any]], output: Format) -> None:
    show_rows(rows, _OUTCOME, output)
    if any(row["outcome"] == "refused" for row in rows):
        raise typer.Exit(1)
