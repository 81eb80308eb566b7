from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from greenlove_tracker.cli import cli

A100, H100, H200 = "A100 SXM4 80GB", "H100 SXM5 80GB", "H200 SXM"


def call(*arguments: str):
    names = arguments[: next((n for n, word in enumerate(arguments) if word.startswith("--")), len(arguments))]
    targets = [word for name in names[1:] for word in ("--target", name)]
    words = ["--gpu", names[0], *targets, *arguments[len(names) :]]
    return CliRunner().invoke(cli, ["project", "--speedups", *words])


def test_what_two_gpus_share_is_in_neither_order() -> None:
    """The error of the GPU that both are set against is in both, and makes neither the faster."""
    one, other = (
        {frozenset((p["faster"], p["slower"])): p["probability"] for p in json.loads(call(*order).stdout)["pairs"]}
        for order in ((A100, H100, H200, "--json"), ("T4", H200, H100, "--json"))
    )
    pair = frozenset((H100, H200))
    assert one[pair] == pytest.approx(other[pair], abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("RTX 409", H100), "no GPU of the table is called 'RTX 409'"),
        (("GTX 1060", "RTX 4090"), "called 'GTX 1060'; the nearest names are GeForce GTX 1080"),
        (("MX450", "RTX 4090"), "called 'MX450': give your own figure by --speedup"),
        (("RTX 6000", "RTX 4090"), "may be RTX 6000 Ada or Quadro RTX 6000: say which"),
        ((A100, H100, "--workload", "cooking"), "--workload must be language, vision"),
        ((A100, H100, "--precision", "int4"), "--precision must be fp32, tf32, bf16 or fp8"),
    ],
)
def test_a_users_mistake_is_one_line_that_says_what_to_do(arguments, says) -> None:
    result = call(*arguments)
    assert result.exit_code == 1 and says in result.output and result.output.count("\n") == 1, result.output


def test_a_gpu_alone_is_refused() -> None:
    assert "--speedups needs both GPUs" in call(A100).output


@pytest.mark.parametrize(
    "name",
    ["RTX 2080 Ti", "RTX 3060 12GB", "RTX 3070", "rtx3080-10gb", "RTX 4060", "RTX 4070", "RTX 4080", "RTX 5090"]
    + [f"RTX {number} Laptop" for number in (3060, 3070, 4060, 4070, 4080, 4090, 5070, 5080, 5090)],
)
def test_common_cards_are_known_as_people_write_them(name) -> None:
    found = json.loads(call(name, "RTX 4090", "--json").stdout)
    assert found["local"].startswith("GeForce RTX") and found["local"].endswith("Laptop GPU") == ("Laptop" in name)
    assert found["speedups"][0]["known_from"] in ("benchmarks", "half specs")


def listed(*arguments: str):
    return CliRunner().invoke(cli, ["project", "--list", *arguments])


def test_a_name_and_an_offer_choose_among_them(tmp_path):
    assert json.loads(listed("h100", "--json").stdout)[0]["gpu"] == "H100 SXM5 80GB"
    prices = tmp_path / "prices.csv"
    prices.write_text(
        "provider,gpu,access,price,unit,gpus_per_instance,regions,country,date_read\n"
        "acme,RTX 4090,on demand,0.40,USD/GPU-hour,1,,DE,2026-11-01\n"
    )
    found = json.loads(listed("RTX 4090", "--provider", "acme", "--prices", str(prices), "--json").stdout)
    assert (found[0]["gpu"], found[0]["offers"][0]["usd_per_gpu_hour"]) == ("GeForce RTX 4090", 0.4)
    refused = listed("abacus")
    assert (
        refused.exit_code == 1
        and "no GPU of the table is called 'abacus'; greenlove project --list names all" in refused.stderr
    )
