"""Training scripts of public repositories, unmodified, plainly and under `python -m greenlove_tracker`: what is seen.

    python benchmarks/public_scripts.py CHECKOUTS [--only TEXT] [--json FILE] [--into benchmarks/tables/runner-loops.md]

CHECKOUTS is a directory with checkouts of the repositories (any of them), under their own names: `examples` (of
pytorch), `nanoGPT`, `minGPT` (karpathy), `pytorch-tutorial` (yunjey), `PyTorch-GAN` (eriklindernoren), `sam` (davda54),
`pygcn` (tkipf). Nothing is downloaded. A script runs in a copy of its repository, which gets synthetic data in the
layout that it expects; packages that may be absent (torchvision, gymnasium, matplotlib) are stood in for by the small
modules below, with images from a generator, an environment of four numbers and plots that draw nothing. The torchvision
below seeds every random state when it is imported, so that scripts that set no seed can be compared.

Each script runs three times:

1. plainly;
2. with its lines counted by `sys.settrace`, which knows nothing of loaders, hooks or optimizers: how often the script's
   own line that begins an epoch, handles a batch and steps was reached, and the samples in it as the script has them;
3. under `python -m greenlove_tracker`.

1 and 3 must have the same exit code, the same standard output but for times (`12.3 ms`, `0.5s`, `00:01 min`, and what a
script names), and byte for byte the same files written: models, samples and pictures. 2 and 3 must agree in epochs,
batches, steps and samples, where there is anything to see. Where a training counts in steps, no epochs are expected:
the log has one row for all of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 300
TIMES = r"\d+:\d\d min|\d+(?:\.\d+)?\s?(?:ms|s|sec|seconds)\b"
BEGIN, END = "<!-- public scripts begin -->", "<!-- public scripts end -->"
COUNTED = ("epochs", "batches", "steps", "samples")

STAND_INS = {
    "torchvision/__init__.py": """
import random
import numpy
import torch
from . import datasets, models, transforms, utils
for seed in (random.seed, numpy.random.seed, torch.manual_seed):
    seed(0)
""",
    "torchvision/datasets.py": """
import torch

class _Images(torch.utils.data.Dataset):
    def __init__(self, n, shape, n_classes, transform, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.data = torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=generator)
        self.targets = torch.randint(0, n_classes, (n,), generator=generator)
        self.transform = transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image = self.data[index]
        return (image if self.transform is None else self.transform(image)), int(self.targets[index])

class MNIST(_Images):
    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(200 if train else 100, (28, 28), 10, transform, seed=int(train))

class CIFAR10(_Images):
    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        super().__init__(100 if train else 50, (3, 32, 32), 10, transform, seed=int(train))

class FakeData(_Images):  # of 40 images at most, whatever is asked for
    def __init__(self, size=1000, image_size=(3, 224, 224), num_classes=10, transform=None):
        super().__init__(min(size, 40), image_size, num_classes, transform)

class ImageFolder:
    pass

class LSUN:
    pass
""",
    "torchvision/transforms.py": """
import numpy
import torch
from torch.nn import functional

class Compose:
    def __init__(self, transforms):
        self.transforms = transforms
    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image

class Lambda:
    def __init__(self, function):
        self.function = function
    def __call__(self, image):
        return self.function(image)

def _tensor(image):
    if not isinstance(image, torch.Tensor):
        image = torch.from_numpy(numpy.asarray(image).copy())
    return image[None] if image.dim() == 2 else image

class ToTensor:
    def __call__(self, image):
        image = _tensor(image)
        return image.float() / 255 if image.dtype == torch.uint8 else image

class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = (torch.as_tensor(v, dtype=torch.float32).view(-1, 1, 1) for v in (mean, std))
    def __call__(self, image):
        return (image - self.mean) / self.std

class Resize:
    def __init__(self, size, interpolation=None):
        self.size = (size, size) if isinstance(size, int) else tuple(size)
    def __call__(self, image):
        image = _tensor(image)
        return functional.interpolate(image[None].float(), self.size)[0].to(image.dtype)

