"""The page docs/cli.md: ``python -m app.interfaces.cli.describe > docs/cli.md``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from app.interfaces.cli.root import root

_HEAD = """# Command line

`tidegate COMMAND --help` says the same. A command that cannot do what was asked says why in one line on standard error
and exits with 1; a wrong option or value exits with 2. Lists are tables for people, and JSON with `-o json`. This page
is made by `python -m app.interfaces.cli.describe`.

Commands that list or change something work on the database directly: the one of `TIDEGATE_DATABASE_URL`, or else the
embedded one that runs under the home.
"""


def page() -> str:
    """The page, from the commands themselves."""
    # Any: the classes of commands belong to the insides of the library.
    command: Any = typer.main.get_command(root)
    return "\n".join([_HEAD, "## Before every command\n", _table(command), *_sections(command, "tidegate")])


def _sections(command: Any, name: str) -> Iterator[str]:
    members: Mapping[str, Any] | None = getattr(command, "commands", None)
    if members is not None:
        for part, member in members.items():
            yield from _sections(member, f"{name} {part}")
        return
    arguments = [_argument(parameter) for parameter in command.params if parameter.param_type_name == "argument"]
    yield f"## {' '.join([name, *arguments])}\n"
    yield f"{' '.join((command.help or '').split())}\n"
    if table := _table(command):
        yield table


def _argument(parameter: Any) -> str:
    name = str(parameter.metavar or parameter.name.upper())
    return name if parameter.required else f"[{name}]"


def _table(command: Any) -> str:
    context = typer.Context(command)
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [record for record in records if record is not None and "-completion" not in record[0]]
    if not rows:
        return ""
    lines = ["| option | meaning |", "|---|---|"]
    lines += [f"| `{_cell(option)}` | {_cell(meaning)} |" for option, meaning in rows]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
