from __future__ import annotations

import csv
import io
import json
import re

import pytest
from html_samples import HOSTILE, Skeleton
from projection_samples import TODAY, forecast, projected
from pypdf import PdfReader

from greenlove_tracker import TrainingPlan, Trial, extrapolate
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.projection.ranking import rank
from greenlove_tracker.rendering import html, pdf
from greenlove_tracker.rendering.document import BarChart, ChartRow, Heading, LineChart, Paragraph, Table
from greenlove_tracker.report.exploration_report import exploration_document
from greenlove_tracker.report.projection_report import projection_blocks, projection_document
from greenlove_tracker.report.projection_screen import projection_csv, projection_record, projection_screen
from greenlove_tracker.report.projection_text import projection_text

SCREEN = """\
LoRA, 8B · 20:00:00 [19:29:47–20:30:13] here on 1 × GeForce RTX 4090 · forecast · peak 21.3 GiB

                   rent as          time h      cost $   kWh   CO2e kg             speedup
                     × $/h       90% range   90% range        location     market  known from
here  RTX 4090         own  20.0 19.5–20.5  3.81 power  9.10      3.47       none  forecast
"""
SLOP = r"(?<![\d.,])0(\.0+)? (kg|g|t|mg)\b"


def screen(rows, *about: str) -> str:
    return projection_screen(rows, about or ("LoRA, 8B", "forecast", "peak 21.3 GiB"), TODAY)


def texts_of(blocks) -> list[str]:
    found = []
    for block in blocks:
        match block:
            case Heading() | Paragraph():
                found.append(block.text)
            case Table():
                found += [cell for row in block.rows for cell in row]
            case BarChart():
                found += [block.title, *(t for bar in block.bars for t in (bar.label, bar.text))]
    return found


# -- the screen ----------------------------------------------------------------------------------------------------


def test_the_screen_of_the_design():
    lines = screen(projected(peak_memory_gb=21.3)).splitlines()
    assert lines[:5] == SCREEN.splitlines()
    rows = {line[:16].strip(): line for line in lines[5:10]}
    assert set(rows) == {"L40S", "H200 SXM", "A100 PCIe 80GB", "H100 SXM5 80GB", "A100 SXM4 80GB"}
    assert re.search(r" 1 × 1\.50  +16 9\.9–27 +25 15–41 +7\.3 +2\.0 +none  specs only$", rows["L40S"])
    assert re.search(r"r 8 × 4\.29 .* 0\.16  0 claimed  via ", rows["H200 SXM"])
    text = "\n".join(lines)
    assert "B200 SXM, B300 SXM, GB200, MI355X: price on request (--all compares" in text
    assert "Prices read 2026-09-28 (54 days old)." in text
    assert "× 82% draw, as here, × 1.2 host × PUE" in text and "1.3 us-east1-a (L40S, A100 PCIe 80GB" in text
    assert "381 here, 270 us-east1-a, 27.7 eu-iceland1-a" in text
    assert "Rented = scope 3 for you." in text and "not audited" in text
    assert "greenlove project --measured DIR" in text


@pytest.mark.parametrize(("hours", "half_width"), [(20.0, 0.03), (2e4, 0.03), (3.3e5, 0.1), (1.2e6, 0.5)])
@pytest.mark.parametrize("here", ["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3060 Laptop GPU"])
def test_where_numbers_are_wide_no_word_is_cut_and_no_line_is_too_long(here, hours, half_width):
    rows = projected(forecast(hours, hours / 2, half_width), local_gpu=here)
    text = screen(rows)
    assert "…" not in text and max(map(len, text.splitlines())) <= 100
    for line in projection_text(rows, (), TODAY).lines:
        assert line.known_from in text and " ".join(line.name.split()) in " ".join(text.split())


def test_overlapping_ranges_have_no_winner():
    lines = screen(projected()).splitlines()
    assert any(line.startswith("cheapest  here, $3.81") for line in lines)
    assert sum(line.startswith(("rented    no winner", "fastest   no winner")) for line in lines) == 2
    assert any(line.startswith("settle    15 minutes of 1 × L40S ($0.38)") for line in lines)


