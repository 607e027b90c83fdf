"""Every private PyTorch call of the tracer, behind one module.

Why private calls at all: a CPU-only wheel aborts when an autograd graph is built on fake 'cuda' tensors, and a CUDA wheel
without a card takes other code paths than with one. A device made in Python (PrivateUse1) with fake tensors has neither
problem, but needs CUDA's autocast rules, its fused attention and a few kernels' granularity re-stated. Nothing here computes.
Verified with the versions in :data:`TESTED` (``scripts/torch-matrix``); others are tried, and the answer says so. What this
package needs of torch beyond its documented interface is :data:`PRIVATE`; a test compares that list with the source and with the
torch at hand.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable
from functools import cache
from typing import Any

TESTED = ((2, 12), (2, 13), (2, 14), (2, 15))
PRIVATE = (
    "torch._C.DispatchKey", "torch._C.DispatchKeySet", "torch._C._DisableTorchDispatch", "torch._C._ExcludeDispatchKeyGuard",
    "torch._C._current_graph_task_id", "torch._C._set_throw_on_mutable_data_ptr", "torch.Tensor._is_view",
    "torch.Tensor._make_subclass", "torch.UntypedStorage._cdata",
    "torch._subclasses.fake_tensor.FakeTensor", "torch._subclasses.fake_tensor.FakeTensorMode", "torch.cuda.memory._dump_snapshot",
    "torch.cuda.memory._record_memory_history", "torch.nn.Module._buffers", "torch.nn.Module._parameters",
    "torch.ops.aten._scaled_dot_product_efficient_attention", "torch.ops.aten._scaled_dot_product_flash_attention",
    "torch.ops.aten.add.Tensor._overloadpacket", "torch.ops.aten.add._qualified_op_name",
    "torch.optim.optimizer._foreach_supported_types", "torch.utils._python_dispatch.TorchDispatchMode",
    "torch.utils._python_dispatch._disable_current_modes", "torch.utils._pytree.tree_map",
    "torch.utils.backend_registration._DummyBackendModule",
    "torch.utils.backend_registration._setup_privateuseone_for_python_backend", "torch.utils.data._utils.fetch",
)
DEVICE = "gpu"

# CUDA's autocast lists; source: aten/src/ATen/autocast_mode.h (AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32).
_LOWER = (
    "conv1d", "conv2d.padding", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input",
    "conv_transpose3d.input", "convolution", "matmul", "mm", "bmm", "addmm", "addmv", "addr", "addbmm", "baddbmm", "mv",
    "linear", "prelu", "chain_matmul", "linalg_multi_dot", "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention",
)
_FLOAT = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm",
    "group_norm", "nuclear_norm", "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss",
    "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss",
    "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss",
    "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp", "softmax.int", "log_softmax.int",
    "cumprod", "cumsum", "prod", "sum", "sum.dim_IntList", "norm.ScalarOpt_dim",
)
_LEAVES = ("silu_backward", "mish_backward", "native_channel_shuffle")

_FILLS = ("aten::uniform_", "aten::normal_", "aten::random_", "aten::bernoulli_", "aten::exponential_", "aten::zero_",
          "aten::trunc_normal_")

_kept: list[Any] = []  # libraries unregister when collected
_casts: dict[tuple[int, Any], Any] = {}


def tested_version(version: str) -> bool:
    """Whether the tracer was verified with this torch."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return bool(match) and (int(match[1]), int(match[2])) in TESTED


def install_device() -> None:
    """Register the do-nothing accelerator ``gpu`` with autocast, attention and leaf operations; once a process."""
    if _kept:
        return
    import torch
    from torch._subclasses import fake_tensor
    from torch.utils import backend_registration

    class Backend(backend_registration._DummyBackendModule):
        def get_amp_supported_dtype(self) -> list[Any]:
            return [torch.bfloat16, torch.float16]

        def is_bf16_supported(self) -> bool:
            return True

    backend_registration._setup_privateuseone_for_python_backend(DEVICE, backend_module=Backend())
    fake_tensor.FakeTensorMode.avoid_device_init = property(lambda self: True)  # type: ignore[assignment]
    _install_autocast()
    _install_attention()
    _install_leaves()
    _install_foreach()
    _install_checkpointing()


_KEPT: list[Any] = []


def fake_mode() -> Any:
    """A fake tensor mode that lets user constants through. It is never freed: torch 2.13 crashes now and then when it lets go of a mode's
    weak references to constants (``StorageWeakRef.__del__``), and the tracing process ends soon anyway."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode: Any = FakeTensorMode(allow_non_fake_inputs=True)
    mode.cache_enabled = False  # the recorder's own is ten times cheaper
    _KEPT.append(mode)
    return mode


@cache
def fake_tensor_class() -> type:
    """The class of fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensor

    return FakeTensor


