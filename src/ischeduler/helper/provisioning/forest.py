"""A fitted random forest as arrays: what it predicts without scikit-learn, and without a pickle in a model file."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Forest:
    """All trees' nodes behind one another. ``left``, ``right``: the next node, the node itself for a leaf; ``root``: the first node of each tree."""

    left: NDArray[np.int32]
    right: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    value: NDArray[np.float64]
    root: NDArray[np.int32]

    @classmethod
    def of(cls, fitted: Any) -> Forest:
        """From a fitted ``RandomForestRegressor`` of one output."""
        trees = [t.tree_ for t in fitted.estimators_]
        root = np.concatenate([[0], np.cumsum([t.node_count for t in trees])[:-1]]).astype(np.int32)

        def ways(name: str) -> NDArray[np.int32]:
            found = [np.where(getattr(t, name) < 0, np.arange(t.node_count), getattr(t, name)) + first for t, first in zip(trees, root, strict=True)]
            return np.concatenate(found).astype(np.int32)

        feature = np.concatenate([np.maximum(t.feature, 0) for t in trees]).astype(np.int32)
        value = np.concatenate([t.value[:, 0, 0] for t in trees])
        return cls(ways("children_left"), ways("children_right"), feature, np.concatenate([t.threshold for t in trees]), value, root)

    def predict(self, x: NDArray[np.float32]) -> NDArray[np.float64]:
        """The mean over the trees, shape (rows,)."""
        rows, node = np.arange(len(x))[:, None], np.repeat(self.root[None, :], len(x), axis=0)
        while True:
            below = x[rows, self.feature[node]] <= self.threshold[node]
            after = np.where(below, self.left[node], self.right[node])
            if np.array_equal(after, node):
                return self.value[node].mean(axis=1)
            node = after

    def as_text(self) -> str:
        """The arrays as compressed text."""
        packed = io.BytesIO()
        np.savez_compressed(packed, **self.__dict__)
        return base64.b64encode(packed.getvalue()).decode()

    @classmethod
    def from_text(cls, text: str) -> Forest:
        """The forest of :meth:`as_text`."""
        with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as kept:
            return cls(**{name: kept[name] for name in kept.files})
