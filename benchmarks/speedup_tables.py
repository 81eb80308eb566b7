"""The tables that speedups are fitted to and scored on: each row one measured speed, in a cell of comparable rows.

The tables lie outside the project (they are bulk extracts of others' work); ``--tables`` names the directory. Each was
read on 2026-11-21; their publishers stand in ``SOURCES``. The few rows of GeForce cards are in ``data/``.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from greenlove_tracker.tables.gpus import GpuSpec, gpus

SOURCES = {
    "lambda": "Lambda, github.com/lambdal/deeplearning-benchmark @705355b8, @200af3b7, @4e11f689, @67a9bb51",
    "mlperf": "MLPerf Training v0.7 to v5.0 result logs, closed division, one node (github.com/mlcommons; computed "
    "here, not verified by MLCommons Association)",
    "llm-foundry": "MosaicML, github.com/mosaicml/llm-foundry @8c8dd48f, scripts/train/benchmarking (Apache-2.0)",
    "neusight": "NeuSight, github.com/sitar-lab/NeuSight @6945927d, measured training iterations (MIT)",
    "zeus": "Zeus, github.com/ml-energy/zeus @75a8b939, NSDI'23 traces (Apache-2.0)",
    "geforce": "timm's training benchmark on RTX 3090, 4090 and 5090 (Nikolas Ent, 2025-02-17, "
    "github.com/NikolasEnt/NikolasEnt.github.io @0c448eda) and Qwen3 1.7B on RTX 5090 and H100 (Scicom, "
    "github.com/Scicom-AI-Enterprise-Organization/small-ablation)",
}
# The post's EfficientViT is left out: its RTX 3090 and 4090 are no faster in fp16, so something else held them up.
_GEFORCE = Path(__file__).parent / "data" / "geforce_training.csv"
_UNUSABLE = ("implausible", "do not use", "ceiling", "outlier", "super-linear")  # in a flag of Lambda's rows

WORKLOADS = {
    "vision": {"resnet50", "ssd", "maskrcnn", "resnet", "retinanet", "unet3d", "stable_diffusion", "shufflenetv2"}
    | {"vgg16", "tf_efficientnetv2_b0", "swin_base_patch4_window7_224"},
    "language": {"bert_base_squad", "bert_large_squad", "gnmt", "transformerxlbase", "transformerxllarge", "bert"}
    | {"transformer", "llama2_70b_lora", "bert_base_uncased", "bert_large", "gpt2_large", "qwen3-1.7b"},
    "speech": {"tacotron2", "waveglow", "rnnt", "deepspeech2"},
    "recommendation": {"ncf", "dlrm", "dlrm_dcnv2"},
    "graph": {"gnn", "rgat"},
    "other": {"minigo"},
}
_WORKLOAD_OF = {task: workload for workload, tasks in WORKLOADS.items() for task in tasks}

# Names of the tables that differ from ours; None: which GPU it is, is not told.
_NAMES: dict[str, str | None] = {
    "A100 SXM 40GB": "A100 SXM4 40GB",
    "A100 SXM 80GB": "A100 SXM4 80GB",
    "A100-40": "A100 SXM4 40GB",
    "A100-80": "A100 SXM4 80GB",
    "AMD_Instinct_MI100": "Instinct MI100",
    "AMD_Instinct_MI210": "Instinct MI210",
    "AMD_Instinct_MI250": None,
    "B200": "B200 SXM",
    "GH200 (labelled 80GB)": None,
    "GeForce RTX 2070 Max-Q (laptop)": None,
    "GeForce RTX 2080 Max-Q (laptop)": None,
    "GeForce RTX 2080 Super Max-Q (laptop)": "GeForce RTX 2080 Super with Max-Q Design",
    "GeForce RTX 3080": "GeForce RTX 3080 10GB",
    "GeForce RTX 3080 Laptop (Max-Q)": "GeForce RTX 3080 Laptop GPU 16GB",
    "H100": "H100 SXM5 80GB",
    "H100fp8": "H100 SXM5 80GB",
    "H100 PCIe": "H100 PCIe 80GB",
    "H100 SXM": "H100 SXM5 80GB",
    "H100 SXM 96GB (variant)": None,
    "H200 SXM 141GB": "H200 SXM",
    "MI300X": "Instinct MI300X",
    "MI325X": "Instinct MI325X",
    "NVIDIA_A100-SXM4-40GB": "A100 SXM4 40GB",
    "NVIDIA_A100_80GB_PCIe": "A100 PCIe 80GB",
    "NVIDIA_H100_80GB_HBM3": "H100 SXM5 80GB",
    "NVIDIA_L4": "L4",
    "RTX 4090": "GeForce RTX 4090",
    "RX 7900 XTX": "Radeon RX 7900 XTX",
    "Tesla_V100-PCIE-32GB": "V100 PCIe 32GB",
    "V100 16GB SXM2": "V100 SXM2 16GB",
    "V100 32GB": None,
    "V100 SXM2/3": "V100 SXM2 32GB",
}
_ZEUS = {"a40": "A40", "v100": "V100 PCIe 32GB", "p100": "P100 PCIe 16GB", "rtx6000": "Quadro RTX 6000"}


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured speed.

    Attributes:
        table: that it stands in, a key of ``SOURCES``.
        edition: of the software, or the round.
        gpu: our canonical name.
        count: GPUs together.
        precision: ``fp32`` (CUDA cores), ``tf32``, ``bf16`` (mixed precision, fp16 too), ``fp8``; ``zeus`` where it
            is not stated.
        task: what was trained.
        workload: the class of that.
        stack: ``ordinary`` PyTorch, or a ``vendor``'s tuned one.
        cell: rows of one cell differ in nothing but the GPU: only their ratios say anything.
        log_speed: natural logarithm of work a second, in any unit.
    """

    table: str
    edition: str
    gpu: str
    count: int
    precision: str
    task: str
    workload: str
    stack: str
    cell: str
    log_speed: float