def answered(func: Any, args: Any) -> Any:
    """The result of an operation that needs no fake tensor at all, else None: a device asked for, a random filling."""
    name = operation_name(func)
    if name == "prim::device":
        return getattr(args[0], "fake_device", None)
    return args[0] if name in _FILLS and args[0].__class__ is fake_tensor_class() else None


def metadata_changes(func: Any) -> bool:
    """Whether an operation alters its operands' shapes, or has results that depend on values."""
    import torch

    unfit = {torch.Tag.inplace_view, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    return bool(unfit & set(getattr(func, "tags", ()))) or operation_name(func) in (
        "aten::set_", "aten::resize_", "aten::lift_fresh", "aten::lift", "aten::_local_scalar_dense",
    )


def attributes(tensor: Any) -> dict[str, Any]:
    """What a fake tensor carries beside its shape: to give to another one like it."""
    return dict(tensor.__dict__)


def like_before(
    base: Any, shape: tuple[int, ...], stride: tuple[int, ...], offset: int, dtype: Any, carried: dict[str, Any]
) -> Any:
    """A fake tensor made without asking the fake tensor mode: a view of ``base``, or new where that is None."""
    import torch

    private: Any = torch._C
    with private._DisableTorchDispatch():
        if base is None:
            element = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        else:
            element = torch.empty(0, dtype=dtype, device="meta")
            element.set_(base.untyped_storage(), offset, shape, stride)
        made = torch.Tensor._make_subclass(
            fake_tensor_class(), element, False, dispatch_device=True, device_for_backend_keys=carried["_fake_device"]
        )
    private._set_throw_on_mutable_data_ptr(made)
    made.__dict__.update(carried)
    return made


def storage_identity(tensor: Any) -> tuple[Any, int, int]:
    """(storage object, identity of the C++ storage, bytes)."""
    storage = tensor.untyped_storage()
    return storage, storage._cdata, storage.nbytes()


def operation_name(func: Any) -> str:
    """``aten::convolution``."""
    packet = getattr(func, "_overloadpacket", None)
    return packet._qualified_op_name if packet is not None else str(func)


def is_view(func: Any) -> bool:
    """Whether an operation only re-labels memory."""
    return bool(getattr(func, "is_view", False)) or operation_name(func) in ("aten::detach", "aten::_unsafe_view")


def flop_formula(func: Any) -> Callable[..., int] | None:
    """torch's own FLOP count of an operation, or None for those that only move bytes."""
    from torch.utils.flop_counter import flop_registry

    return flop_registry.get(getattr(func, "_overloadpacket", None))


def without_modes() -> Any:
    """A context in which neither fake tensors nor recorders are active."""
    from torch.utils import _python_dispatch

    return _python_dispatch._disable_current_modes()


def swap_for_fake(module: Any, device: str) -> Any:
    """Replace a real module's parameters and buffers by fake ones on ``device``; call inside the fake mode."""
    import torch

    made: dict[int, Any] = {}
    kept: list[Any] = []
    for part in module.modules():
        for tensors, trainable in ((part._parameters, True), (part._buffers, False)):
            for name, old in list(tensors.items()):
                if old is None:
                    continue
                if id(old) not in made:
                    new = torch.empty_strided(old.size(), old.stride(), dtype=old.dtype, device=device)
                    made[id(old)] = torch.nn.Parameter(new, requires_grad=old.requires_grad) if trainable else new
                    kept.append(old)  # an id must not be used twice
                tensors[name] = made[id(old)]
    return module


def mend_torchvision() -> None:
    """Let torchvision load beside a torch it was not compiled for.

    Its compiled operations are absent then, and registering their fake versions fails on import; models need none of them.
    """
    import torch

    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return
    from pathlib import Path

    folder = Path(next(iter(spec.submodule_search_locations)))
    try:
        torch.ops.load_library(str(next(folder.glob("_C*.so"))))
        return
    except (OSError, StopIteration):
        pass  # the very case to mend
    source = folder / "_meta_registrations.py"
    names = re.findall(r'register_fake\("torchvision::(\w+)"\)', source.read_text()) if source.exists() else []
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in names:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)


