import csv
import re
from pathlib import Path

import pytest

from greenlove_tracker.projection import catalogue
from greenlove_tracker.projection.catalogue import counted, recognise, software_notes
from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.vocabulary.errors import UsageError

with (Path(__file__).parents[1] / "recorded" / "device_names.csv").open(encoding="utf-8") as file:
    SEEN = list(csv.DictReader(file))


def _memory(row):
    return float(row["memory_gb"]) if row["memory_gb"] else None


@pytest.mark.slow_cases
@pytest.mark.parametrize("row", [r for r in SEEN if r["expected"]], ids=lambda r: f"{r['name']} {r['memory_gb']}")
def test_a_name_that_was_seen_is_its_gpu(row):
    assert recognise(row["name"], _memory(row)).name == row["expected"]


@pytest.mark.slow_cases
@pytest.mark.parametrize("row", [r for r in SEEN if not r["expected"]], ids=lambda r: f"{r['name']} {r['memory_gb']}")
def test_a_trap_is_no_gpu_of_the_table(row):
    with pytest.raises(UsageError):
        recognise(row["name"], _memory(row))


def test_every_name_is_of_one_gpu_or_is_told_apart_by_memory():
    shared = set()
    for gpu in gpus().values():
        for name in (gpu.name, *gpu.aliases):
            try:
                assert recognise(name) is gpu
            except (AssertionError, UsageError):  # several are called so; a driver shows 6% less to 7% more
                shared.add(name)
                assert all(recognise(name, gpu.memory_gb * share) is gpu for share in (0.94, 1.0, 1.07)), name
    assert "NVIDIA GeForce RTX 3080" in shared


def test_of_several_of_a_name_the_common_one_is_meant_and_said_once(caplog):
    common = {"H100": "H100 SXM5 80GB", "A100 80GB": "A100 SXM4 80GB", "V100": "V100 SXM2 16GB"}
    common |= {"RTX 3060": "GeForce RTX 3060 12GB", "NVIDIA GeForce RTX 3080": "GeForce RTX 3080 10GB"}
    catalogue._common.cache_clear()
    for _ in range(2):
        assert {name: recognise(name).name for name in common} == common
    assert [record.args[0] for record in caplog.records] == list(common)
    assert "'H100' is taken as H100 SXM5 80GB; others of that name: H100 NVL 94GB, H100 PCIe 80GB" in caplog.text


@pytest.mark.parametrize(
    ("local", "target", "says"),
    [
        ("NVIDIA", "AMD", "ROCm build"),
        ("", "AMD", "ported to HIP"),
        ("AMD", "NVIDIA", "CUDA build"),
        ("AMD", "AMD", ""),
        ("NVIDIA", "NVIDIA", ""),
        ("", "NVIDIA", ""),
    ],
)
def test_what_another_makers_software_asks_for(local, target, says):
    notes = software_notes(local, target)
    assert bool(notes) == bool(says) and all(says in note for note in notes)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("A6000", "RTX A6000"),
        ("RTX3090", "GeForce RTX 3090"),
        ("4090", "GeForce RTX 4090"),
        ("RX 7900 XTX", "Radeon RX 7900 XTX"),
        ("H100 HGX 80GB", "H100 SXM5 80GB"),
        ("h100 pcie", "H100 PCIe 80GB"),
        ("3080 Ti laptop", "GeForce RTX 3080 Ti Laptop GPU"),
        ("GTX 1080Ti", "GeForce GTX 1080 Ti"),
        ("Quadro 8000", "Quadro RTX 8000"),
        ("RTX6000Ada", "RTX 6000 Ada"),
        ("RTX 3090 24GB", "GeForce RTX 3090"),
        ("rtx 3080 12gb", "GeForce RTX 3080 12GB"),
        ("4070 Ti Super", "GeForce RTX 4070 Ti SUPER"),
        ("L40s", "L40S"),
        ("MI250", "Instinct MI250 (one of two GPUs)"),
        ("a100-sxm-80g", "A100 SXM4 80GB"),
        ("nvidia geforce rtx 4090", "GeForce RTX 4090"),
        ("RTX-4090", "GeForce RTX 4090"),
        ("H200 SXM5", "H200 SXM"),
        ("NVIDIA GB300 NVL72", "GB300"),
        ("AMD MI300X OAM", "Instinct MI300X"),
        ("NVIDIA GeForce RTX 5060 Ti 16GB", "GeForce RTX 5060 Ti 16GB"),
    ],
)
def test_names_as_people_write_them(name, expected):
    assert recognise(name).name == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RTX 6000", "RTX 6000 Ada or Quadro RTX 6000"),
        ("GeForce RTX 4095", "the nearest names are"),
        ("GTX 1660", "no GPU of the table is called 'GTX 1660'"),  # another card than the 1660 Ti
        ("NVIDIA H100", "no GPU of the table"),  # as a driver prints it: another card than those known
        ("80GB", "no GPU of the table"),
        ("RTX", "no GPU of the table"),
        ("", "no GPU of the table"),
        ("NVIDIA", "no GPU of the table"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "MIG or vGPU"),
        ("GRID A100-10C", "MIG or vGPU"),
        ("NVIDIA L40S 24GB", "no GPU of the table"),  # another memory, another form
        ("H100 SXM4", "no GPU of the table"),
    ],
)
def test_what_is_not_one_gpu_is_asked_or_refused(name, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        recognise(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8 x A100 SXM4 80GB", (8, "A100 SXM4 80GB")),
        ("4×L40S", (4, "L40S")),
        (" L40S ", (None, "L40S")),
        ("0 x L40S", (None, "0 x L40S")),
    ],
)
def test_a_number_before_a_name_is_of_gpus(text, expected):
    assert counted(text) == expected
