"""What the words for a model mean, and when a cached trace of a user's file is out of date."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ischeduler.core.errors import BadInput
from ischeduler.estimators.models.references import Reference, of_object, parse, source_fingerprint


@pytest.mark.parametrize(("text", "reference"), [
    ("timm:resnet50", Reference("timm", "timm", "resnet50")),
    ("torchvision:vgg16", Reference("torchvision", "torchvision", "vgg16")),
    ("transformers:google/vit-base", Reference("transformers", "transformers", "google/vit-base")),
    ("resnet50", Reference("bare", "", "resnet50")),
    ("my.module:build_model", Reference("module", "my.module", "build_model")),
    ("src/train.py:Net.make", Reference("file", "src/train.py", "Net.make")),
    ("object:/tmp/a.model", Reference("object", "/tmp/a.model", "")),
])
def test_forms(text: str, reference: Reference) -> None:
    assert parse(text) == reference


@pytest.mark.parametrize("text", ["", "   ", "my module", "timm:", "train.py:", "train.py:a b", "a/b:build", ":x", "$(rm):x"])
def test_other_forms_are_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(BadInput, match="expected timm:NAME"):
        parse(text)


def test_the_fingerprint_follows_the_users_files(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def build(): ...")
    reference = parse("train.py:build")
    first = source_fingerprint(reference, str(tmp_path))
    assert source_fingerprint(reference, str(tmp_path)) == first
    (tmp_path / "layers.py").write_text("x = 1")
    second = source_fingerprint(reference, str(tmp_path))
    assert second != first
    (tmp_path / "train.py").write_text("def build(): 1")
    assert source_fingerprint(reference, str(tmp_path)) not in (first, second)
    os.unlink(tmp_path / "train.py")
    assert source_fingerprint(parse("timm:resnet50"), str(tmp_path)) == ""


def build_here() -> None:
    """Something importable."""


def test_objects_become_references(tmp_path: Path) -> None:
    assert of_object("timm:resnet50", tmp_path) == "timm:resnet50"
    assert of_object(build_here, tmp_path) == f"{Path(__file__).resolve()}:build_here"
    with pytest.raises(BadInput, match="top level"):
        of_object(lambda: None, tmp_path)