def _install_autocast() -> None:
    import torch

    library = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
    for lower, names in ((True, _LOWER), (False, _FLOAT)):
        for name in names:
            base, _, overload = name.partition(".")
            packet = getattr(torch.ops.aten, base, None)
            operation = getattr(packet, overload or "default", None)
            if operation is not None:  # the list spans several versions
                library.impl(name if overload else base, _casting(operation, lower))
    rest = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
    rest.fallback(torch.library.fallthrough_kernel)
    autocast: Any = torch.autocast
    leave = autocast.__exit__

    def leave_and_forget(self: Any, *args: Any) -> Any:
        result = leave(self, *args)
        if self.device == DEVICE:
            _casts.clear()
        return result

    autocast.__exit__ = leave_and_forget
    _kept.extend((library, rest))


def _casting(operation: Any, lower: bool) -> Callable[..., Any]:
    import torch

    private: Any = torch._C
    keys = private.DispatchKeySet(private.DispatchKey.AutocastPrivateUse1)

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            dtype = torch.get_autocast_dtype(DEVICE) if lower else torch.float32
            return operation(*(_cast(a, dtype) for a in args), **{k: _cast(v, dtype) for k, v in kwargs.items()})

    return call


def _cast(value: Any, dtype: Any) -> Any:
    import torch

    if isinstance(value, (list, tuple)):
        return type(value)(_cast(v, dtype) for v in value)
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.device.type != DEVICE:
        return value
    if value.dtype in (dtype, torch.float64):
        return value
    if dtype != torch.float32 and value.requires_grad and value.is_leaf and not value._is_view():
        key = (id(value), dtype)  # weights are cast once a forward pass
        if key not in _casts:
            _casts[key] = value.to(dtype)
        return _casts[key]
    return value.to(dtype)


def _install_attention() -> None:
    import torch

    library = torch.library.Library("aten", "IMPL", "AutogradPrivateUse1")
    library.impl("scaled_dot_product_attention", _attention)
    _kept.append(library)


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:
    """What CUDA picks: flash attention in half precision without a mask, else the memory-efficient kernel."""
    import torch

    aten = torch.ops.aten
    if enable_gqa and key.size(1) != query.size(1):
        times = query.size(1) // key.size(1)
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    if query.dim() != 4:
        return _plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    half = query.dtype in (torch.float16, torch.bfloat16)
    if half and attn_mask is None and query.size(-1) <= 256:
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    if not _aligned(query, key, value):
        return _plain_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            zero = torch.zeros_like(attn_mask, dtype=query.dtype)
            attn_mask = zero.masked_fill_(attn_mask.logical_not(), float("-inf"))
        attn_mask = attn_mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]


def _aligned(query: Any, key: Any, value: Any) -> bool:
    """Whether CUDA's memory-efficient kernel takes heads of this width (16 bytes); source: sdp_utils_cpp.h."""
    widths = (query.size(-1), value.size(-1))
    return all(width * query.element_size() % 16 == 0 for width in widths) and min(query.size(-2), key.size(-2)) > 0


def _plain_attention(
    query: Any, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool, scale: float | None
) -> Any:
    """Attention in plain operations, as CUDA does it where no fused kernel fits; source: _scaled_dot_product_attention_math."""
    import torch

    factor = (query.size(-1) ** -0.5 if scale is None else scale) ** 0.5
    scores = (query * factor) @ (key.transpose(-2, -1) * factor)
    if is_causal:
        keep = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool, device=query.device).tril()
        mask = torch.zeros_like(keep, dtype=query.dtype).masked_fill_(keep.logical_not(), float("-inf"))
    elif mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    if mask is not None:
        scores = scores.add_(mask) if not scores.requires_grad else scores + mask
    weights = scores.softmax(-1)
    return torch.dropout(weights, dropout_p, True) @ value if dropout_p else weights @ value


def _install_leaves() -> None:
    """Operations with a CUDA kernel of their own that would be taken apart on another device."""
    import torch

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("the tracing device computes nothing")

    library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name in _LEAVES:
        if hasattr(torch.ops.aten, name):
            library.impl(name, refuse)
    _kept.append(library)


def _install_foreach() -> None:
    """Let optimizers group tensors as they do on CUDA: their temporaries are then those of whole groups."""
    module: Any = importlib.import_module("torch.optim.optimizer")
    types: Any = getattr(module, "_foreach_supported_types", None)
    if types is not None and fake_tensor_class() not in types:
        types.append(fake_tensor_class())


def _install_checkpointing() -> None:
    """Recomputation saves the device's random state; this device has none."""
    from torch.utils import checkpoint

    module: Any = checkpoint
    module.get_device_states = lambda *args: ([], [])
    module.set_device_states = lambda devices, states, **kwargs: None