class CenterCrop:
    def __init__(self, size):
        self.size = size
    def __call__(self, image):
        image = _tensor(image)
        top, left = (image.shape[-2] - self.size) // 2, (image.shape[-1] - self.size) // 2
        return image[..., top : top + self.size, left : left + self.size]

class Pad:
    def __init__(self, padding):
        self.padding = padding
    def __call__(self, image):
        return functional.pad(_tensor(image), [self.padding] * 4)

class RandomCrop:
    def __init__(self, size, padding=0):
        self.size = size if isinstance(size, int) else size[0]
        self.pad = Pad(padding)
    def __call__(self, image):
        image = self.pad(image)
        top, left = torch.randint(0, image.shape[-1] - self.size + 1, (2,)).tolist()
        return image[..., top : top + self.size, left : left + self.size]

class RandomHorizontalFlip:
    def __call__(self, image):
        return image.flip(-1) if torch.rand(1) < 0.5 else image

class RandomResizedCrop(Resize):
    pass
""",
    "torchvision/models.py": """
import torch

class _Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 64, kernel_size=7, stride=8, padding=3, bias=False)
        self.avgpool = torch.nn.AdaptiveAvgPool2d(1)
        self.fc = torch.nn.Linear(64, 1000)
    def forward(self, image):
        return self.fc(self.avgpool(self.conv1(image).relu()).flatten(1))

def resnet18(pretrained=False, weights=None):
    return _Small()
""",
    "torchvision/utils.py": """
from pathlib import Path

def save_image(image, path, **options):
    Path(path).write_bytes(image.detach().cpu().contiguous().numpy().tobytes())

def make_grid(image, **options):
    return image
""",
    "matplotlib/__init__.py": """
def use(backend):
    pass
""",
    "matplotlib/pyplot.py": """
def __getattr__(name):
    return lambda *args, **kwargs: None
""",
    "gymnasium/__init__.py": """
import types
import numpy

class _Cart:
    spec = types.SimpleNamespace(reward_threshold=11.0)
    def __init__(self):
        self.random = numpy.random.default_rng(0)
    def reset(self, seed=None):
        if seed is not None:
            self.random = numpy.random.default_rng(seed)
        self.left = int(self.random.integers(5, 25))
        return self.random.normal(size=4), {}
    def step(self, action):
        self.left -= 1
        return self.random.normal(size=4), 1.0, self.left == 0, False, {}

def make(name, render_mode=None):
    return _Cart()
""",
}


def write_text_corpus(here: Path) -> None:
    """Write words, in the layout of wikitext."""
    words = [f"w{(7 * i * i + 3 * i) % 97}" for i in range(1500)]
    for name in ("train", "valid", "test"):
        lines = [" ".join(words[i : i + 15]) for i in range(0, len(words), 15)]
        here.joinpath(f"{name}.txt").write_text("\n".join(lines) + "\n")


def write_wikitext(work: Path) -> None:
    """Write the corpus of word_language_model."""
    (work / "data/wikitext-2").mkdir(parents=True, exist_ok=True)
    write_text_corpus(work / "data/wikitext-2")


def write_tutorial_text(work: Path) -> None:
    """Write the corpus of the tutorial's language model, long enough for its batches."""
    (work / "data").mkdir(exist_ok=True)
    write_text_corpus(work / "data")


def write_tokens(work: Path) -> None:
    """Write the tokens of nanoGPT: 16-bit numbers in train.bin and val.bin."""
    import numpy as np

    (work / "data/tiny").mkdir(parents=True)
    for seed, name in enumerate(("train", "val")):
        tokens = np.random.default_rng(seed).integers(0, 60, 4000, dtype=np.uint16)
        tokens.tofile(work / f"data/tiny/{name}.bin")


def write_characters(work: Path) -> None:
    """Write the text of chargpt, with the letters that it asks for."""
    (work / "input.txt").write_text("O God, O God! how weary, stale, flat and unprofitable.\n" * 40)


