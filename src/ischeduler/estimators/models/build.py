"""Builds a referenced model. Lives in the tracing subprocess: user code runs here."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory.spec import TraceSpec
from ischeduler.estimators.models.references import Reference, parse
from ischeduler.estimators.models.transformers_configs import CAUSAL, KNOWN

Loader = Callable[[], Any]
_EXTRA = {"timm": "models", "torchvision": "models", "transformers": "models", "torch": "torch"}


def loader(spec: TraceSpec) -> tuple[Loader, ModuleType | None]:
    """A function that builds the model, and the user's module where there is one. BadInput with a sentence otherwise."""
    reference = parse(spec.model)
    if reference.kind == "bare":
        reference = _find(reference.name)
    if reference.kind in ("module", "file"):
        return _from_user(reference, spec)
    if reference.kind == "object":
        return _from_object(reference.place), None
    if reference.kind == "keras":
        raise BadInput(f"'{spec.model}' is a Keras model; set framework = keras.")
    makers: dict[str, Callable[[str, TraceSpec], Loader]] = {
        "timm": _from_timm, "torchvision": _from_torchvision, "transformers": _from_transformers,
    }
    return makers[reference.kind](reference.name, spec), None


def library(name: str) -> ModuleType:
    """Import a package the user may lack; BadInput says which extra brings it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or name).partition(".")[0]
        how = f"pip install 'ischeduler[{_EXTRA[missing]}]'" if missing in _EXTRA else f"install '{missing}'"
        raise BadInput(f"The package '{missing}' is not installed in {sys.executable}; {how}.") from None


def _find(name: str) -> Reference:
    tried: list[str] = []
    names: list[str] = []
    for kind in ("timm", "torchvision", "transformers"):
        if importlib.util.find_spec(kind) is None:
            continue
        tried.append(kind)
        known = _names(kind)
        if name in known:
            return Reference(kind, kind, name)
        names += known
    if not tried:
        raise BadInput(f"Nothing is installed to look '{name}' up in; pip install 'ischeduler[models]' (timm, transformers).")
    raise BadInput(f"No model '{name}' in {', '.join(tried)}; {_suggest(name, names)}.")


def _names(kind: str) -> list[str]:
    if kind == "timm":
        return library("timm").list_models()
    if kind == "torchvision":
        return library("torchvision.models").list_models()
    return list(KNOWN)


def _suggest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.lower(), set(known), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else "give a function that builds it, e.g. train.py:build_model"


def _from_timm(name: str, spec: TraceSpec) -> Loader:
    timm = library("timm")
    base = name.partition(".")[0]  # resnet50.a1_in1k: the tag names weights
    if not timm.is_model(base):
        raise BadInput(f"No model '{name}' in timm; {_suggest(base, timm.list_models())}.")
    arguments = spec.arguments("model")
    if spec.classes is not None:
        arguments.setdefault("num_classes", spec.classes)
    if spec.input_shape:
        arguments.setdefault("in_chans", spec.input_shape[0])

    def load() -> Any:
        if len(spec.input_shape) == 3:
            try:
                return timm.create_model(base, pretrained=False, img_size=spec.input_shape[1:], **arguments)
            except TypeError:
                pass  # only models with a fixed grid take img_size
        return timm.create_model(base, pretrained=False, **arguments)

    return load


def _from_torchvision(name: str, spec: TraceSpec) -> Loader:
    models = library("torchvision.models")
    if name not in models.list_models():
        raise BadInput(f"No model '{name}' in torchvision; {_suggest(name, models.list_models())}.")
    arguments = spec.arguments("model")
    if spec.classes is not None:
        arguments.setdefault("num_classes", spec.classes)
    if name in ("inception_v3", "googlenet"):
        arguments.setdefault("init_weights", False)
    if name.startswith(("fcn", "deeplab", "lraspp")):
        arguments.setdefault("weights_backbone", None)
    return lambda: models.get_model(name, weights=None, **arguments)


def _from_transformers(name: str, spec: TraceSpec) -> Loader:
    transformers = library("transformers")
    config = _config(transformers, name, spec)
    for key, value in spec.arguments("model").items():
        setattr(config, key, value)
    if spec.classes is not None:
        config.num_labels = spec.classes
    kind = _head(transformers, config, spec)
    return lambda: kind.from_config(config)


def _config(transformers: Any, name: str, spec: TraceSpec) -> Any:
    short = name.rpartition("/")[2]
    if short in KNOWN:
        model_type, differences = KNOWN[short]
        return transformers.AutoConfig.for_model(model_type, **differences)
    folder = Path(spec.directory or ".") / name
    if (folder / "config.json").is_file():
        return transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True)
    try:
        return transformers.AutoConfig.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError):
        pass  # neither a folder nor in the local cache
    try:
        return transformers.AutoConfig.for_model(name)
    except (KeyError, ValueError):
        near = difflib.get_close_matches(short, KNOWN, n=3, cutoff=0.5)
        hint = f", or use {' or '.join(near)}" if near else ""
        raise BadInput(
            f"The configuration of '{name}' needs a download; fetch its config.json into a folder and name that folder{hint}."
        ) from None


def _head(transformers: Any, config: Any, spec: TraceSpec) -> Any:
    if getattr(config, "image_size", None) is not None:
        return transformers.AutoModelForImageClassification
    if getattr(config, "is_encoder_decoder", False):
        return transformers.AutoModelForSeq2SeqLM
    if config.model_type in CAUSAL:
        return transformers.AutoModelForCausalLM
    if spec.classes is not None:
        return transformers.AutoModelForSequenceClassification
    return transformers.AutoModelForMaskedLM


def _from_object(path: str) -> Loader:
    import torch

    try:
        model = torch.load(path, map_location="cpu", weights_only=False)
    except (OSError, AttributeError, ImportError) as error:
        raise BadInput(f"The saved model {path} cannot be read ({error}); give a function that builds it instead.") from None
    return lambda: model


def user_target(reference: Reference, directory: str) -> tuple[ModuleType, Any]:
    """The user's module and what the reference names in it; BadInput with a sentence where there is none."""
    module = _user_module(reference, directory)
    target: Any = module
    for part in reference.name.split("."):
        target = getattr(target, part, None)
        if target is None:
            public = [n for n in vars(module) if callable(getattr(module, n)) and not n.startswith("_")]
            raise BadInput(f"'{reference.place}' has no '{reference.name}'; {_suggest(reference.name, public)}.")
    return module, target


