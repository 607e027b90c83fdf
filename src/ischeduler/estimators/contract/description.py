"""Who a plug-in says it is: the contract's ``describe`` question and its answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from ischeduler.core.codec import to_plain
from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.estimate import BASES
from ischeduler.estimators.contract import QUANTITIES, VERSION
from ischeduler.ports import EstimatorInfo

DESCRIBE: dict[str, Any] = {"contract": VERSION, "describe": True}
"""The question."""
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LONGEST_DESCRIPTION = 200


def info_to_json(info: EstimatorInfo) -> dict[str, Any]:
    """The answer to :data:`DESCRIBE`."""
    return {"contract": VERSION, "info": to_plain(info)}


def info_from_json(data: Any) -> EstimatorInfo:
    """Who answered; EstimatorFailed with a sentence when the description breaks the contract."""
    if not isinstance(data, Mapping) or str(data.get("contract")) != VERSION:
        raise EstimatorFailed(f"It does not speak contract version {VERSION}.")
    body = cast("Mapping[str, Any]", data).get("info")
    if not isinstance(body, Mapping):
        raise EstimatorFailed(f"It did not say who it is: {data.get('error', 'no info in its answer')}.")
    info = cast("Mapping[str, Any]", body)
    words = {key: _word(key, info.get(key)) for key in ("name", "version")}
    basis = info.get("basis")
    if basis not in BASES:
        raise EstimatorFailed(f"Its basis is {basis!r}; expected one of {', '.join(BASES)}.")
    description = " ".join(str(info.get("description", "")).split())
    shown = "".join(c for c in description if c.isprintable())[:_LONGEST_DESCRIPTION]
    return EstimatorInfo(words["name"], words["version"], _quantities(info.get("quantities")), str(basis), shown)


def _word(key: str, value: Any) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise EstimatorFailed(f"Its {key} is {str(value)[:80]!r}; expected up to 64 letters, digits, dots, dashes or underscores.")
    return value


def _quantities(value: Any) -> tuple[str, ...]:
    given = tuple(str(q) for q in cast("list[Any]", value)) if isinstance(value, list) else ()
    unknown = [q for q in given if q not in QUANTITIES]
    if not given or unknown:
        raise EstimatorFailed(f"It answers {', '.join(unknown)[:80] or 'nothing'}; expected some of {', '.join(QUANTITIES)}.")
    return given
