from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest
from pypdf import PdfReader
from report_samples import GPU_FIELDS, cpu_energy, demo_run, epoch_row, gpu_energy, gpu_rows, gpu_run, write_run

from greenlove_tracker import read_logs
from greenlove_tracker.rendering.document import Heading, Table
from greenlove_tracker.report.build import document, write_pdf
from greenlove_tracker.text.format import energy_scale
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import RowKind


def pdf_text(log_dir: Path, page_size: str = "A4") -> str:
    path = write_pdf(log_dir, log_dir.parent / f"{log_dir.name}.pdf", page_size=page_size)
    pages = PdfReader(io.BytesIO(path.read_bytes())).pages
    return " ".join(" ".join(page.extract_text() for page in pages).split())


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "logs"


def test_the_same_logs_give_the_same_bytes(logs: Path, tmp_path: Path) -> None:
    demo_run(logs)
    first, second = write_pdf(logs, tmp_path / "1.pdf"), write_pdf(logs, tmp_path / "2.pdf")
    assert first.read_bytes() == second.read_bytes()


def test_a_total_that_was_changed_is_noticed(logs: Path) -> None:
    run = demo_run(logs)
    file = run.path / "summary.csv"
    file.write_text(re.sub(r"(?m)^energy_kwh,.*$", "energy_kwh,5.0,kWh", file.read_text()))
    read = read_logs(logs).runs[0]
    assert (read.summary.energy_kwh, read.summary.status) == (run.summary.energy_kwh, run.summary.status)
    assert "added up from the rows instead: energy_kwh is not" in str(read.problems[0])
    assert "5.00 kWh" not in pdf_text(logs)


def test_the_parts_of_the_energy_add_up_to_the_total(logs: Path) -> None:
    for run in (demo_run(logs / "a"), gpu_run(logs / "b")):
        rows = [row for block in document(run.path).blocks if isinstance(block, Table) for row in block.rows]
        parts = [text.split() for name, text, *_ in rows if name.startswith("energy: ")]
        scale = energy_scale(run.summary.energy_kwh)
        assert sum(float(part[0]) for part in parts) == pytest.approx(scale.value(run.summary.energy_kwh), rel=0.01)
        assert {part[1] for part in parts} == {f"{scale.unit},"}
    names = [name.removeprefix("energy: ") for name, *_ in rows if name.startswith("energy: ")]
    assert names == ["GPU", "CPU", "RAM", "PUE"]


def test_the_outline_leads_to_every_section(logs: Path, tmp_path: Path) -> None:
    gpu_run(logs)
    titles = [block.text for block in document(logs).blocks if isinstance(block, Heading)]
    reader = PdfReader(write_pdf(logs, tmp_path / "r.pdf"))
    assert [entry.title for entry in reader.outline] == titles
    for entry in reader.outline:
        page = reader.pages[reader.get_destination_page_number(entry)]
        assert entry.title in " ".join(page.extract_text().split())


def test_no_word_of_a_table_is_split(logs: Path, tmp_path: Path) -> None:
    for i in range(12):
        fields = {**GPU_FIELDS, "project": "vision-baselines", "user": "noether", "job_id": f"44131{i}"}
        write_run(logs, gpu_rows(2), f"20261104T1712{i:02d}-91aa", fields=fields, status="interrupted")
    text = pdf_text(logs)
    assert text.count("04 Nov 17:12 · vision-baselines noether 44131") == 10
    assert text.count(" interrupted ") >= 10


def test_no_epoch(logs: Path) -> None:
    write_run(logs, [], fields={"epochs_planned": "3"}, status="failed", exit_code=1)
    text = pdf_text(logs)
    assert "0 of 3 epochs" in text
    assert "nothing was recorded" in text


def test_one_epoch(logs: Path) -> None:
    write_run(logs, [epoch_row(1, 2.0, cpu_energy(2.0))])
    assert "1 of 1 epoch" in pdf_text(logs, "Letter")


@pytest.mark.slow
def test_an_interrupted_run(logs: Path) -> None:
    rows = [*gpu_rows(3), epoch_row(4, 20.0, gpu_energy(20.0), kind=RowKind.SEGMENT)]
    run = write_run(logs, rows, status=None, fields=GPU_FIELDS)
    for path in run.path.iterdir():
        os.utime(path, (0.0, 0.0))  # one that was just written elsewhere would be running
    text = pdf_text(logs)
    assert "No summary was written: the totals are added up from the rows." in text
    assert "interrupted" in text


def test_no_energy_at_all(logs: Path) -> None:
    write_run(logs, [epoch_row(i, 2.0) for i in (1, 2, 3)], fields={"meter": "none", "gpu_count": ""})
    text = pdf_text(logs)
    assert "No energy was measured: no meter was running." in text
    assert "compare to" not in text


def test_text_from_logs_is_data(logs: Path) -> None:
    hostile = "<b>bold</b> & <para> &amp; \u202eright\u202c שלום é ß Ω ✓ Кот 模 \x1b[1m\n" + "w" * 5000
    write_run(logs, gpu_rows(3), "r1", fields={**GPU_FIELDS, "project": hostile, "command": hostile, "host": hostile})
    write_run(logs, gpu_rows(3), "r2", fields={**GPU_FIELDS, "project": hostile, "gpu_models": "</para><br/>"})
    (logs / "<i>junk&").mkdir()
    for path in (logs / "r1", logs):
        text = pdf_text(path)
        assert "<b>bold</b> & <para>" in text
    assert "</para><br/>" in text
    assert "<i>junk&" in text


def test_what_cannot_be_reported_is_refused(logs: Path, tmp_path: Path) -> None:
    logs.mkdir()
    with pytest.raises(UsageError, match="holds no run"):
        write_pdf(logs, tmp_path / "x.pdf")
    demo_run(logs)
    with pytest.raises(UsageError, match='page_size must be "A4" or "Letter"'):
        write_pdf(logs, tmp_path / "x.pdf", page_size="A5")
    with pytest.raises(UsageError, match="cannot write"):
        write_pdf(logs, logs)
