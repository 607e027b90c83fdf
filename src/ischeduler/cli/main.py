"""``isched``: the entry point. The two calls that must be instant, or must work in a job, never load the rest."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    if args == ["--version"]:
        from ischeduler import __version__

        print(f"isched {__version__}")
        return
    if args[:1] == ["exec"]:
        from ischeduler.training.wrapper import leave, main

        code = main(args[1:])
        sys.exit(code) if arguments is not None else leave(code)
    from ischeduler.cli.root import app

    app(args=args)


if __name__ == "__main__":
    run()