def test_what_is_saved_is_on_every_face_once():
    rows = projected(peak_memory_gb=21.3)
    savings = [saving.sentence for saving in rank(rows).savings]
    assert len(savings) == 3 and savings[2].endswith("CO2e against here, location-based")
    lines = screen(rows).splitlines()
    labels = [line.partition(" ")[0] for line in lines]
    assert labels.count("compared") == 3 and labels.index("settle") > labels.index("compared") > labels.index(
        "greenest"
    )
    flat = " ".join(" ".join(lines).split())
    assert all(f"compared {sentence}" in flat for sentence in savings)
    (table,) = [b for b in projection_blocks(rows) if isinstance(b, Table) and ("compared", savings[0]) in b.rows]
    assert [cells[1] for cells in table.rows if cells[0] == "compared"] == savings
    record = projection_record(rows, ("x",))
    assert record["savings"] == savings and all(verdict["by"] != "compared" for verdict in record["verdicts"])


def test_embodied_emissions_are_shown_apart():
    rows, without = projected(embodied_kgco2e_per_gpu_hour=0.01), projected()
    (note,) = [text for text in projection_text(rows).notes if text.startswith("Embodied")]
    assert "by your figure, and in no other number: 200 g here, 164 g L40S" in note
    assert note in " ".join(screen(rows).split())
    assert note in texts_of(projection_blocks(rows))
    assert projection_text(rows).lines == projection_text(without).lines and not any(
        "Embodied" in text for text in projection_text(without).notes
    )
    assert "making of the hardware" in screen(without) and "making of the hardware" not in screen(rows)
    record = projection_record(rows, ("x",))["projections"][0]
    assert record["embodied_kgco2e"] == pytest.approx(0.2)
    assert record["embodied_lower_kgco2e"] < 0.2 < record["embodied_upper_kgco2e"]
    assert projection_record(without, ("x",))["projections"][0]["embodied_kgco2e"] is None
    first = next(csv.DictReader(io.StringIO(projection_csv(rows))))
    assert float(first["embodied_kgco2e"]) == pytest.approx(0.2)
    on_a_cpu = projected(local_gpu=None, utilization=None, embodied_kgco2e_per_gpu_hour=0.01)
    assert on_a_cpu[0].embodied_kgco2e is None and " here, " not in projection_text(on_a_cpu).notes[-2]


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
        {"embodied_kgco2e_per_gpu_hour": 0.01},
    ],
)
@pytest.mark.parametrize("hours", [0.001, 20.0, 5000.0])
def test_it_fits_the_terminal_and_never_says_a_bare_zero(options, hours: float):
    rows = projected(forecast(hours, kwh=hours * 0.455), **options)
    text = screen(rows)
    assert max(map(len, text.splitlines())) <= 100
    assert not re.search(SLOP, text) and "None" not in text and "nan" not in text
    for row in rows:  # every GPU is named, and whole
        assert row.name == "this machine" or row.name.removeprefix("GeForce ").removeprefix("Instinct ") in " ".join(
            text.split()
        )
    for block_text in texts_of(projection_blocks(rows)):
        assert not re.search(SLOP, block_text), block_text


def test_what_is_not_known_is_a_dash_and_said():
    text = screen(projected(forecast(kwh=None), country=None, utilization=None), "x", "forecast")
    local = next(line for line in text.splitlines() if line.startswith("here"))
    assert local.split()[-5:] == ["–", "–", "–", "–", "forecast"]
    assert "! No open price of electricity is known without a country" in text
    assert "! What the GPUs draw is not known" in text
    assert "No peak of GPU memory is known" in text
    assert "Energy:" not in text and "CO2e: location" not in text


def test_what_does_not_fit_is_named_with_what_would():
    told = projection_text(projected(peak_memory_gb=46.0))
    assert [line.name for line in told.lines] == [
        "here  RTX 4090",
        *(r for r in ("H200 SXM", "A100 PCIe 80GB", "H100 SXM5 80GB", "A100 SXM4 80GB")),
    ]
    (beside,) = (text for text in told.beside if "too small" in text)
    assert beside.startswith("L40S (48 GB): too small") and "it would fit into H200 SXM" in beside
    nowhere = " ".join(projection_text(projected(peak_memory_gb=900.0)).beside)
    assert "nothing here would hold it" in nowhere


def test_without_a_gpu_speedups_are_said_to_be_rough():
    told = projection_text(projected(local_gpu=None, utilization=None))
    assert told.lines[0].name == "here" and "without a GPU" in told.head
    assert {line.known_from for line in told.lines[1:]} == {"rough"}
    assert told.notes[0].startswith("No GPU here")


