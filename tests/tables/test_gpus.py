from datetime import date

import pytest

from greenlove_tracker.tables.gpus import GpuSpec, gpus
from greenlove_tracker.tables.reading import record, rows


def test_known_figures():
    h100 = gpus()["H100 SXM5 80GB"]
    assert (h100.fp16_tflops, h100.tf32_tflops, h100.fp32_tflops) == (989.4, 494.7, 66.9)  # dense: half of the sparse
    assert (h100.bandwidth_gb_s, h100.memory_gb, h100.tdp_w, h100.year) == (3350, 80, 700, 2022)
    assert gpus()["GeForce RTX 4090"].fp16_tflops == 165.2  # FP32 accumulation, not the 330.3 of FP16
    assert gpus()["A10G"].fp16_tflops == 70  # not the A10's 125
    assert gpus()["Instinct MI250X (one of two GPUs)"].memory_gb == 64  # what ROCm shows of the card's 128


def test_units_and_ranges():
    assert len(gpus()) == len(rows("gpu_specs.csv")) >= 134
    for gpu in gpus().values():
        assert (
            gpu.source
            and gpu.vendor in ("NVIDIA", "AMD")
            and gpu.segment in ("datacentre", "workstation", "desktop", "laptop")
        )
        assert 2014 <= gpu.year <= date.today().year, gpu.name
        assert gpu.fp32_tflops and 3 < gpu.fp32_tflops < 200
        assert gpu.fp16_tflops is None or 10 < gpu.fp16_tflops < 3000
        assert gpu.bandwidth_gb_s and 150 < gpu.bandwidth_gb_s < 10_000  # GB/s, not TB/s
        assert gpu.memory_gb and 4 <= gpu.memory_gb <= 288
        assert gpu.tdp_w and 50 < gpu.tdp_w <= 1400


def test_dense_tensor_rates_keep_their_proportions():
    for gpu in gpus().values():
        if gpu.tf32_tflops:
            assert gpu.fp16_tflops and gpu.fp16_tflops / gpu.tf32_tflops == pytest.approx(2, rel=0.03), gpu.name


def test_fp8_is_dense_accumulates_in_fp32_and_is_where_the_chip_has_it():
    notes = {row["name"]: row["note"] for row in rows("gpu_specs.csv")}
    having = ("Ada", "Hopper", "Blackwell", "CDNA3", "CDNA4", "RDNA4")
    for gpu in gpus().values():
        why = f"{gpu.name}: see greenlove_tracker/data/README.md"
        assert bool(gpu.fp8_tflops) == gpu.architecture.startswith(having), why
        if gpu.fp8_tflops:
            assert gpu.fp16_tflops and gpu.fp8_tflops / gpu.fp16_tflops == pytest.approx(2, rel=0.02), why
            assert ("FP8: recalled" in notes[gpu.name]) != ("FP8:" in gpu.source), why
    assert gpus()["GeForce RTX 4090"].fp8_tflops == 330.3  # not the 660.6 of FP16 accumulation
    assert gpus()["H100 SXM5 80GB"].fp8_tflops == 1978.9  # half of the sparse


@pytest.mark.parametrize("name", ["GeForce GTX 1080 Ti", "P40", "P100 PCIe 16GB", "GeForce GTX 1660 Ti"])
def test_without_tensor_cores_their_rate_is_unknown_not_zero(name):
    assert gpus()[name].fp16_tflops is None and gpus()[name].tf32_tflops is None


def test_an_empty_cell_is_unknown_and_a_wrong_one_is_named():
    row = rows("gpu_specs.csv")[0]
    row["tdp_w"] = ""
    assert record(GpuSpec, row).tdp_w is None
    row["tdp_w"] = "300 W"
    with pytest.raises(ValueError, match=r"gpu_specs\.csv, line 2, column tdp_w: '300 W' is no number"):
        record(GpuSpec, row)
