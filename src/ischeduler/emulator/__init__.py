"""Emulated accelerators: unmodified PyTorch training on a machine without cards, as if on a given one.

Tensors that the script puts on ``cuda`` are ordinary CPU tensors whose memory is never touched; operations on them are not computed but
timed, and their memory is booked in the model of the caching allocator, which refuses what the card could not hold. Times come from
measured tables, else from the step-time estimator. What GPEmu (Wang et al., 2024) does with a patched PyTorch is done here with a stock
one: a ``TorchFunctionMode`` for where a tensor lives, a ``TorchDispatchMode`` for what happens to it.
"""
