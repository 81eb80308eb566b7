"""Detect the precision that a model computes in and its class of workload, from its modules and calls.

Both are guesses for a comparison with other GPUs; what is unclear stays empty. This module imports torch, so import it
only after the training has imported torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from greenlove_tracker.text.format import plural
from greenlove_tracker.vocabulary.workloads import Seen

_HALVES = (torch.float16, torch.bfloat16)
_WITH_AUTOCAST = ("cpu", "cuda")
_AMPERE = (8, 0)  # compute capability from which tensor cores take TF32: NVIDIA's A100 whitepaper, table 3
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_IMAGE_CONVOLUTIONS = (nn.Conv2d, nn.Conv3d)
_FROM_TORCHAO = "Float8Linear"
_FSDP = "torch.distributed.fsdp"  # which casts what layers compute in, behind their backs
_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
_LEAST_VOCABULARY = 1000  # of an embedding that is of tokens, not of positions or categories
# What models of Hugging Face's say that they take (main_input_name).
_WORKLOAD_OF_INPUT = {
    "input_ids": "language",
    "pixel_values": "vision",
    "pixel_values_videos": "vision",
    "input_features": "speech",
    "input_values": "speech",
}


@contextmanager
def autocast_logged(model: nn.Module) -> Iterator[list[bool]]:
    """Yield a list that gets, for each call of the model within the block, whether it ran under autocast to 16 bits."""
    calls: list[bool] = []
    device = _device(model).type

    def note(module: nn.Module, inputs: Any) -> None:
        if torch.is_grad_enabled() and device in _WITH_AUTOCAST:  # else it is an evaluation, or nobody knows
            calls.append(torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) in _HALVES)

    handle = model.register_forward_pre_hook(note)
    try:
        yield calls
    finally:
        handle.remove()


def is_mostly_under_autocast(calls: Sequence[bool]) -> bool | None:
    """Return True if most calls ran under autocast; None without calls."""
    return 2 * sum(calls) > len(calls) if calls else None


def precision_of(model: nn.Module, *, is_under_autocast: bool | None = None) -> Seen:
    """Return the precision that a model computes in; empty if it is unclear.

    Args:
        model: the model, on the device that it trains on.
        is_under_autocast: whether it is trained under autocast to 16 bits. None: unknown, and then so is the precision
            of a model with 32-bit weights.
    """
    if _computes_in_fp8(model):
        return Seen("fp8", "layers in FP8")
    n_of = Counter[torch.dtype]()
    for parameter in model.parameters():
        if parameter.is_floating_point():
            n_of[parameter.dtype] += parameter.numel()
    if not n_of.total():
        return Seen()
    most, _ = n_of.most_common(1)[0]
    if most in _HALVES:
        return Seen("bf16", f"weights in {str(most).removeprefix('torch.')}")
    if most is not torch.float32 or is_under_autocast is None:
        return Seen()
    if is_under_autocast:
        return Seen("bf16", "autocast")
    return _in_32_bits(model)


def _in_32_bits(model: nn.Module) -> Seen:
    """Return ``tf32`` or ``fp32``, by the device and torch's settings."""
    device = _device(model)
    if device.type not in ("cpu", "cuda", "mps"):
        return Seen()  # as Intel's GPUs, which have a TF32 and switches of their own
    if any(kind.__module__.startswith(_FSDP) for part in model.modules() for kind in type(part).__mro__):
        return Seen()
    if device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= _AMPERE:
        # By default convolutions may round, and products of matrices may not (PyTorch, "CUDA semantics").
        try:
            in_products = torch.backends.cuda.matmul.allow_tf32
            in_convolutions = torch.backends.cudnn.allow_tf32
        except RuntimeError:  # of torch 2.9, where its newer switches were set
            return Seen()
        if in_products:
            return Seen("tf32", "matrix products in TF32")
        if in_convolutions and _is_convolutional(model):
            return Seen("tf32", "convolutions in TF32")
    return Seen("fp32", "32 bits, without autocast")


def _computes_in_fp8(model: nn.Module) -> bool:
    """Return True if the model has FP8 layers of torchao, or of Transformer Engine under its autocast."""
    return any(
        type(part).__name__ == _FROM_TORCHAO
        or (type(part).__module__.startswith("transformer_engine.") and getattr(part, "fp8_initialized", False))
        for part in model.modules()
    )


def _is_convolutional(model: nn.Module) -> bool:
    """Return True if the model has more convolutions than linear layers."""
    n_convolutions = sum(isinstance(part, _CONVOLUTIONS) for part in model.modules())
    n_products = sum(isinstance(part, nn.Linear) for part in model.modules())
    return n_convolutions > n_products


def _device(module: nn.Module) -> torch.device:
    return next((p.device for p in module.parameters()), torch.device("cpu"))


def workload_of(model: nn.Module) -> Seen:
    """Return the class of workload that a model's layers show; empty if they leave it open."""
    parts = list(model.modules())

    def of(*kinds: type[nn.Module]) -> list[Any]:
        return [part for part in parts if isinstance(part, kinds)]

    images = of(*_IMAGE_CONVOLUTIONS)
    embeddings = of(nn.Embedding)
    has_tokens = _has_tokens(of(nn.Linear), embeddings)
    inputs = [getattr(part, "main_input_name", None) for part in parts]
    named = str(next((name for name in inputs if name is not None), ""))
    stated = _WORKLOAD_OF_INPUT.get(named, "")
    # input_ids is also what a model says that says nothing: images beside them make it one of both.
    if stated and (stated != "language" or (embeddings and not images)):
        return Seen(stated, f"{named} as its input")
    if images and (has_tokens or of(nn.RNNBase)):
        return Seen()  # of both, where there are tokens or series beside them
    if images:
        return Seen("vision", plural(len(images), "image convolution"))
    bags = of(nn.EmbeddingBag)
    if bags:
        return Seen("recommendation", plural(len(bags), "embedding bag"))
    n_attention = _n_attention(model)
    if n_attention and has_tokens:
        return Seen("language", f"embeddings and attention in {plural(n_attention, 'layer')}")
    return Seen()


def _has_tokens(layers: Iterable[nn.Linear], embeddings: Sequence[nn.Embedding]) -> bool:
    """Return True if the model embeds tokens: it has a large embedding, or one of the size of an output."""
    outputs = {layer.out_features for layer in layers}
    return any(e.num_embeddings >= _LEAST_VOCABULARY or e.num_embeddings in outputs for e in embeddings)


def _n_attention(model: nn.Module) -> int:
    """Count the attention layers, innermost modules only."""
    if isinstance(model, nn.MultiheadAttention):
        return 1
    within = sum(_n_attention(part) for part in model.children())
    return within or int(_ATTENTION.search(type(model).__name__) is not None)
