"""How things look: aligned plain text, colour only on a terminal, JSON on request. No box drawing, so that text can be cut."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def coloured() -> bool:
    """Whether stdout is a terminal that wants colour (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style(text: str, *names: str) -> str:
    """The text in colour where colour is wanted."""
    if not names or not text or not coloured():
        return text
    return f"\x1b[{';'.join(_CODES[n] for n in names)}m{text}\x1b[0m"


def line(text: str = "") -> None:
    """One line on stdout."""
    print(_encodable(text))


def note(text: str) -> None:
    """A remark on stderr, where it does not disturb what is piped."""
    print(_encodable(text), file=sys.stderr)


def document(schema: str, body: dict[str, Any]) -> None:
    """The JSON answer: ``{"schema": "isched.NAME/1", ...}``."""
    print(json.dumps({"schema": schema, **body}, ensure_ascii=False))


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = (), indent: str = "") -> None:
    """Columns two blanks apart, as wide as their longest cell; the last column is not padded."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(r[i]) for r in lines if i < len(r)) for i in range(len(header))]
    for number, row in enumerate(lines):
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        text = indent + "  ".join(cells).rstrip()
        line(style(text, "bold") if number == 0 else text)


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


def _encodable(text: str) -> str:
    """The text in what stdout can write: a terminal without Unicode gets plain signs."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    if encoding.lower().replace("-", "") == "utf8":
        return text
    for fine, plain in _PLAIN.items():
        text = text.replace(fine, plain)
    return text.encode(encoding, "replace").decode(encoding)


_PLAIN = {"✓": "ok", "✔": "*", "✗": "x", "→": "->", "–": "-", "·": "-", "├──": "|-", "└──": "`-", "−": "-", "×": "x", "…": "..."}
