from __future__ import annotations

import json
import re
from datetime import date, timedelta

import pytest
from html_samples import HOSTILE, Skeleton
from projection_samples import TODAY, forecast, projected

from greenlove_tracker.rendering import html, pdf, terminal
from greenlove_tracker.rendering.document import Heading, Paragraph, Table
from greenlove_tracker.report.projection_record import projection_record, projection_values
from greenlove_tracker.report.projection_report import projection_blocks, projection_document

SLOP = r"(?<![\d.,])0(\.0+)? (kg|g|t|mg)\b"


def screen(rows, *about: str) -> str:
    document = projection_document(rows, about or ("LoRA, 8B", "forecast", "peak 21.3 GiB"), today=TODAY)
    return terminal.render(document, brief=False)


def texts_of(blocks) -> list[str]:
    found = []
    for block in blocks:
        match block:
            case Heading() | Paragraph():
                found.append(block.text)
            case Table():
                found += [cell for row in block.rows for cell in row]
    return found


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"include_all": True},
        {"local_gpu": None, "utilization": None},
        {"peak_memory_gb": 60.0, "n_gpus": 2},
        {
            "local_gpu": "NVIDIA GeForce RTX 2080 Super with Max-Q Design",
            "include_all": True,
            "gpus": ["Instinct MI250X (one of two GPUs)", "RTX PRO 6000 Blackwell Workstation"],
        },
        {"country": None},
        {"custom_speedup": 2.0},
        {"peak_memory_gb": 900.0},
        {"target_gpus": 1000},
    ],
)
@pytest.mark.parametrize("hours", [0.001, 20.0, 5000.0])
@pytest.mark.parametrize("width", [80, 100])
def test_it_fits_the_terminal_and_never_says_a_bare_zero(options, hours: float, width: int, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = projected(forecast(hours, kwh=hours * 0.455), **options)
    text = screen(rows)
    assert max(map(len, text.splitlines())) <= width
    assert not re.search(SLOP, text) and "None" not in text and "nan" not in text
    for row in rows:  # every GPU is named, and whole
        assert row.name == "this machine" or row.name.removeprefix("GeForce ").removeprefix("Instinct ") in " ".join(
            text.split()
        )
    for block_text in texts_of(projection_blocks(rows)):
        assert not re.search(SLOP, block_text), block_text


def test_json_holds_every_row():
    rows = projected(peak_memory_gb=46.0)
    record = json.loads(json.dumps(projection_record(rows, ("x",))))
    assert len(record["projections"]) == len(rows)
    l40s = next(p for p in record["projections"] if p["gpu"] == "L40S")
    assert (l40s["fits"], l40s["duration_s"], l40s["cost_usd"]) == (False, None, None)
    h200 = next(p for p in record["projections"] if p["gpu"] == "H200 SXM")
    assert h200["market_based_claim_kgco2e"] == 0 and h200["emissions_kgco2e"] > 0 and h200["scope"] == 3
    assert h200["sources"] and h200["cost_basis"] == "minimum term"
    a100 = next(p for p in record["projections"] if p["gpu"] == "A100 PCIe 80GB")
    assert a100["cost_lower_usd"] < a100["cost_usd"] < a100["cost_upper_usd"]
    assert [projection_values(row)["gpu"] for row in rows] == [row.name for row in rows]


@pytest.mark.slow_cases
@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_name_is_data(hostile: str):
    rows = projected(local_gpu=hostile or "x", custom_speedup=2.0)
    harmless = projected(local_gpu="y", custom_speedup=2.0)
    page = Skeleton(html.render(projection_document(rows, (hostile, "forecast"))))
    assert page.tags == Skeleton(html.render(projection_document(harmless, ("y", "forecast")))).tags
    pdf.render(projection_document(rows, (hostile, "forecast")))
    text = screen(rows, hostile, "forecast")
    assert max(map(len, text.splitlines())) <= 100
    assert all(c.isprintable() or c == "\n" for c in text)


def test_the_age_of_prices_is_never_negative():
    rows = projected()
    dates = [row.offer.price_date for row in rows if row.offer is not None and row.offer.usd_per_gpu_hour is not None]
    before = projection_document(rows, today=date.fromisoformat(min(dates)) - timedelta(days=119))
    on_the_day = projection_document(rows, today=date.fromisoformat(min(dates)))
    assert f"Prices of Crusoe Cloud, read {min(dates)};" in " ".join(texts_of(before.blocks))
    assert "Prices of Crusoe Cloud, at most 0 days old;" in " ".join(texts_of(on_the_day.blocks))
