"""The allocation log of a traced step, with sizes as straight lines in the batch. Plain data; JSON both ways.

Two traces of the same model with different batches give the same requests in the same order, each ``base + slope x batch``
bytes (rounded by the allocator afterwards). Where they do not (a model that takes another path for another batch), the log
holds for its own batch alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

ALLOC, FREE, WORK = 1, 0, 2
TAGS = ("weights", "inputs", "activations", "gradients", "optimizer", "workspaces", "temporaries")
"""What a block holds: 'activations' are made by the forward pass, 'temporaries' by the backward pass."""


@dataclass(frozen=True, slots=True)
class ConvolutionCall:
    """One pass of a convolution: what decides its workspace.

    ``direction`` is 'forward', 'data' or 'weight'; sizes are (batch, channels, *space); ``dtype`` 'fp32', 'bf16', 'fp16' or
    'other'.
    """

    direction: str
    images: tuple[int, ...]
    weight: tuple[int, ...]
    result: tuple[int, ...]
    groups: int
    dtype: str

    def at_batch(self, batch: int) -> ConvolutionCall:
        """The same pass on another number of samples."""
        return replace(self, images=(batch, *self.images[1:]), result=(batch, *self.result[1:]))


@dataclass(frozen=True)
class StepLog:
    """Requests in order as rows (kind, identity, base, slope): kind ALLOC, FREE, or WORK (identity is then an index into
    ``convolutions``). ``tags`` maps identities to :data:`TAGS`' places. ``batch`` is the batch the log was traced at;
    ``linear`` says whether others may be asked for.
    """

    batch: int
    linear: bool
    rows: tuple[tuple[int, int, int, float], ...]
    tags: Mapping[int, int] = field(default_factory=dict[int, int])
    convolutions: tuple[ConvolutionCall, ...] = ()
    matmuls: int = 0

    def events(self, batch: int) -> Iterator[tuple[int, int, int]]:
        """(kind, identity, bytes) at that batch; ValueError where the log does not hold for it."""
        if batch != self.batch and not self.linear:
            raise ValueError(f"this log holds for batch {self.batch} alone")
        for kind, identity, base, slope in self.rows:
            yield kind, identity, round(base + slope * batch)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, column by column: a log has tens of thousands of rows, and columns are read ten times as fast."""
        calls = [[c.direction, c.images, c.weight, c.result, c.groups, c.dtype] for c in self.convolutions]
        kinds, identities, bases, slopes = ([*column] for column in zip(*self.rows, strict=True)) if self.rows else ([], [], [], [])
        return {"batch": self.batch, "linear": self.linear, "kinds": kinds, "identities": identities, "bases": bases,
                "slopes": slopes if self.linear else [], "tagged": [*self.tags], "tags": [*self.tags.values()],
                "convolutions": calls, "matmuls": self.matmuls}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StepLog:
        """The inverse of :meth:`to_json`; KeyError, TypeError or ValueError on anything else."""
        calls = tuple(ConvolutionCall(d, tuple(i), tuple(w), tuple(r), g, t) for d, i, w, r, g, t in data["convolutions"])
        slopes = data["slopes"] or [0.0] * len(data["kinds"])
        rows = tuple(zip(data["kinds"], data["identities"], data["bases"], slopes, strict=True))
        tags = dict(zip(data["tagged"], data["tags"], strict=True))
        return cls(int(data["batch"]), bool(data["linear"]), rows, tags, calls, int(data["matmuls"]))


def joined(first: StepLog, second: StepLog) -> StepLog:
    """Both traces as one log with lines for sizes, where they took the same path; else the first as it is."""
    if first.batch == second.batch or not _same_path(first.rows, second.rows):
        return first
    step = second.batch - first.batch
    rows: list[tuple[int, int, int, float]] = []
    for (kind, identity, one, _), (_, _, two, _) in zip(first.rows, second.rows, strict=True):
        slope = (two - one) / step
        base = one - slope * first.batch
        rows.append((kind, identity, one, 0.0) if slope == 0 else (kind, identity, base, slope))  # type: ignore[arg-type]
    return replace(first, linear=True, rows=tuple(rows))


def _same_path(first: Sequence[tuple[int, int, int, float]], second: Sequence[tuple[int, int, int, float]]) -> bool:
    return len(first) == len(second) and all(a[:2] == b[:2] for a, b in zip(first, second, strict=True))
