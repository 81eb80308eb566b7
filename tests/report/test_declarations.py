"""A model card, SCI, and the ledger: from runs whose numbers are known."""

from __future__ import annotations

import csv
import io
import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_samples import GERMANY, cpu_energy, epoch_row, write_run

from greenlove_tracker.cli import cli
from greenlove_tracker.files.writing import write_report
from greenlove_tracker.grid import carbon_intensity, resolve_place
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.report import declarations
from greenlove_tracker.report.declarations import cite
from greenlove_tracker.report.ledger import ledger_csv, ledger_row
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.records import Energy

ONE_KWH = Energy(gpu_kwh=1.0, gpu_method="counter")


def written(tmp_path, run_id="20261121T034044-7f3a", *, energy=ONE_KWH, **arguments):
    """Two epochs of 1 kWh each in Germany: 2 kWh, 762 g."""
    rows = [epoch_row(1, 3600.0, energy), epoch_row(2, 3600.0, energy)]
    return write_run(tmp_path, rows, run_id, **({"intensity": GERMANY} | arguments))


def test_a_model_card_is_yaml(tmp_path):
    yaml = pytest.importorskip("yaml")  # comes with transformers
    written(tmp_path, fields={"gpu_models": "x: [1, 'y'] # \\"})
    assert yaml.safe_load(declarations.model_card(aggregate(tmp_path)))["co2_eq_emissions"] == {
        "emissions": 762,
        "source": "greenlove_tracker 0.1.0, codecarbon 3.3.2; on 2026-11-21 (UTC)",
        "hardware_used": "x: [1, 'y'] # \\",
    }


def test_the_software_carbon_intensity_is_per_unit_and_embodied_is_not_taken_for_nothing(tmp_path):
    written(tmp_path)
    text = declarations.sci(aggregate(tmp_path), "epoch")
    assert text.startswith("SCI = 381.0 gCO2e per epoch, operational emissions only")
    assert "embodied emissions not declared" in text and "2 epochs in 1 training run" in text
    declared = declarations.sci(aggregate(tmp_path), "sample", embodied_gco2e=518.0)  # (762 + 518) g / 1280
    assert declared.startswith("SCI = 1.000 gCO2e per sample\n") and "518 g" in declared
    with pytest.raises(UsageError, match="one of run, epoch"):
        declarations.sci(aggregate(tmp_path), "user")
    with pytest.raises(UsageError, match="counted no tokens"):
        declarations.sci(aggregate(tmp_path), "token")


@pytest.mark.parametrize("declare", [declarations.model_card, lambda a: declarations.sci(a, "run")])
def test_what_is_not_known_is_not_declared(tmp_path, declare):
    write_run(tmp_path, [epoch_row(1, 10.0)])
    with pytest.raises(UsageError, match="not known"):
        declare(aggregate(tmp_path))


def test_the_ledger_says_what_each_run_was_counted_with(tmp_path):
    fields = {"country": "DE", "is_rented": "yes", "market_intensity": "20", "market_intensity.basis": "market-based"}
    found = ledger_row(written(tmp_path, fields=fields))
    wanted = {"energy_kwh": 2.0, "location_kgco2e": 0.762, "market_kgco2e": 0.04, "scope": 3, "measured_share": 1.0}
    assert found | wanted == found and found["location_basis"] == "location-based, lifecycle"
    row = next(csv.DictReader(io.StringIO(ledger_csv([found]))))
    assert row["location_gco2e_per_kwh"] == "381.0" and row["location_year"] == "2023" and row["scope"] == "3"


def test_what_is_unknown_is_empty_in_the_ledger(tmp_path):
    run = write_run(tmp_path, [epoch_row(1, 10.0)], intensity=None)
    row = next(csv.DictReader(io.StringIO(ledger_csv([ledger_row(run)]))))
    assert row["energy_kwh"] == row["location_kgco2e"] == row["market_kgco2e"] == row["location_gco2e_per_kwh"] == ""
    assert row["scope"] == "2"


def test_a_spreadsheet_runs_nothing_that_a_log_says(tmp_path):
    run = written(tmp_path, fields={"project": "=cmd|' /C calc'!A0", "country": "@SUM(1)"})
    row = next(csv.DictReader(io.StringIO(ledger_csv([ledger_row(run)]))))
    assert row["project"].startswith("'=cmd") and row["place"].startswith("'@SUM")


def test_a_run_that_crashed_is_left_out_by_name(tmp_path):
    written(tmp_path)
    write_run(tmp_path, [epoch_row(1, 10.0)], "crashed", status="failed")
    write_run(tmp_path, [epoch_row(1, 10.0)], "killed", status="terminated", exit_code=143)
    for declare in (declarations.model_card, partial(declarations.sci, unit="run")):
        text = declare(aggregate(tmp_path))
        assert "762" in text and "crashed (failed) and killed (terminated)" in text
    write_run(tmp_path, [epoch_row(1, 10.0)], "whole")  # its end was good: what it took would be missing
    with pytest.raises(UsageError, match=r"of 1 run are not known \(whole\)"):
        declarations.model_card(aggregate(tmp_path))


