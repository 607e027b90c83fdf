"""The root of the command line: imports a command's module only when that command is asked for."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from ischeduler.cli.guard import guarded
from ischeduler.cli.table_of_commands import COMMANDS, SECTIONS
from ischeduler.core.errors import BadInput
from ischeduler.helper.suggest import did_you_mean


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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the first word; BadInput with the nearest one for a word that is none."""
        if args and args[0] not in COMMANDS and not ctx.resilient_parsing:
            raise BadInput(f"there is no command '{args[0]}'{did_you_mean(args[0], COMMANDS)}. Try 'isched --help'.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """One list a section, from the table alone."""
        for section in SECTIONS:
            with formatter.section(section):
                formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items() if entry.section == section])

    def main(self, args: Any = None, prog_name: str | None = None, *others: Any, **extra: Any) -> Any:
        """Run and exit with one of the documented codes."""
        arguments = sys.argv[1:] if args is None else list(args)
        extra.pop("standalone_mode", None)
        sys.exit(guarded(lambda: super(LazyGroup, self).main(arguments, "isched", standalone_mode=False, **extra), arguments))
