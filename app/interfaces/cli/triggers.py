"""`tidegate triggers`: what watches, and how it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.domain.states import ShownTriggerStatus
from app.interfaces.cli.context import Session, every_row, with_session
from app.interfaces.cli.output import Format, show_rows
from app.interfaces.cli.triggers_lint import lint

commands = typer.Typer(help="Triggers: what watches, and how it does.", no_args_is_help=True)
commands.command("lint")(lint)

_COLUMNS = [
    "id", "status", "wanted", "classpath", "queue", "team_name", "watchers", "triggerer_id", "events", "refused",
    "restarts", "consecutive_errors", "last_event_at", "lag", "degraded_reason", "throttled_reason", "last_error",
]  # fmt: skip


@commands.command("list")
def list_triggers(
    status: Annotated[ShownTriggerStatus | None, typer.Option(help="Only those that are in this state.")] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.TABLE,
) -> None:
    """List triggers of watchers and of deferred tasks. Their arguments are never shown."""
    from app.store.listings import triggers as listed

    async def work(session: Session) -> list[Mapping[str, Any]]:
        lease = session.settings.lease_seconds
        async with session.database.transaction() as connection:
            return await every_row(lambda paging: listed.list_triggers(connection, paging, lease=lease, status=status))

    show_rows([_shown(row) for row in with_session(work)], _COLUMNS, output)


@commands.command("retry")
def retry_trigger(
    trigger_id: Annotated[int, typer.Argument(metavar="ID", min=0, help="The trigger, as `triggers list` shows it.")],
) -> None:
    """Start a trigger that backs off or is quarantined now, with its pauses short again."""
    from app.services.trigger_limits import ask_for_retry

    async def work(session: Session) -> None:
        await ask_for_retry(session.database, session.notifier, trigger_id=trigger_id)

    with_session(work)
    typer.echo(f"trigger {trigger_id} starts again now")


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    watchers = [f"{watcher['asset_name']}/{watcher['name']}" for watcher in row["watchers"]]
    if row["task_id"] is not None:
        watchers.append(f"{row['dag_id']}/{row['run_id']}/{row['task_id']}")
    return {**row, "watchers": watchers}