def test_an_old_price_is_warned_of(tmp_path):
    prices = tmp_path / "prices.csv"
    prices.write_text(
        "provider,gpu,price,unit,gpus_per_instance,country,date_read\nacme,L40S,0.9,USD/GPU-hour,1,FR,2026-01-02\n"
    )
    text = screen(projected(prices=prices, provider="acme"))
    assert "! L40S: the price was read on 2026-01-02, 323 days ago" in text and "(323 days old)" in text
    both = screen(projected(prices=prices))
    assert "L40S (acme)" in both and "L40S (crusoe)" in both
    assert "Prices read 2026-01-02 to 2026-09-28 (54 to 323 days old)." in both


def test_short_trainings_are_in_cents_and_need_no_trial():
    told = projection_text(projected(forecast(hours=0.01, kwh=0.004)))
    assert (told.units.cost.unit, told.units.time.unit) == ("¢", "s")
    assert "settle" not in dict(told.verdicts)


# -- for programs --------------------------------------------------------------------------------------------------


def test_json_and_csv_hold_every_row():
    rows = projected(peak_memory_gb=46.0)
    record = json.loads(json.dumps(projection_record(rows, ("x",))))
    assert len(record["projections"]) == len(rows)
    l40s = next(p for p in record["projections"] if p["gpu"] == "L40S")
    assert (l40s["fits"], l40s["duration_s"], l40s["cost_usd"]) == (False, None, None)
    h200 = next(p for p in record["projections"] if p["gpu"] == "H200 SXM")
    assert h200["market_based_claim_kgco2e"] == 0 and h200["emissions_kgco2e"] > 0 and h200["scope"] == 3
    assert h200["sources"] and h200["cost_lower_usd"] < h200["cost_usd"] < h200["cost_upper_usd"]
    table = list(csv.DictReader(io.StringIO(projection_csv(rows))))
    assert [r["gpu"] for r in table] == [r.name for r in rows]
    assert next(r for r in table if r["gpu"] == "L40S")["cost_usd"] == ""


# -- pages ---------------------------------------------------------------------------------------------------------


def test_every_face_says_the_same_numbers():
    rows = projected(peak_memory_gb=21.3)
    told, document = projection_text(rows), projection_document(rows, ("LoRA", "forecast"))
    page = " ".join("".join(Skeleton(html.render(document)).text).split())
    paper = " ".join("".join(p.extract_text() for p in PdfReader(io.BytesIO(pdf.render(document))).pages).split())
    for text in (page, paper):
        for line in told.lines:
            for part in (line.cost.point, line.time.range, line.energy, line.location):
                assert part in text, part
        for _, verdict in told.verdicts:
            assert verdict.split(",")[0] in text
        assert "0 claimed" in text and "What 3.47 kg of CO2e compare to" in text
    assert all(" ".join(text.split()) in page for text in texts_of(document.blocks))


def test_charts_hold_ranges_and_unknown_costs():
    rows = projected(include_all=True)
    time, cost, co2e = (block for block in projection_blocks(rows) if isinstance(block, BarChart))
    assert (time.title, co2e.title) == ("Time, h", "CO2e, kg, location-based")
    here, *others = time.bars
    assert here.range == pytest.approx((20 * (1 - 0.0251768), 20 * 1.0251768)) and here.value == 20
    assert all(bar.range[0] < bar.value < bar.range[1] for bar in others)
    unknown = [bar for bar in cost.bars if bar.value is None]
    assert [bar.text for bar in unknown] == ["unknown"] * 4 and not any(bar.range for bar in unknown)
    assert time.longest == max(bar.range[1] for bar in time.bars)
    claimed = [bar.text for bar in co2e.bars if "market-based" in bar.text]
    assert claimed and all(re.match(r"\d.*\[.*\] · market-based: 0 claimed", text) for text in claimed)


def test_nothing_to_project_adds_nothing_to_a_dashboard():
    made, trials = explored()
    without = exploration_document(made, trials)
    rows = projected()
    added = exploration_document(made, trials, projections=rows).blocks[len(without.blocks) :]
    assert projection_blocks(()) == () and added == projection_blocks(rows)


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


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_prices_are_data(tmp_path, hostile: str):
    prices = tmp_path / "prices.csv"
    text = " ".join(hostile.replace("\x00", "").encode(errors="ignore").decode().split())  # as a file can hold it
    with prices.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["gpu_name", "gpu_count", "gpu_memory", "price", "spot", "provider", "location", "instance_name"]
        )
        writer.writerow(["L40S", 1, 48, 0.9, "False", "acme", text, text])
        writer.writerow([text, 1, 48, 0.9, "False", text, text, text])
    rows = projected(prices=prices)
    text = screen(rows)
    assert max(map(len, text.splitlines())) <= 100 and all(c.isprintable() or c == "\n" for c in text)
    page = html.render(projection_document(rows))
    assert "<script" not in page and "<img" not in page and "L40S" in page
    pdf.render(projection_document(rows))