def _from_user(reference: Reference, spec: TraceSpec) -> tuple[Loader, ModuleType]:
    module, target = user_target(reference, spec.directory)
    arguments = spec.arguments("model")

    def load() -> Any:
        import torch

        built = target(**arguments) if not isinstance(target, torch.nn.Module) else target
        if not isinstance(built, torch.nn.Module):
            raise BadInput(f"'{spec.model}' returned {type(built).__name__}; it must return a torch.nn.Module.")
        return built

    return load, module


def _user_module(reference: Reference, directory: str) -> ModuleType:
    base = Path(directory or ".").resolve()
    if str(base) not in sys.path:
        sys.path.insert(0, str(base))
    if reference.kind == "module":
        return _imported(lambda: importlib.import_module(reference.place), reference, base)
    path = base / reference.place
    if not path.is_file():
        raise BadInput(f"There is no file {path}; correct the model reference '{reference.place}:{reference.name}'.")
    sys.path.insert(0, str(path.parent))
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    if module_spec is None or module_spec.loader is None:
        raise BadInput(f"{path} is not a Python file; correct the model reference.")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[path.stem] = module
    loader_ = module_spec.loader
    _imported(lambda: loader_.exec_module(module), reference, base)
    return module


def _imported(action: Callable[[], Any], reference: Reference, base: Path) -> Any:
    """Run an import; any failure of the user's file becomes one sentence."""
    try:
        return action()
    except ModuleNotFoundError as error:
        if error.name == reference.place.partition(".")[0]:
            text = f"There is no module '{reference.place}' in {base} or the environment; correct the reference."
        else:
            text = f"'{reference.place}' needs the package '{error.name}', which {sys.executable} lacks; install it."
        raise BadInput(text) from None
    except SystemExit:
        text = f"Importing '{reference.place}' ended the process; guard its main part with __name__ == '__main__'."
        raise BadInput(text) from None
    except Exception as error:
        raise BadInput(f"Importing '{reference.place}' failed: {type(error).__name__}: {error}; correct it first.") from None
