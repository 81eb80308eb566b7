from pathlib import Path

import pytest
from report_samples import GERMANY, cpu_energy, demo_run, epoch_row, write_run

from greenlove_tracker import aggregate
from greenlove_tracker.rendering import html, markdown, pdf, terminal
from greenlove_tracker.rendering.document import KeyFigures
from greenlove_tracker.report.build import document
from greenlove_tracker.report.directory_report import directory_scope
from greenlove_tracker.report.run_report import run_document, run_scope, run_title
from greenlove_tracker.text import format as fmt
from greenlove_tracker.vocabulary.records import Energy, Factor, Method


@pytest.mark.parametrize(
    ("project", "command", "title"),
    [
        ("thesis", "train.py --lr 3e-4", "thesis: train.py"),
        ("", "/home/ada/code/train.py", "train.py"),
        ("", "torchrun --nproc-per-node 4 train.py", "train.py"),
        ("", "julia train.jl", "julia"),
        ("demo", "/venv/greenlove_tracker/__main__.py demo", "demo"),
        ("", "say 'no end", "say"),
        ("", "", "20261121T034044-7f3a"),
    ],
)
def test_a_report_is_called_what_people_call_the_run(tmp_path, project, command, title) -> None:
    run = write_run(tmp_path, [epoch_row(1, 1.0)], fields={"project": project, "command": command})
    assert run_title(run) == title


def test_market_based_emissions_are_summed_and_what_has_no_contract_is_counted(tmp_path) -> None:
    energy = Energy(gpu_kwh=1.0, gpu_method=Method.COUNTER)
    market = Factor("market_intensity", 12.0, "gCO2e/kWh", "PPA 2026", "", "market-based")
    for number in range(3):
        price = market if number else None  # written as a factor of that name
        write_run(tmp_path, [epoch_row(1, 10.0, energy)], f"run-{number}", price=price)
    logs = aggregate(tmp_path)
    total = logs.total
    assert total.market_kgco2e == pytest.approx(0.024) and total.n_unknown_market == 1
    text = "Market-based: 24.0 g for the 2.00 kWh under contract. 1.00 kWh had no contract: 458 g, location-based."
    assert text in directory_scope(logs)
    assert "PPA 2026" in " ".join(run_scope(next(run for run in aggregate(tmp_path).runs if run.run_id == "run-1")))


def simulated(log_dir: Path, run_id: str = "20261121T034044-7f3a", meter: str = "simulated"):
    return write_run(log_dir, [epoch_row(1, 2.0, cpu_energy(2.0))], run_id, fields={"meter": meter})


def test_only_energy_that_no_machine_drew_is_said_to_be_simulated(tmp_path) -> None:
    asked = {"intensity_order": "mock", "intensity_sources": "mock"}
    run = write_run(tmp_path, [epoch_row(1, 2.0, cpu_energy(2.0))], fields=asked)
    page = run_document(run)
    assert run.is_simulated and "no machine drew it" not in page.verdict
    (figures,) = [block for block in page.blocks if isinstance(block, KeyFigures)]
    assert "simulated" not in [figure.note for figure in figures.figures]


def test_simulated_runs_are_stamped_in_every_format(tmp_path) -> None:
    content = run_document(simulated(tmp_path))
    assert content.stamp == "SIMULATED" and "That is simulated: no machine drew it." in content.verdict
    assert '<p class="stamp">SIMULATED</p>' in html.render(content) and "**SIMULATED**" in markdown.render(content)
    from io import BytesIO

    from pypdf import PdfReader

    pages = PdfReader(BytesIO(pdf.render(content))).pages
    assert len(pages) > 1 and all("SIMULATED" in page.extract_text() for page in pages)
    simulated(tmp_path, "b", meter="codecarbon 3.3.2")
    assert document(tmp_path, simulated=True).stamp == "SIMULATED: 1 of 2 runs"
    simulated(tmp_path, "c", meter="codecarbon 3.3.2")
    of_others = document(tmp_path)  # no total adds what was measured to what was made up
    assert of_others.stamp == "" and "1 simulated run is left out;" in terminal.render(of_others)
    assert run_document(demo_run(tmp_path / "measured")).stamp == ""


def test_emissions_are_split_by_scope(tmp_path) -> None:
    for number, is_rented in enumerate(("", "yes", "yes")):
        fields = {"is_rented": is_rented} if is_rented else {}
        write_run(tmp_path, [epoch_row(1, 2.0, cpu_energy(2.0))], f"run-{number}", fields=fields, intensity=GERMANY)
    logs = aggregate(tmp_path)
    whole = logs.total.emissions_kgco2e
    text = directory_scope(logs)
    assert f"Scope 2: {fmt.mass(whole / 3)} (1 run on owned machines)." in text
    assert f"Scope 3: {fmt.mass(whole * 2 / 3)} (2 runs on rented machines)." in text
