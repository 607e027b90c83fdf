"""How things look: aligned plain text, colour only on a terminal, JSON on request. No box drawing, so that text can be cut."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def coloured() -> bool:
    """Whether stdout is a terminal that wants colour (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style(words: str, *names: str) -> str:
    """The text in colour where colour is wanted."""
    if not names or not words or not coloured():
        return words
    return f"\x1b[{';'.join(_CODES[n] for n in names)}m{words}\x1b[0m"


class ReaderLeft(Exception):
    """Whoever read our stdout has closed it (``| head``): nothing more to say, and no error."""


def text(words: str) -> None:
    """Text on stdout, as it is. ReaderLeft when nobody reads it."""
    try:
        sys.stdout.write(_encodable(words))
    except BrokenPipeError:
        raise ReaderLeft from None


def flush() -> None:
    """Let what was written be seen now."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderLeft from None


def line(words: str = "") -> None:
    """One line on stdout."""
    text(words + "\n")


def note(words: str) -> None:
    """A remark on stderr, where it does not disturb what is piped."""
    print(_encodable(words), file=sys.stderr)


def document(schema: str, body: dict[str, Any]) -> None:
    """The JSON answer: ``{"schema": "isched.NAME/1", ...}``."""
    line(json.dumps({"schema": schema, **body}, ensure_ascii=False))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), indent: str = "") -> None:
    """Columns two blanks apart, as wide as their longest cell; the last column is not padded."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(_width(r[i]) for r in lines if i < len(r)) for i in range(len(header))]
    for number, row in enumerate(lines):
        pads = [" " * (widths[i] - _width(cell)) for i, cell in enumerate(row)]
        cells = [pads[i] + cell if i in right else cell + pads[i] for i, cell in enumerate(row)]
        words = indent + "  ".join(cells).rstrip()
        line(style(words, "bold") if number == 0 else words)


def _width(cell: str) -> int:
    """Columns a cell takes: colours take none."""
    return len(_COLOUR.sub("", cell))


def hints(pairs: Sequence[tuple[str, str]]) -> None:
    """Next steps: what for, and the command. Only for people: nothing when piped."""
    if not pairs or not sys.stdout.isatty():
        return
    width = max(len(what) for what, _ in pairs)
    for number, (what, command) in enumerate(pairs):
        branch = "└──" if number == len(pairs) - 1 else "├──"
        line(f"  {style(branch, 'dim')} {what.ljust(width)}  {style(command, 'cyan')}")


def confirm(question: str) -> bool:
    """Ask on the terminal; anything but yes is no. A closed stdin is no."""
    sys.stderr.write(_encodable(f"{question} [y/N] "))
    sys.stderr.flush()
    answer = sys.stdin.readline()
    return answer.strip().lower() in ("y", "yes")


def _encodable(words: str) -> str:
    """The text in what stdout can write: a terminal without Unicode gets plain signs."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if encoding.lower().replace("-", "") == "utf8":
        return words
    for fine, plain in _PLAIN.items():
        words = words.replace(fine, plain)
    return words.encode(encoding, "replace").decode(encoding)


_PLAIN = {"✓": "ok", "✔": "*", "✗": "x", "→": "->", "–": "-", "·": "-", "├──": "|-", "└──": "`-", "−": "-", "×": "x", "…": "..."}
