"""The precision and the class of workload that models show."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from greenlove_tracker.exploration.random_state import switches  # noqa: E402
from greenlove_tracker.machine import training_kind  # noqa: E402
from greenlove_tracker.machine.training_kind import (  # noqa: E402
    autocast_logged,
    is_mostly_under_autocast,
    precision_of,
    workload_of,
)
from greenlove_tracker.vocabulary.workloads import WORKLOADS, Seen  # noqa: E402


@pytest.fixture(autouse=True)
def switches_as_before():
    undos = [s.undo() for s in switches() if "precision" in s.name or "tf32" in s.name]
    yield
    for undo in undos:
        undo()


@pytest.fixture
def on_ampere(monkeypatch):
    """Let models count as if on a GPU: which, is told by its compute capability."""
    monkeypatch.setattr(training_kind, "_device", lambda module: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 0))


class Parts(nn.Module):
    """Layers that lie side by side, and a root that is called for none of them."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, inputs):
        return inputs


class FlashAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)


def transformer(n_layers=3):
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), n_layers)


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def convolutional():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8, 4))


# -- workload ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "workload", "basis"),
    [
        (lambda: Parts(tokens=nn.Embedding(5000, 8), body=transformer()), "language", "attention in 3 layers"),
        (lambda: Parts(tokens=nn.Embedding(65, 8), body=FlashAttention(), head=nn.Linear(8, 65)), "language", None),
        (lambda: Parts(patches=nn.Conv2d(3, 8, 16, 16), body=transformer(2)), "vision", "1 image convolution"),
        (convolutional, "vision", "2 image convolutions"),
        (lambda: nn.Sequential(nn.Conv3d(1, 8, 3)), "vision", "1 image convolution"),
        (lambda: Parts(bag=nn.EmbeddingBag(50, 8), top=mlp()), "recommendation", "1 embedding bag"),
    ],
)
def test_layers_tell_the_class_of_workload(model, workload, basis):
    seen = workload_of(model())
    assert seen.value == workload and seen.value in WORKLOADS
    assert basis is None or basis in seen.basis


@pytest.mark.parametrize(
    "model",
    [
        mlp,
        lambda: nn.Sequential(nn.Conv1d(3, 8, 3)),
        lambda: transformer(),  # of what, only an input would tell
        lambda: Parts(places=nn.Embedding(197, 8), body=transformer()),
        lambda: Parts(image=nn.Conv2d(3, 8, 16, 16), tokens=nn.Embedding(5000, 8), body=transformer()),  # of both
        lambda: Parts(tokens=nn.Embedding(100, 8), body=nn.LSTM(8, 8)),  # a series of anything
        lambda: Parts(*[], **{f"c{i}": nn.Conv2d(1 if i == 0 else 8, 8, 3) for i in range(7)}, r=nn.LSTM(8, 8)),  # OCR
        lambda: Parts(group=nn.Embedding(4, 8), top=mlp()),
        lambda: Parts(embedding=nn.Embedding(5000, 8), top=mlp()),
    ],
)
def test_what_is_not_clear_stays_empty(model):
    assert workload_of(model()) == Seen()


def test_models_of_transformers():
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    bert = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=100, **small))
    assert workload_of(bert) == Seen("language", "input_ids as its input")
    assert workload_of(nn.DataParallel(bert)).value == "language"
    vit = transformers.ViTForImageClassification(transformers.ViTConfig(**small, image_size=32, patch_size=16))
    assert workload_of(vit).value == "vision"
    gpt2 = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=100, n_positions=8, n_embd=8, n_layer=2, n_head=2)
    )
    assert workload_of(gpt2).value == "language"
    whisper = transformers.WhisperConfig(
        vocab_size=100, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, pad_token_id=0, bos_token_id=0,
        eos_token_id=0, decoder_start_token_id=0, suppress_tokens=[], begin_suppress_tokens=[],
    )  # fmt: skip
    assert workload_of(transformers.WhisperForConditionalGeneration(whisper)).value == "speech"


# -- precision ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_in_16_bits_compute_in_16_bits(dtype):
    seen = precision_of(mlp().to(dtype))
    assert seen == Seen("bf16", f"weights in {str(dtype)[6:]}")
    with_norm = nn.Sequential(mlp().to(dtype), nn.LayerNorm(4))  # as most do, whose few weights stay in 32
    assert precision_of(with_norm).value == "bf16"


def test_32_bits_are_known_only_with_the_step():
    assert precision_of(mlp()) == Seen()
    assert precision_of(mlp(), is_under_autocast=True) == Seen("bf16", "autocast")
    assert precision_of(mlp(), is_under_autocast=False) == Seen("fp32", "32 bits, without autocast")


def test_layers_in_fp8():
    float8 = type("Float8Linear", (nn.Linear,), {"__module__": "torchao.float8.float8_linear"})
    assert precision_of(nn.Sequential(float8(16, 16).bfloat16())).value == "fp8"
    engine = type("Linear", (nn.Linear,), {"__module__": "transformer_engine.pytorch.module.linear"})
    layer = engine(16, 16).bfloat16()
    assert precision_of(layer).value == "bf16"  # outside its autocast it computes as any other
    layer.fp8_initialized = True
    assert precision_of(layer).value == "fp8"


def test_tf32_on_a_gpu(on_ampere, monkeypatch):
    def seen(model):
        return precision_of(model, is_under_autocast=False)

    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    assert seen(mlp()).value == "fp32"
    assert seen(convolutional()) == Seen("tf32", "convolutions in TF32")  # as by default
    torch.backends.cudnn.allow_tf32 = False
    assert seen(convolutional()).value == "fp32"
    torch.set_float32_matmul_precision("high")
    assert seen(mlp()) == Seen("tf32", "matrix products in TF32")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (7, 5))
    assert seen(mlp()).value == "fp32"


# -- autocast, seen in a step ------------------------------------------------------------------------------------


def n_hooks(model):
    return sum(len(part._forward_pre_hooks) for part in model.modules())


def is_seen_under_autocast(model, call):
    with autocast_logged(model) as calls:
        call(model)
    assert n_hooks(model) == 0
    return is_mostly_under_autocast(calls)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_around_the_call_is_seen(dtype):
    def call(model):
        with torch.autocast("cpu", dtype=dtype):
            model(torch.randn(2, 8))

    assert is_seen_under_autocast(mlp(), call) is True


def test_hooks_go_when_the_step_raises():
    model = mlp()
    with pytest.raises(RuntimeError), autocast_logged(model):
        assert n_hooks(model) == 1
        model(torch.randn(2, 9))
    assert n_hooks(model) == 0
    copy.deepcopy(model)
    pickle.dumps(model)
