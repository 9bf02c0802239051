"""`tidegate assets`: list, and make events of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.interfaces.cli.context import Session, every_row, with_session
from app.interfaces.cli.output import Format, show_rows
from app.interfaces.cli.values import json_object

commands = typer.Typer(help="Assets: list them, and make events of them.", no_args_is_help=True)

Output = Annotated[Format, typer.Option("--output", "-o", help="How to print.")]
_COLUMNS = ["id", "name", "uri", "group", "active", "scheduled_dags", "watchers", "last_event_at"]


@commands.command("list")
def list_assets(
    pattern: Annotated[
        str | None, typer.Option(help="Only names that contain this; % and _ as in SQL, | for alternatives.")
    ] = None,
    uri_pattern: Annotated[str | None, typer.Option(help="Only URIs that contain this.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Assets that no DAG uses now, too.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """List assets."""
    from app.store.listings import assets as listed

    async def work(session: Session) -> list[Mapping[str, Any]]:
        async with session.database.transaction() as connection:
            return await every_row(
                lambda paging: listed.list_assets(
                    connection, paging, name_pattern=pattern, uri_pattern=uri_pattern, only_active=not every
                )
            )

    show_rows([_shown(row) for row in with_session(work)], _COLUMNS, output)


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "active": row["is_active"],
        "scheduled_dags": [dag["dag_id"] for dag in row["scheduled_dags"]],
        "watchers": [watcher["name"] for watcher in row["watchers"]],
        "last_event_at": (row["last_asset_event"] or {}).get("timestamp"),
    }


@commands.command("emit")
def emit(
    asset: Annotated[str | None, typer.Argument(metavar="NAME", help="The asset's name.")] = None,
    asset_id: Annotated[int | None, typer.Option("--id", min=0, max=2**63 - 1, help="The asset's id.")] = None,
    name: Annotated[str | None, typer.Option(help="The asset's name, like the argument.")] = None,
    uri: Annotated[str | None, typer.Option(help="The asset's URI.")] = None,
    extra: Annotated[
        dict[str, Any] | None,
        typer.Option(parser=json_object, metavar="JSON", help="What the event tells: a JSON object."),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same event under the same key is made once, however often it is asked for.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Make an event of the asset named by its name, id or URI; all that are given must agree."""
    if asset is not None and name is not None:
        raise typer.BadParameter("give the name once: as the argument or with --name", param_hint="NAME")
    if asset is None and name is None and uri is None and asset_id is None:
        raise typer.BadParameter("name the asset: NAME, --name, --id or --uri", param_hint="NAME")
    if idempotency_key is not None and not 1 <= len(idempotency_key) <= 255:
        raise typer.BadParameter("it has 1 to 255 characters", param_hint="--idempotency-key")
    from app.domain.json_values import payload_text
    from app.services.events import post_event
    from app.services.named_assets import named_asset

    async def work(session: Session) -> dict[str, Any]:
        limits = session.settings
        payload_text(extra or {}, what="extra", max_bytes=limits.max_payload_bytes, max_depth=limits.max_payload_depth)
        found = await named_asset(session.database, asset_id=asset_id, name=asset or name, uri=uri)
        posted = await post_event(
            session.database,
            session.notifier,
            asset_id=found.asset_id,
            extra=extra or {},
            idempotency_key=idempotency_key,
        )
        return {
            "event_id": posted.event_id,
            "asset_id": found.asset_id,
            "asset_name": found.name,
            "created": posted.created,
        }

    show_rows([with_session(work)], ["event_id", "asset_id", "asset_name", "created"], output)
