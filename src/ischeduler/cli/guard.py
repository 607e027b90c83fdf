"""No traceback reaches a person: every way a command can end becomes a sentence on stderr and an exit code.

0 done; 1 the thing asked about is bad; 2 it could not be asked; 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ischeduler.cli import output
from ischeduler.core.errors import IschedError

INTERRUPTED = 130


def guarded(action: Callable[[], Any], arguments: Sequence[str]) -> int:
    """The exit code of ``action``. ``--debug`` among the arguments shows tracebacks; ``--json`` says errors as JSON, too."""
    debug, as_json = "--debug" in arguments, "--json" in arguments
    try:
        code = _quiet_pipe(action)
    except IschedError as error:
        if debug:
            traceback.print_exception(error)
        code = _say(str(error), error.exit_code, type(error).__name__, as_json)
    except KeyboardInterrupt:
        code = _say("interrupted", INTERRUPTED, "Interrupted", as_json)
    except OSError as error:
        if debug:
            raise
        code = _say(_system_words(error), 2, "System", as_json)
    except Exception as error:
        if debug:
            raise
        code = _usage(error, as_json) if _is_usage(error) else _say(_crash(error), 2, "Unexpected", as_json)
    else:
        return code
    return code


def _quiet_pipe(action: Callable[[], Any]) -> int:
    """A reader that left early (``| head``) is no error."""
    try:
        result = action()
        output.flush()
        return result if isinstance(result, int) else 0
    except output.ReaderLeft:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0


def _system_words(error: OSError) -> str:
    """A full disk, a missing right, a folder that is a file: the system's own words, and where."""
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{where}; isched doctor looks at folders and disks."


def _is_usage(error: Exception) -> bool:
    """Errors of the command-line parser, whichever parser the installed typer brings."""
    return hasattr(error, "format_message") or type(error).__name__ == "Abort"


def _usage(error: Any, as_json: bool) -> int:
    if type(error).__name__ == "Abort":
        return _say("interrupted", INTERRUPTED, "Interrupted", as_json)
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "isched")
    message = " ".join(error.format_message().split())
    ending = "" if message.endswith((".", "?", ")")) else "."
    return _say(f"{message}{ending} Try '{path} --help'.", 2, "Usage", as_json)


def _say(message: str, code: int, kind: str, as_json: bool) -> int:
    print(f"isched: {message}", file=sys.stderr)
    if as_json:
        print(json.dumps({"schema": "isched.error/1", "error": {"kind": kind, "message": message, "exit_code": code}}))
    return code


def _crash(error: Exception) -> str:
    """Save the traceback where a person can attach it to a report; the sentence to show."""
    words = f"something unexpected happened ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
    text = "".join(traceback.format_exception(error)) + f"\narguments: {sys.argv[1:]}\n"
    for folder in _crash_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
            path.write_text(text, encoding="utf-8")
        except OSError:
            continue  # a full or read-only disk: try the next folder
        return f"{words}; the story is in {path}, --debug shows it here."
    return f"{words}; --debug shows the story."


def _crash_folders() -> list[Path]:
    import tempfile

    folders = [Path(tempfile.gettempdir()) / f"ischeduler-{os.getuid()}"]
    try:
        from ischeduler.helper.config import load_config

        folders.insert(0, load_config().state_dir / "crashes")
    except IschedError:
        pass  # the configuration itself may be what is broken
    return folders
