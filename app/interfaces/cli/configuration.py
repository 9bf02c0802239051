"""`tidegate config`: the settings in force."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.interfaces.cli.output import Format, show_rows

commands = typer.Typer(help="The settings in force.", no_args_is_help=True)


@commands.command("list")
def list_settings(
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.TABLE,
) -> None:
    """Print every setting with its value (secrets masked), whether it is set, and what it means."""
    from app.kernel.settings import PREFIX, Settings, load_settings, unknown_variables

    settings = load_settings()
    for name, meant in unknown_variables().items():
        hint = f"; did you mean {meant}?" if meant else ""
        typer.echo(f"warning: there is no setting {name}{hint}", err=True)
    rows = [
        {
            "variable": f"{PREFIX}{name.upper()}",
            "value": _shown(getattr(settings, name)),
            "set": name in settings.model_fields_set,
            "meaning": field.description,
        }
        for name, field in Settings.model_fields.items()
    ]
    show_rows(rows, ["variable", "value", "set", "meaning"], output)


def _shown(value: Any) -> Any:
    from pydantic import SecretStr

    if isinstance(value, SecretStr):
        return "***"
    return value if isinstance(value, int | float | bool | type(None)) else str(value)
