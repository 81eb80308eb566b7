from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from projection_samples import LAPTOP, explored

from greenlove_tracker.cli import cli

pytestmark = pytest.mark.usefixtures("no_settings")


def call(*arguments: str):
    return CliRunner().invoke(cli, ["project", *arguments])


def test_the_decision_keeps_the_limits_where_it_can() -> None:
    arguments = ("--gpu", "T4", "--hours", "20", "--country", "DE")
    record = json.loads(call(*arguments, "--within", "8h", "--max-cost", "40", "--json").stdout)
    decision = record["decision"]
    by_name = {(p["gpu"], p["gpus_billed"]): p for p in record["projections"]}
    chosen = by_name[decision["recommended"]["gpu"], decision["recommended"]["gpus"]]
    assert chosen["duration_s"] <= 8 * 3600 and chosen["cost_usd"] <= 40 and 0.5 <= decision["meets_limits"] <= 1
    never = json.loads(call(*arguments, "--within", "1s", "--json").stdout)["decision"]
    assert never["recommended"] is None or never["meets_limits"] < 0.5


def test_what_moving_saves_in_co2e_stands_beside_money_and_time() -> None:
    """In Poland it emits less there, in Norway more; what is of lifecycle and what of direct emissions is said."""
    arguments = ("--gpu", "RTX 3090", "--hours", "100", "--utilization", "0.8", "--within", "60h", "--json")
    for country, than in (("PL", "less"), ("NO", "more")):
        record = json.loads(call(*arguments, "--country", country).stdout)
        by_name = {(p["gpu"], p["gpus_billed"]): p["emissions_kgco2e"] for p in record["projections"]}
        chosen = record["decision"]["recommended"]
        said = record["decision"]["reasons"][0]
        kg, found, percent = re.search(r"emits ([\d.]+) kg CO2e (less|more) than here, (\d+)% \[", said).groups()
        here = record["projections"][0]["emissions_kgco2e"]
        saved = abs(here - by_name[chosen["gpu"], chosen["gpus"]])
        assert found == than and said.endswith("lifecycle here against direct emissions there.")
        assert float(kg) == pytest.approx(saved, rel=0.05) and int(percent) == pytest.approx(100 * saved / here, abs=1)


def test_of_the_machine_here_no_saving_is_told() -> None:
    said = call("--gpu", "RTX 4090", "--hours", "20", "--country", "DE", "--json").stdout
    record = json.loads(said)["decision"]
    assert record["recommended"]["obtained"] == "here" and not any("CO2e" in text for text in record["reasons"])


def test_the_command_on_a_log_in_every_style(logs: Path, tmp_path: Path) -> None:
    explored(logs)
    assert LAPTOP.removeprefix("GeForce ") in " ".join(call(str(logs), "-v").stdout.split())
    wanted = call(str(logs), "--gpus", "4", "--csv").stdout.splitlines()
    assert {r["gpu"]: r["gpus_billed"] for r in csv.DictReader(wanted)}["L40S"] == "4"
    assert call(str(logs), "-o", "x.html").exit_code == 0
    assert "Here and on other machines" in (tmp_path / "x.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "there is no nowhere: track a run first, or name the directory of its logs"),
        (
            ["--gpu", "RTX 409", "--hours", "1"],
            "write one of them where it is meant, or give your own figure by --speedup",
        ),
        (["--hours", "1", "--provider", "nobody"], "no offers of provider 'nobody'"),
        (["--hours", "1", "--country", "Germny"], "Germany"),
        (["--hours", "1", "--workload", "cooking"], "--workload must be language, vision"),
        (["--hours", "1", "--precision", "int4"], "--precision must be fp32, tf32, bf16 or fp8"),
        (["--hours", "1", "--interconnect", "string"], "--interconnect must be"),
        (["--hours", "1", "--within", "soon"], "--within is a length of time (6h"),
        (["--hours", "1", "--within", "0h"], "has passed"),
        (["--hours", "1", "--within", "2020-01-01T08:00"], "--within '2020-01-01T08:00' has passed"),
        (["--hours", "1", "--max-cost", "-3"], "--max-cost must be a positive number"),
        (["--hours", "1", "--pue", "0.5"], "pue must be at least 1"),
        (["--hours", "1", "--utilization", "82"], "a share from 0 to 1"),
        (["--hours", "1", "--tdp", "115"], "--tdp is the power limit of a GPU here: name it with --gpu"),
        (["--hours", "1", "--json", "--csv"], "choose one"),
        (["--hours", "1", "-o", "x.docx"], ".pdf, .html and .md can be written"),
        (["--hours", "1", "--target", "RTX 99"], "no GPU of the table is called 'RTX 99'"),
        (["x", "--hours", "1"], "--hours is for a training without a log"),
    ],
)
def test_a_users_mistake_is_one_line_that_says_what_to_do(arguments, says) -> None:
    result = call(*arguments)
    assert result.exit_code == 1
    assert says in result.output and result.output.count("\n") == 1, result.output


def test_an_empty_log_says_what_to_do(logs: Path) -> None:
    logs.mkdir()
    assert "explore or track one, or give --gpu and --hours" in call(str(logs)).output


SPOT = ("--gpu", "L40S", "--hours", "100", "--utilization", "0.8", "--spot")
SPOT_TIMES = ("--checkpoint-s", "5", "--restart-s", "300")
SPOT_PRICES = ("--preemptions", "0.05,0.02,0.1", "--spot-price", "1", "--on-demand-price", "3")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*SPOT, *SPOT_TIMES], "--preemptions is needed"),
        ([*SPOT, *SPOT_PRICES], "--checkpoint-s is needed"),
        ([*SPOT, *SPOT_PRICES, "--checkpoint-s", "5"], "--restart-s is needed"),
        ([*SPOT, *SPOT_TIMES, "--preemptions", "0.1"], "--spot-price is needed"),
        ([*SPOT, *SPOT_TIMES, "--preemptions", "often"], "--preemptions takes 0.05, or 0.05,0.02,0.12"),
        ([*SPOT, *SPOT_TIMES, *SPOT_PRICES, "--save-every-s", "-1"], "--save-every-s must be a positive number"),
        (["--gpu", "L40S", "--hours", "100", "--spot-price", "1"], "--spot-price is for --spot"),
        ([*SPOT, "--target", "L40S", "--target", "A40"], "one machine"),
        ([*SPOT, "--within", "48h"], "--within is for a choice of machines"),
    ],
)
def test_a_mistake_with_spot_is_one_line_that_says_what_to_do(arguments, says) -> None:
    result = call(*arguments)
    assert result.exit_code == 1
    assert says in result.output and result.output.count("\n") == 1, result.output