def write_sine(work: Path) -> None:
    """Write waves as generate_sine_wave.py does, shorter and fewer."""
    import numpy as np
    import torch

    x = np.arange(60) + np.random.default_rng(2).integers(-80, 80, (10, 1))
    torch.save(np.sin(x / 20), work / "traindata.pt")


def write_pictures(work: Path) -> None:
    """Write pictures in the layout of BSDS300."""
    import numpy as np
    from PIL import Image

    for kind, n in (("train", 6), ("test", 2)):
        folder = work / "dataset/BSDS300/images" / kind
        folder.mkdir(parents=True)
        for number in range(n):
            pixels = np.random.default_rng(number).integers(0, 256, (256, 256, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")


def write_citations(work: Path) -> None:
    """Write a graph in the layout of Cora."""
    import numpy as np

    random = np.random.default_rng(3)
    folder = work.parent / "data/cora"
    folder.mkdir(parents=True, exist_ok=True)
    features = random.integers(0, 2, (1500, 20))
    lines = [f"{i} {' '.join(map(str, row))} class{i % 7}" for i, row in enumerate(features)]
    (folder / "cora.content").write_text("\n".join(lines) + "\n")
    edges = [f"{a} {b}" for a, b in random.integers(0, 1500, (3000, 2))]
    (folder / "cora.cites").write_text("\n".join(edges) + "\n")


@dataclass(frozen=True)
class Script:
    """A script, and the lines of it that are counted; a line is named by what it begins with.

    Attributes:
        epoch: the line reached once each epoch, or the loop over its batches; empty where epochs cannot be seen, since
            no loader shows them.
        batch: the line reached once each batch that a loader handed out.
        step: the line reached once each optimizer step; of several optimizers the one that steps most often.
        samples: an expression for the samples of a batch, in the script's own variables at that line.
        seen: what the run says was seen.
        mask: what differs between any two runs, besides times.
        differs: what is known to be seen otherwise: between two batches the steps of one optimizer count, that with the
            most of them.
        is_racy: its processes print in any order and numbers of any value: lines are sorted, and numbers masked.
    """

    path: str
    arguments: str = ""
    epoch: str = ""
    batch: str = ""
    step: str = ""
    samples: str = ""
    counted_in: str = ""  # the file with those lines, where it is not the script
    seen: str = "epochs"
    prepare: Callable[[Path], None] = lambda work: None
    mask: str = ""
    is_racy: bool = False
    pythonpath: str = ""
    differs: str = ""

    @property
    def name(self) -> str:
        """Script and arguments, short."""
        return f"{self.path} {self.arguments}".strip()


MNIST = {"epoch": "train(args, model", "batch": "optimizer.zero_grad()", "step": "optimizer.step()"}
TUTORIAL = {"batch": "optimizer.zero_grad()", "step": "optimizer.step()", "samples": "len(images)"}
GAN = "PyTorch-GAN/implementations"
BASICS, MIDDLE, ADVANCED = (
    f"pytorch-tutorial/tutorials/{part}" for part in ("01-basics", "02-intermediate", "03-advanced")
)

SCRIPTS = [
    Script("examples/mnist/main.py", "--epochs 3 --no-accel --save-model", **MNIST, samples="len(data)"),
    Script("examples/mnist/main.py", "--epochs 3 --dry-run", **MNIST, samples="len(data)"),
    Script("examples/mnist_rnn/main.py", "--epochs 2 --save-model", **MNIST, samples="len(data)"),
    Script("examples/siamese_network/main.py", "--epochs 2 --no-accel", **MNIST, samples="len(targets)"),
    Script(
        "examples/vae/main.py",
        "--epochs 3 --batch-size 64",
        epoch="train(epoch)",
        batch="optimizer.zero_grad()",
        step="optimizer.step()",
        samples="len(data)",
        prepare=lambda work: (work / "results").mkdir(exist_ok=True),
    ),
    Script(
        "examples/dcgan/main.py",
        "--dataset fake --niter 2 --batchSize 16 --ngf 8 --ndf 8 --manualSeed 1",
        epoch="for i, data in enumerate(dataloader, 0)",
        batch="netD.zero_grad()",
        step="optimizerD.step()",
        samples="len(data[0])",
    ),
    Script(
        "examples/imagenet/main.py",
        "--dummy -a resnet18 -b 16 -j 2 --epochs 2 --seed 1 --no-accel",
        epoch="train(train_loader",
        batch="optimizer.zero_grad()",
        step="optimizer.step()",
        samples="images.size(0)",
        mask=r"(?:Time|Data)\s+[\d.]+ \(\s*[\d.]+\)",
    ),
    Script(
        "examples/super_resolution/main.py",
        "--upscale_factor 2 --batchSize 4 --testBatchSize 2 --nEpochs 2 --threads 1",
        epoch="train(epoch)",
        batch="optimizer.zero_grad()",
        step="optimizer.step()",
        samples="len(input)",
        prepare=write_pictures,
    ),
    Script(
        "examples/time_sequence_prediction/train.py",
        "--steps 3",
        step="optimizer.step(closure)",
        seen="steps",
        prepare=write_sine,
    ),
    Script(
        "examples/regression/main.py",
        seen="no steps",
        is_racy=True,  # no seed
    ),
    Script(
        "examples/word_language_model/main.py",
        "--epochs 2 --emsize 16 --nhid 16 --nlayers 1 --bptt 10 --log-interval 5",
        seen="no steps",  # its own `p.data.add_(p.grad)`
        prepare=write_wikitext,
        mask=r"ms/batch\s+[\d.]+|time:\s+[\d.]+s",
    ),
    Script(
        "examples/word_language_model/main.py",
        "--use-optimizer --epochs 2 --emsize 16 --nhid 16 --nlayers 1 --bptt 10 --log-interval 5",
        step="optimizer.step()",
        seen="steps",
        prepare=write_wikitext,
        mask=r"ms/batch\s+[\d.]+|time:\s+[\d.]+s",
    ),
    Script("examples/mnist_hogwild/main.py", "--epochs 2 --num-processes 2", seen="no steps", is_racy=True),
    Script(
        "examples/mnist_forward_forward/main.py",
        "--epochs 20 --train_size 100 --test_size 50 --no_accel",
        batch="x, y = next(iter(train_loader))",
        step="self.opt.step()",
        samples="100",
        seen="steps",
        differs="steps: 40 counted, 20 seen",  # a layer after the other, each with an optimizer, from one batch
    ),
    Script(
        "examples/reinforcement_learning/reinforce.py",
        step="optimizer.step()",
        seen="steps",
    ),
    Script("examples/reinforcement_learning/actor_critic.py", step="optimizer.step()", seen="steps"),
    Script(
        "nanoGPT/train.py",
        "--dataset=tiny --device=cpu --dtype=float32 --compile=False --max_iters=20 --eval_interval=10 --eval_iters=2 "
        "--gradient_accumulation_steps=2 --batch_size=4 --block_size=16 --n_layer=1 --n_head=2 --n_embd=16",
        step="scaler.step(optimizer)",
        seen="steps",
        prepare=write_tokens,
        mask=r"mfu -?[\d.]+%",
    ),
    Script(
        "minGPT/projects/adder/adder.py",
        "--trainer.max_iters=520 --trainer.num_workers=0 --trainer.batch_size=8 --data.ndigit=1",
        batch="logits, self.loss",
        step="self.optimizer.step()",
        samples="len(x)",
        counted_in="minGPT/mingpt/trainer.py",
        seen="steps",
        pythonpath="minGPT",
    ),
    Script(
        "minGPT/projects/chargpt/chargpt.py",
        "--trainer.max_iters=15 --trainer.num_workers=1 --trainer.batch_size=4 --model.model_type=gpt-nano",
        batch="logits, self.loss",
        step="self.optimizer.step()",
        samples="len(x)",
        counted_in="minGPT/mingpt/trainer.py",
        seen="steps",
        prepare=write_characters,
        pythonpath="minGPT",
    ),
    Script(f"{BASICS}/feedforward_neural_network/main.py", epoch="for i, (images", **TUTORIAL),
    Script(f"{BASICS}/logistic_regression/main.py", epoch="for i, (images", **TUTORIAL),
    Script(f"{BASICS}/linear_regression/main.py", step="optimizer.step()", seen="steps", is_racy=True),
    Script(f"{MIDDLE}/recurrent_neural_network/main.py", epoch="for i, (images", **TUTORIAL),
    Script(f"{MIDDLE}/convolutional_neural_network/main.py", epoch="for i, (images", **TUTORIAL),
    Script(
        f"{MIDDLE}/language_model/main.py",
        step="optimizer.step()",
        seen="steps",
        prepare=write_tutorial_text,
        is_racy=True,
    ),
    Script(
        f"{ADVANCED}/generative_adversarial_network/main.py",
        epoch="for i, (images",
        batch="real_labels",
        step="d_optimizer.step()",
        samples="len(images)",
    ),
    Script(
        f"{ADVANCED}/variational_autoencoder/main.py",
        epoch="for i, (x, _)",
        batch="optimizer.zero_grad()",
        step="optimizer.step()",
        samples="len(x)",
    ),
    Script(
        f"{GAN}/gan/gan.py",
        "--n_epochs 3",
        epoch="for i, (imgs",
        batch="optimizer_D.zero_grad()",
        step="optimizer_D.step()",
        samples="len(imgs)",
    ),
    Script(
        f"{GAN}/wgan/wgan.py",
        "--n_epochs 3 --batch_size 16",
        epoch="for i, (imgs",
        batch="optimizer_D.zero_grad()",
        step="optimizer_D.step()",
        samples="len(imgs)",
    ),
    Script(
        f"{GAN}/wgan_gp/wgan_gp.py",
        "--n_epochs 2 --batch_size 16",
        epoch="for i, (imgs",
        batch="optimizer_D.zero_grad()",
        step="optimizer_D.step()",
        samples="len(imgs)",
    ),
    Script(
        f"{GAN}/infogan/infogan.py",
        "--n_epochs 2 --batch_size 50",
        epoch="for i, (imgs",
        batch="optimizer_D.zero_grad()",
        step="optimizer_D.step()",
        samples="len(imgs)",
    ),
    Script(
        "sam/example/train.py",
        "--epochs 2 --batch_size 32 --depth 10 --width_factor 1 --threads 1",
        epoch="for batch in dataset.train",
        batch="enable_running_stats(model)",
        step="optimizer.second_step",
        samples="len(inputs)",
    ),
    Script(
        "pygcn/pygcn/train.py",
        "--epochs 20",
        step="optimizer.step()",
        seen="steps",
        prepare=write_citations,
        pythonpath="pygcn",
        mask=r"time: [\d.]+s",
    ),
]


@dataclass(frozen=True)
class Ran:
    """What one run of a script left."""

    exit_code: int
    stdout: str
    stderr: str
    files: dict[str, str]
    wall_s: float


def run(script: Script, checkouts: Path, here: Path, stand_ins: Path, words: Sequence[str]) -> Ran:
    """Run a script in a copy of its repository, in which it finds its data."""
    repository = script.path.split("/")[0]
    shutil.copytree(checkouts / repository, here / repository, ignore=shutil.ignore_patterns(".git", "__pycache__"))
    work = (here / script.path).parent
    script.prepare(work)
    before = digests(here)
    path = [str(ROOT), str(stand_ins), str(here / script.pythonpath) if script.pythonpath else ""]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GREENLOVE_")} | {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",  # time_sequence_prediction loads an array
    }
    began_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *words, Path(script.path).name, *script.arguments.split()],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    wall_s = time.perf_counter() - began_s
    written = {name: digest for name, digest in digests(here).items() if before.get(name) != digest}
    return Ran(done.returncode, done.stdout, done.stderr, written, wall_s)