# -- an exploration's chart ----------------------------------------------------------------------------------------


def explored(*batches: int, method: str = "wls"):
    trials = [
        Trial(10 * b, 10, tuple(0.5 + 0.01 * b * (1 + 0.02 * ((i * 7 + b) % 5 - 2)) for i in range(4)))
        for b in batches or (10, 20, 40, 80, 40)
    ]
    return extrapolate(trials, TrainingPlan(samples=10_000, batch_size=10, epochs=5), method=method), trials


def chart_of(made, trials) -> LineChart | None:
    rows = [block for block in exploration_document(made, trials).blocks if isinstance(block, ChartRow)]
    return rows[0].charts[0] if rows else None


def test_the_band_is_the_lines_own_and_holds_it():
    made, trials = explored()
    chart = chart_of(made, trials)
    assert len(chart.dots) == sum(len(t.epoch_durations_s) for t in trials)
    assert [x for x, *_ in chart.band] == [x for x, _ in chart.points]
    assert (chart.band[0][0], chart.band[-1][0]) == (100, 800)
    assert all(low < y < high for (_, y), (_, low, high) in zip(chart.points, chart.band, strict=True))
    at_end = made.per_epoch_s.point + 80 * made.per_batch_s.point
    assert chart.points[-1][1] == pytest.approx(at_end, rel=0.01)
    widths = [high - low for _, low, high in chart.band]
    assert min(widths) < widths[-1] and min(widths) <= widths[0]


def test_the_band_at_zero_batches_is_the_interval_of_the_fixed_cost():

    from greenlove_tracker.extrapolation.preprocess import observe
    from greenlove_tracker.extrapolation.regression import coefficient_of, fit_line, mean_of

    made, trials = explored()
    seen = observe(trials, made.plan)
    line, noise = fit_line(seen.m, seen.mean_s, seen.variance_of_means), seen.noise
    at_zero = mean_of(line, 0.0, noise).estimate(0.95, "s", "confidence")
    fixed = coefficient_of(line, 0, noise).estimate(0.95, "s", "confidence")
    assert at_zero == fixed == made.per_epoch_s


def test_a_power_law_has_its_band_too_from_the_sizes_that_it_goes_through():
    made, trials = explored(2, 10, 20, 40, 80, 40, method="power")
    chart = chart_of(made, trials)
    assert "fitted power law" in chart.title and (chart.band[0][0], chart.band[-1][0]) == (100, 800)
    assert all(low < y < high for (_, y), (_, low, high) in zip(chart.points, chart.band, strict=True))
    (table,) = [b for b in exploration_document(made, trials).blocks if isinstance(b, Table) and "trials" in heads(b)]
    assert heads(table) == ["samples", "batches", "trials", "median, s", "fitted power law, s"]
    assert table.rows[0][-1] == "not used" and float(table.rows[-1][-1]) == pytest.approx(chart.points[-1][1], rel=0.01)


def heads(table: Table) -> list[str]:
    return [column.title for column in table.columns]


def test_whole_fits_are_told_as_fits():
    trials = [Trial(n, 1, (1e-6 * n**2 * (1 + 0.01 * (n % 7)),)) for n in (100, 200, 400, 800, 400)]
    made = extrapolate(trials, TrainingPlan(samples=10_000, batch_size=1, epochs=1), method="power")
    document = exploration_document(made, trials)
    assert document.subtitle == "10,000 samples"
    (table,) = [b for b in document.blocks if isinstance(b, Table) and "trials" in heads(b)]
    assert "batches" not in heads(table) and chart_of(made, trials).title == "Single fits and fitted power law"


def test_other_methods_have_no_band_and_one_size_no_chart():
    chart = chart_of(*explored(method="green-love"))
    assert chart.band == () and chart.dots and "median" in chart.title
    assert chart_of(*explored(40)).x_label == "epoch of the trial"  # and none over the sizes
    assert isinstance(explored(40)[0].duration_s, Estimate)


def test_a_chart_of_one_known_bar_is_left_out():
    rows = projected(forecast(kwh=9.1), local_gpu=None, utilization=None)
    charts = [b for b in projection_blocks(rows) if isinstance(b, BarChart)]
    assert [row.emissions_kgco2e is not None for row in rows].count(True) == 1
    assert not any("CO2e" in chart.title for chart in charts) and any("Time" in chart.title for chart in charts)
