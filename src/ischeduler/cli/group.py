"""The root of the command line: imports a command's module only when that command is asked for."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from ischeduler.cli.guard import guarded
from ischeduler.cli.table_of_commands import COMMANDS, SECTIONS


class LazyGroup(TyperGroup):
    """Knows all commands by name; every error leaves as one sentence and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the help's order."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported now; None when there is none of that name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = typer.main.get_command(import_module(f"ischeduler.cli.{entry.module}").app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """One list a section, from the table alone."""
        for section in SECTIONS:
            with formatter.section(section):
                formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items() if entry.section == section])

    def main(self, args: Any = None, prog_name: str | None = None, **extra: Any) -> Any:
        """Run and exit with one of the documented codes."""
        arguments = sys.argv[1:] if args is None else list(args)
        extra.pop("standalone_mode", None)
        sys.exit(guarded(lambda: super(LazyGroup, self).main(arguments, "isched", standalone_mode=False, **extra), arguments))
