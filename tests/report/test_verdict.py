from pathlib import Path

import pytest
from report_samples import GERMANY, cpu_energy, demo_run, epoch_row, gpu_run, write_run

from greenlove_tracker import aggregate
from greenlove_tracker import format as fmt
from greenlove_tracker.records import Energy, Factor, Method
from greenlove_tracker.rendering import html, markdown, pdf
from greenlove_tracker.report.build import document
from greenlove_tracker.report.run_report import run_document
from greenlove_tracker.report.verdict import directory_scope, directory_verdict, run_scope, run_title, run_verdict

CONTRACT = {
    "market_intensity": "12",
    "market_intensity.unit": "gCO2e/kWh",
    "market_intensity.source": "PPA 2026",
}


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


def test_the_verdict_of_a_run_says_what_it_took_how_sure_that_is_and_how_it_ended(tmp_path) -> None:
    assert run_verdict(gpu_run(tmp_path)) == (
        "This training took 41 min 12 s, 95.9 Wh, 36.6 g of CO2e and $0.040. Hardware measured 91% of the energy; the "
        "rest is modelled or estimated. It finished: 30 of 30 epochs."
    )
    assert run_verdict(demo_run(tmp_path)).startswith("This training took 25.3 s, 0.199 Wh and 0.0913 g of CO2e. None")


def test_a_run_that_did_not_finish_says_so_first(tmp_path) -> None:
    fields = {"epochs_planned": "3"}
    run = write_run(tmp_path, [epoch_row(1, 2.0, cpu_energy(2.0))], status="failed", exit_code=1, fields=fields)
    assert run_verdict(run).endswith("It did not finish: ended by a non-zero exit, exit 1, 1 of 3 epochs.") or (
        "It did not finish: ended by an exception or a non-zero exit" in run_verdict(run)
    )
    unknown = write_run(tmp_path, [epoch_row(1, 2.0)], "a")
    assert "an unknown energy" in run_verdict(unknown) and "$" not in run_verdict(unknown)


def test_scope_place_and_both_totals_are_said(tmp_path) -> None:
    run = write_run(tmp_path, [epoch_row(1, 2.0, cpu_energy(2.0))], fields={"country": "DEU"}, intensity=GERMANY)
    text = run_scope(run, "2026-12-02")
    for part in ("Place: DEU.", "Scope 2:", "location-based", "no contract was given", "Issued on 2026-12-02."):
        assert part in text
    rented = write_run(tmp_path, [epoch_row(1, 2.0, cpu_energy(2.0))], "b", fields={"is_rented": "yes"})
    assert "Scope 3:" in run_scope(rented) and "Issued" not in run_scope(rented)


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
    assert "PPA 2026" in run_scope(aggregate(tmp_path).run("run-1"))


def test_the_verdict_of_a_directory_counts_what_did_not_end_well(tmp_path) -> None:
    gpu_run(tmp_path)
    write_run(tmp_path, [epoch_row(1, 2.0, cpu_energy(2.0))], "a", status="failed", exit_code=1)
    text = directory_verdict(aggregate(tmp_path))
    assert text.startswith("2 training runs took 41 min 14 s") and text.endswith("1 run did not finish.")


def simulated(log_dir: Path, run_id: str = "20261121T034044-7f3a", meter: str = "simulated"):
    return write_run(log_dir, [epoch_row(1, 2.0, cpu_energy(2.0))], run_id, fields={"meter": meter})


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
    assert of_others.stamp == "" and "1 simulated run is left out." in markdown.render(of_others)
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
