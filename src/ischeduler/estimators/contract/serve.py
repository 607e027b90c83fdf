"""The plug-in's side of the contract, for estimators written against this package.

``main(MyEstimator())`` is a whole plug-in: it answers one JSON message from stdin (or a file) on stdout (or in a file), which
is what the ``process``, ``container`` and ``tapis`` runtimes ask. A plug-in needs nothing of this package to keep the contract.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ischeduler.core.errors import IschedError
from ischeduler.estimators.contract import answer_to_json, failure_to_json, request_from_json
from ischeduler.estimators.contract.description import info_to_json
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.ports import Estimator


def reply(estimator: Estimator, message: bytes) -> dict[str, Any]:
    """The answer to one message. Never raises for what the message says."""
    try:
        data = json.loads(message)
    except (ValueError, RecursionError) as error:
        return failure_to_json("", f"The message is not JSON ({error}).")
    if not isinstance(data, Mapping):
        return failure_to_json("", "The message is not a JSON object.")
    if data.get("describe") is True:
        return info_to_json(estimator.info)
    quantity = str(data.get("quantity", ""))
    try:
        request = request_from_json(data)
        if quantity not in estimator.info.quantities:
            return failure_to_json(quantity, f"It does not answer {quantity!r}; it answers {', '.join(estimator.info.quantities)}.")
        return answer_to_json(quantity, estimator.estimate(request))
    except NoEvidence as reason:
        return {**failure_to_json(quantity, str(reason)), "quiet": True}
    except IschedError as reason:
        return failure_to_json(quantity, str(reason))
    except Exception as error:  # the estimator's own bug: said in the contract's words, not as a crash
        return failure_to_json(quantity, f"It failed: {type(error).__name__}: {error}")


def main(estimator: Estimator, arguments: Sequence[str] | None = None) -> int:
    """Answer ``[REQUEST_FILE [ANSWER_FILE]]`` or stdin on stdout; always 0, because a refusal is an answer, too."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    message = Path(given[0]).read_bytes() if given else sys.stdin.buffer.read()
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print must not mix with the answer
        text = json.dumps(reply(estimator, message)) + "\n"
    if len(given) > 1:
        Path(given[1]).write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0