def observations(tables: Path, *, is_single: bool = True) -> list[Observation]:
    """Return all usable rows whose cell has two GPUs or more, each speed once.

    Args:
        tables: the directory.
        is_single: of Lambda's rows those of one GPU only; the others say nothing more of the GPU.
    """
    found = [row for row in _all(tables) if not (is_single and row.table == "lambda" and row.count != 1)]
    once = {(r.table, r.gpu, r.task, r.precision, r.count, r.cell.rpartition("|")[0], r.log_speed): r for r in found}
    in_cell = defaultdict(set)
    for row in once.values():
        in_cell[row.cell].add((row.gpu, row.precision))
    return [row for row in once.values() if len(in_cell[row.cell]) > 1]


def _all(tables: Path) -> Iterator[Observation]:
    yield from _lambda(tables)
    yield from _mlperf(tables)
    yield from _llm_foundry(tables)
    yield from _neusight(tables)
    yield from _zeus(tables)
    yield from _geforce()


def _lambda(tables: Path) -> Iterator[Observation]:
    seen = set()
    for row in _rows(tables / "lambda_benchmarks.csv"):
        gpu = _gpu(row["gpu"])
        if gpu is None or any(word in row["flag"] for word in _UNUSABLE):
            continue
        label, edition, count = row["precision_label"], row["generation"].split()[0], int(row["num_gpu"])
        value = (gpu.name, row["task"], label, count, row["throughput"])
        if value in seen:  # v1_v2 holds rows of v1 and of v2 again
            continue
        seen.add(value)
        precision = "bf16" if label == "fp16" else "tf32" if gpu.tf32_tflops else "fp32"
        cell = f"lambda|{edition}|{row['task']}|{label}|{count}"
        speed = math.log(float(row["throughput"]))
        yield _observation("lambda", edition, gpu, count, precision, row["task"], "ordinary", cell, speed)


def _mlperf(tables: Path) -> Iterator[Observation]:
    for row in _rows(tables / "mlperf_single_node.csv"):
        gpu, task, edition = _gpu(row["gpu"]), row["benchmark"], row["mlperf_round"]
        if gpu is None or row["software"] != "vendor stack":
            continue
        # Five rows of July 2020 name an A10, which NVIDIA announced in April 2021; their times are an A100's.
        if gpu.year > int(row["round_date"][:4]):
            continue
        cell, speed = f"mlperf|{edition}|{task}|{row['gpus']}", -math.log(float(row["median_minutes"]))
        yield _observation("mlperf", edition, gpu, int(row["gpus"]), "bf16", task, "vendor", cell, speed)


def _llm_foundry(tables: Path) -> Iterator[Observation]:
    for row in _rows(tables / "llm_foundry_throughput.csv"):
        gpu, count = _gpu(row["gpu"]), int(row["gpus"])
        precision = "fp8" if row["gpu"].endswith("fp8") else "bf16"
        cell = f"llm-foundry|{row['model']}|{row['seq_len']}|{count}"
        speed = math.log(float(row["tokens_per_s_per_gpu"]) * count)
        if gpu is not None:
            yield _observation("llm-foundry", "", gpu, count, precision, f"mpt-{row['model']}", "ordinary", cell, speed)


def _neusight(tables: Path) -> Iterator[Observation]:
    for row in _rows(tables / "neusight_train_fp32.csv"):
        gpu, task = _gpu(row["gpu"]), row["task"]
        count = 4 if task.endswith(("dp4", "tp4", "pp4_1")) else 1
        speed = -math.log(float(row["ms_per_iteration"]))
        if gpu is not None:
            model = task.partition("-")[0]
            yield _observation("neusight", "", gpu, count, "fp32", model, "ordinary", f"neusight|{task}", speed)


def _zeus(tables: Path) -> Iterator[Observation]:
    """Yield the epochs at the highest power limit, which is the card's own."""
    for file, name in _ZEUS.items():
        rows = list(_rows(tables / "gpu-runs" / f"zeus_power_{file}.csv"))
        highest = max(int(row["power_limit"]) for row in rows)
        for row in rows:
            if int(row["power_limit"]) == highest:
                task = row["network"]
                cell = f"zeus|{row['dataset']}|{task}|{row['batch_size']}|{row['optimizer']}"
                speed = -math.log(float(row["time_per_epoch"]))
                yield _observation("zeus", "", gpus()[name], 1, "zeus", task, "ordinary", cell, speed)


def _geforce() -> Iterator[Observation]:
    for row in _rows(_GEFORCE):
        cell, speed = f"geforce|{row['task']}|{row['precision']}", math.log(float(row["speed"]))
        yield _observation("geforce", "", gpus()[row["gpu"]], 1, row["precision"], row["task"], "ordinary", cell, speed)


def _observation(
    table: str, edition: str, gpu: GpuSpec, count: int, precision: str, task: str, stack: str, cell: str, speed: float
) -> Observation:
    workload = _WORKLOAD_OF.get(task, "language" if task.startswith("mpt-") else "")
    if not workload:
        raise SystemExit(f"{table}: {task} is in no class of workload (WORKLOADS in {Path(__file__).name})")
    return Observation(table, edition, gpu.name, count, precision, task, workload, stack, cell, speed)


def _gpu(name: str) -> GpuSpec | None:
    ours = _NAMES.get(name, name)
    return None if ours is None else gpus()[ours]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))