def test_a_part_of_the_logs_that_cannot_be_read_is_not_passed_over(tmp_path):
    written(tmp_path)
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "run.csv").write_text("field,value,unit\nschema_version,99,\n")
    for declare in DECLARE.values():
        assert "could not be read" in declare(aggregate(tmp_path))


def test_direct_and_lifecycle_intensities_are_not_added_up_unsaid(tmp_path):
    for name, place in (("a", "US-CA"), ("b", "US-CA"), ("c", "DE")):
        fields = {"project": "alike" if name == "a" else "mixed"}
        written(tmp_path, run_id=name, intensity=carbon_intensity(resolve_place(place)), fields=fields)
    by_project = aggregate(tmp_path).rows("project")
    assert {row["project"]: row["intensity_coverage"] for row in by_project} == {
        "alike": "direct",
        "mixed": "direct+lifecycle",
    }
    assert "mixing direct and lifecycle" in cite(aggregate(tmp_path))


def test_a_run_that_did_nothing_is_counted_as_that(tmp_path):
    written(tmp_path)
    write_run(tmp_path, [], "died", intensity=GERMANY, status="failed", fields={"epochs_planned": "2"})
    assert "2 epochs in 1 training run\n" in declarations.sci(aggregate(tmp_path), "epoch")
    write_run(tmp_path / "b", [epoch_row(1, 60.0, ONE_KWH)] * 2, "whole", intensity=GERMANY)
    unfinished = epoch_row(1, 60.0, ONE_KWH, flags=["unfinished"])
    write_run(tmp_path / "b", [unfinished], "part", intensity=GERMANY, status="failed")
    assert "2 epochs in 2 training runs" in declarations.sci(aggregate(tmp_path / "b"), "epoch")


def test_a_link_leads_to_its_file_and_a_device_stays_one(tmp_path):
    there, link = tmp_path / "there.md", tmp_path / "link.md"
    link.symlink_to(there)
    write_report(link, "a")
    assert link.is_symlink()
    assert there.read_text() == "a"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_report(tmp_path / "pipe", "b")
    assert os.read(reader, 9) == b"b"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


DECLARE = {
    "cite": cite,
    "model-card": declarations.model_card,
    "sci": lambda found: declarations.sci(found, "epoch"),
}


def test_a_paper_in_latex_compiles_whatever_a_log_says(tmp_path: Path) -> None:
    fields = {"cpu_model": "Xeon_4 & 50% #1 {x} ^~\\", "meter": "codecarbon 3.3.2"}
    write_run(tmp_path, [epoch_row(1, 60.0, cpu_energy(60.0))], fields=fields)
    text = cite(aggregate(tmp_path), latex=True)
    assert r"Xeon\_4 \& 50\% \#1 \{x\} \textasciicircum{}\textasciitilde{}\textbackslash{}" in text
    unescaped = re.findall(r"(?<!\\)[%#&]", re.sub("(?m)^% .*$", "", text.replace(" & ", "")))
    assert not unescaped and text.count("{") == text.count("}")


def ledger_rows(log_dir: Path, *arguments: str) -> tuple[list[dict[str, str]], str]:
    shown = CliRunner().invoke(cli, ["report", str(log_dir), "--format", "ledger", *arguments], catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    return list(csv.DictReader(io.StringIO(shown.stdout))), shown.stderr


def test_simulated_runs_are_left_out_of_the_ledger_unless_asked_for(tmp_path):
    written(tmp_path, "real")
    written(tmp_path, "made-up", fields={"meter": "simulated"})
    rows, said = ledger_rows(tmp_path)
    assert [row["run_id"] for row in rows] == ["real"] and "1 simulated run left out; --include-simulated" in said
    refused = CliRunner().invoke(cli, ["report", str(tmp_path / "made-up"), "--format", "ledger"])
    assert refused.exit_code == 1 and "--include-simulated writes them" in refused.output
    rows, said = ledger_rows(tmp_path, "--include-simulated")
    assert {row["run_id"]: row["simulated"] for row in rows} == {"real": "no", "made-up": "yes"}
    assert "left out" not in said


def test_a_factor_of_another_year_is_flagged(tmp_path):
    for run_id, year in (("old", "2023"), ("same", "2026"), ("span", "2025 to 2027"), ("none", "")):
        written(tmp_path, run_id, intensity=replace(GERMANY, year=year))
    rows, _ = ledger_rows(tmp_path)
    flags = {row["run_id"]: row["factor_year_differs"] for row in rows}
    assert flags == {"old": "yes", "same": "no", "span": "no", "none": ""}


def test_every_column_of_the_ledger_is_explained(tmp_path):
    written(tmp_path / "logs")
    (row,), _ = ledger_rows(tmp_path / "logs")
    page = (Path(__file__).parents[2] / "docs" / "reference" / "ledger.md").read_text(encoding="utf-8")
    assert [name for name in row if f"`{name}`" not in page] == []
    lines = [line for line in page.splitlines() if line.startswith("| `")]
    named = {name for line in lines for name in re.findall("`([a-z_0-9]+)`", line.split("|")[1])}
    assert named == set(row)
