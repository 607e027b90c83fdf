"""Every private PyTorch call of the tracer, behind one module.

Why private calls at all: a CPU-only wheel aborts when an autograd graph is built on fake 'cuda' tensors, and a CUDA wheel
without a card takes other code paths than with one. A device made in Python (PrivateUse1) with fake tensors has neither
problem, but needs CUDA's autocast rules, its fused attention and a few kernels' granularity re-stated. Nothing here computes.
Verified with the versions in :data:`TESTED`; others are tried, and the answer says so.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

TESTED = ((2, 13),)
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


def fake_mode() -> Any:
    """A fake tensor mode that lets user constants through."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


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
    half = query.dtype in (torch.float16, torch.bfloat16)
    if half and attn_mask is None and query.size(-1) <= 256:
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            zero = torch.zeros_like(attn_mask, dtype=query.dtype)
            attn_mask = zero.masked_fill_(attn_mask.logical_not(), float("-inf"))
        attn_mask = attn_mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]


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
