import pytest

from greenlove_tracker.errors import GreenloveError
from greenlove_tracker.tables.gpus import gpu_benchmarks, gpus, parse_benchmark, parse_gpu
from greenlove_tracker.tables.reading import rows


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
        assert gpu.vendor in ("NVIDIA", "AMD") and gpu.segment in ("datacentre", "workstation", "desktop", "laptop")
        assert 2014 <= gpu.year <= 2026
        assert gpu.fp32_tflops and 3 < gpu.fp32_tflops < 200
        assert gpu.fp16_tflops is None or 10 < gpu.fp16_tflops < 3000
        assert gpu.bandwidth_gb_s and 150 < gpu.bandwidth_gb_s < 10_000  # GB/s, not TB/s
        assert gpu.memory_gb and 4 <= gpu.memory_gb <= 288
        assert gpu.tdp_w and 50 < gpu.tdp_w <= 1400


def test_dense_tensor_rates_keep_their_proportions():
    for gpu in gpus().values():
        if gpu.tf32_tflops:
            assert gpu.fp16_tflops and gpu.fp16_tflops / gpu.tf32_tflops == pytest.approx(2, rel=0.03), gpu.name


@pytest.mark.parametrize("name", ["GeForce GTX 1080 Ti", "P40", "P100 PCIe 16GB", "GeForce GTX 1660 Ti"])
def test_without_tensor_cores_their_rate_is_unknown_not_zero(name):
    assert gpus()[name].fp16_tflops is None and gpus()[name].tf32_tflops is None


def test_benchmarks_are_of_single_gpus_of_the_table_and_none_twice():
    found = gpu_benchmarks()
    assert len(found) > 700 and {row.precision for row in found} == {"fp16", "fp32"}
    assert {row.generation for row in found} == {"v0", "v1", "v1_v2", "v2"}
    assert {row.unit for row in found if row.task == "resnet50"} == {"images/s"}
    table = rows("gpu_benchmarks.csv")
    keys = [(r["generation"], r["gpu"], r["system"], r["precision"], r["task"]) for r in table]
    assert len(set(keys)) == len(keys)
    assert all("lambdal/deeplearning-benchmark" in r["source"] for r in table)


def test_a_published_throughput():
    (row,) = (
        r
        for r in gpu_benchmarks()
        if (r.generation, r.gpu, r.precision, r.task) == ("v1_v2", "GeForce RTX 4090", "fp16", "resnet50")
    )
    assert (row.throughput, row.unit) == (1301, "images/s")


def test_flagged_figures_are_the_two_bound_by_the_host():
    flagged = {(r.gpu, r.task, r.precision) for r in gpu_benchmarks() if r.flag}
    assert flagged == {("B200 SXM", "resnet50", "fp16"), ("H200 SXM", "resnet50", "fp16")}


@pytest.mark.parametrize("column", ["unit", "source", "gpu", "task"])
def test_a_benchmark_without_a_unit_is_refused(column):
    row = {**rows("gpu_benchmarks.csv")[0], column: ""}
    with pytest.raises(GreenloveError, match=f"has no {column}"):
        parse_benchmark(row)


def test_a_specification_without_its_column_or_out_of_range_is_refused():
    row = rows("gpu_specs.csv")[0]
    without = {key: value for key, value in row.items() if key != "bandwidth_gb_s"}
    with pytest.raises(GreenloveError, match="bandwidth_gb_s is missing"):
        parse_gpu(without)
    with pytest.raises(GreenloveError, match="out of range"):
        parse_gpu({**row, "fp32_tflops": "-1"})
    with pytest.raises(GreenloveError, match="has no source"):
        parse_gpu({**row, "source": ""})


def test_an_empty_cell_is_unknown():
    assert parse_gpu({**rows("gpu_specs.csv")[0], "tdp_w": ""}).tdp_w is None
