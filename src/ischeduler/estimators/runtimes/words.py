"""Text from plug-ins, made fit to be shown: one line, printable, short. It may carry terminal codes or be a megabyte long."""

from __future__ import annotations

LONGEST = 300


def clean(text: object, longest: int = LONGEST) -> str:
    """One printable line of at most that many characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)[: 4 * longest]).split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


def last_line(text: str) -> str:
    """The last line that says something, without its full stop."""
    lines = [line for line in text.splitlines() if line.strip()]
    return clean(lines[-1]).rstrip(".") if lines else ""
