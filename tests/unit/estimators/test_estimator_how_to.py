"""The how-to's example is real: it runs, and it conforms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ischeduler.estimators.conformance import broken, check

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "write-an-estimator.md"


def test_the_example_conforms() -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    space: dict[str, Any] = {}
    exec(code[0], space)
    findings = check(space["PerImage"]())
    assert broken(findings) == []
    assert any("p50 0.08" in f.text for f in findings)
    exec(code[1], space)
    space["test_it_conforms"]()
