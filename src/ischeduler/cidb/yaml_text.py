"""YAML in and out. The C parser is used where PyYAML has it; the difference is tenfold."""

from __future__ import annotations

from typing import Any

from ischeduler.core.errors import BadInput


def read_yaml(text: str, name: str = "the text") -> Any:
    """Plain values of a YAML text; BadInput with the line where it is malformed."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise BadInput(f"{name}, line {line}, is not YAML: {error.problem}; correct that line.") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{name} is not YAML: {error}; correct it.") from None


def write_yaml(value: Any) -> str:
    """YAML text in the order given, small lists and mappings of plain values on one line."""
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