def digests(here: Path) -> dict[str, str]:
    """Return the digest of each file, but for our own log's."""
    return {
        str(path.relative_to(here)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in here.rglob("*")
        if path.is_file() and "greenlove_logs" not in path.parts
    }


def masked(script: Script, text: str, here: Path) -> list[str]:
    """Return the lines of an output, without what differs between any two runs."""
    text = text.replace(str(here), "HERE")
    for pattern in filter(None, (script.mask, TIMES)):
        text = re.sub(pattern, "…", text)
    if script.is_racy:
        return sorted(re.sub(r"[-+]?\d+(?:\.\d+)?(?:e-?\d+)?", "0", text).splitlines())
    return text.splitlines()


def count_lines(plan: str, arguments: list[str]) -> None:
    """Run a script with the lines counted that a plan names, and write how often each was reached.

    Args:
        plan: of JSON: the file with the lines, what each begins with, the expression for samples, where to write.
        arguments: the script and its own.
    """
    wanted = json.loads(plan)
    file = str(Path(wanted["file"]).resolve())
    names: dict[int, list[str]] = {}
    for number, line in enumerate(Path(file).read_text().splitlines(), 1):
        for name in ("epochs", "batches", "steps"):
            if wanted[name] and line.strip().startswith(wanted[name]):
                names.setdefault(number, []).append(name)
    counts = dict.fromkeys(COUNTED, 0)

    def local(frame: types.FrameType, event: str, _: Any) -> Any:
        if event == "line":
            number = frame.f_lineno
            for name in names.get(number, ()):
                counts[name] += 1
                if name == "batches" and wanted["samples"]:
                    counts["samples"] += eval(wanted["samples"], frame.f_globals, frame.f_locals)
        return local

    def trace(frame: types.FrameType, event: str, _: Any) -> Any:
        return local if frame.f_code.co_filename == file else None

    main = types.ModuleType("__main__")
    path = str(Path(arguments[0]).resolve())
    main.__file__ = path
    sys.modules["__main__"], sys.argv, sys.path[0] = main, arguments, str(Path(path).parent)
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    sys.settrace(trace)
    try:
        exec(code, main.__dict__)  # the script, as the runner does
    finally:
        sys.settrace(None)
        if wanted["epochs"].startswith("for "):  # a loop's own line is reached before each turn, and behind the last
            counts["epochs"] -= counts["batches"]
        Path(wanted["result"]).write_text(json.dumps(counts))


def compare(script: Script, checkouts: Path, stand_ins: Path) -> dict[str, Any]:
    """Run a script plainly, counted and tracked, and return what was found."""
    from greenlove_tracker import read_logs

    with tempfile.TemporaryDirectory() as made:
        here = Path(made).resolve()
        places = {name: here / name for name in ("plain", "counted", "tracked")}
        for place in places.values():
            place.mkdir()
        plan = {
            "file": str(places["counted"] / (script.counted_in or script.path)),
            "result": str(here / "counted.json"),
            "epochs": script.epoch,
            "batches": script.batch,
            "steps": script.step,
            "samples": script.samples,
        }
        plain = run(script, checkouts, places["plain"], stand_ins, [])
        run(script, checkouts, places["counted"], stand_ins, [__file__, "--count", json.dumps(plan)])
        tracked = run(script, checkouts, places["tracked"], stand_ins, ["-m", "greenlove_tracker"])
        expected = json.loads((here / "counted.json").read_text())
        runs = read_logs((places["tracked"] / script.path).parent / "greenlove_logs").runs
        seen: dict[str, Any] = dict.fromkeys(COUNTED, None)
        for one in runs:
            counts = one.summary.counts
            seen = {
                "epochs": 0 if one.text("loops_seen") == "steps" else one.summary.epochs_done,
                "batches": counts.batches or 0,
                "steps": counts.steps or 0,
                "samples": counts.samples or 0,
                "loops_seen": one.text("loops_seen"),
                "plan": one.text("plan_source"),
                "energy_kwh": one.summary.energy_kwh,
                "problems": [str(problem) for problem in one.problems],
            }
        differing = {
            name for name in {*plain.files, *tracked.files} if plain.files.get(name) != tracked.files.get(name)
        }
        lines = [masked(script, ran.stdout, places[name]) for name, ran in (("plain", plain), ("tracked", tracked))]
        faults = []
        if plain.exit_code or tracked.exit_code:
            faults.append(f"exit {plain.exit_code} plainly, {tracked.exit_code} tracked")
        if lines[0] != lines[1]:
            pairs = zip(*lines, strict=False)
            faults.append(next((f"stdout: {a!r} became {b!r}" for a, b in pairs if a != b), "stdout: other lines"))
        if differing and not script.is_racy:
            faults.append(f"files: {', '.join(sorted(differing))}")
        if len(runs) != 1:
            faults.append(f"{len(runs)} runs in the log")
        faults += [f"{n}: {expected[n]} counted, {seen[n]} seen" for n in COUNTED if expected[n] != seen[n]]
        if script.differs:
            faults = (
                [fault for fault in faults if fault != script.differs] if script.differs in faults else ["as counted"]
            )
        if seen.get("loops_seen") != script.seen:
            faults.append(f"said to be seen: {seen.get('loops_seen')!r}")
        if seen.get("problems") or "greenlove" in plain.stdout:
            faults.append(f"problems: {seen.get('problems')}")
        screen = " ".join(re.sub(r"[│╭╮╰╯─]", " ", tracked.stderr).split())
        said = re.search(r"(?:found \d|no epochs were seen: ).*?(?= \d+% of this|No energy was|$)", screen)
        return {
            "script": script.name,
            "expected": expected,
            "seen": seen,
            "said": said[0] if said else screen[-300:],
            "n_lines": len(lines[0]),
            "n_files": len(plain.files),
            "plain_s": plain.wall_s,
            "tracked_s": tracked.wall_s,
            "faults": faults,
            "stderr": tracked.stderr[-3000:] if faults else "",
            "plain_stderr": plain.stderr[-1500:] if faults else "",
        }


def table(found: Sequence[dict[str, Any]]) -> str:
    """Return what was found, for a page."""
    rows = [
        "| script | epochs | batches | steps | samples | lines of stdout | files |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for one in found:
        path, _, options = one["script"].partition(" ")
        options = f" `{options[:60]}{'…' if len(options) > 60 else ''}`" if options else ""
        counts = " | ".join(f"{one['seen'][name]:,}" if one["seen"][name] else "–" for name in COUNTED)
        rows.append(f"| {path}{options} | {counts} | {one['n_lines']} | {one['n_files'] or '–'} |")
    n_wrong = sum(bool(one["faults"]) for one in found)
    return f"{len(found)} runs, {n_wrong} with a difference.\n\n" + "\n".join(rows)


def main() -> int:
    """Compare all scripts whose repositories are there, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", default="", help="scripts with this text in their path")
    parser.add_argument("--json", type=Path, help="write all that was found")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="write the table into this page")
    arguments = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as stand_ins:
        for name, text in STAND_INS.items():
            path = Path(stand_ins, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.lstrip())
        print(f"{'epochs':>6} {'batches':>7} {'steps':>6} {'samples':>8} {'lines':>6} {'files':>5}  script")
        for script in SCRIPTS:
            if arguments.only not in script.name:
                continue
            if not (arguments.checkouts / script.path).is_file():
                print(f"{'not there':>43}  {script.path}")
                continue
            one = compare(script, arguments.checkouts, Path(stand_ins))
            found.append(one)
            counts = [one["seen"][name] for name in COUNTED]
            columns = [f"{n if n is not None else '?':>{w}}" for n, w in zip(counts, (6, 7, 6, 8), strict=True)]
            print(*columns, f"{one['n_lines']:>6} {one['n_files']:>5}  {one['script']}", flush=True)
            for fault in one["faults"]:
                print(f"{'':43}  ✗ {fault}", flush=True)
    n_wrong = sum(bool(one["faults"]) for one in found)
    print(f"{len(found)} scripts, {n_wrong} with a difference.")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2))
    if arguments.into:
        from scoring import put_into

        put_into(arguments.into, table(found), BEGIN, END)
    return 1 if n_wrong or not found else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--count"]:
        count_lines(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
