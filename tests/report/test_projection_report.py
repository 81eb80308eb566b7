from __future__ import annotations

import csv
import io
import json
import os
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from html_samples import HOSTILE, Skeleton
from projection_samples import TODAY, forecast, projected
from pypdf import PdfReader
from report_samples import gpu_run

from greenlove_tracker import TrainingPlan, Trial, extrapolate
from greenlove_tracker import format as fmt
from greenlove_tracker.forecasting import Estimate
from greenlove_tracker.projection.decision import decide
from greenlove_tracker.projection.ranking import rank
from greenlove_tracker.projection.types import ProjectionOptions
from greenlove_tracker.rendering import html, pdf
from greenlove_tracker.rendering.document import BarChart, ChartRow, Heading, LineChart, Paragraph, Table
from greenlove_tracker.report.exploration_report import exploration_document
from greenlove_tracker.report.projection_advice import advice_sentence, label
from greenlove_tracker.report.projection_report import elsewhere_blocks, projection_blocks, projection_document
from greenlove_tracker.report.projection_screen import (
    projection_csv,
    projection_record,
    projection_screen,
    projection_values,
)
from greenlove_tracker.report.projection_text import figure, projection_text, short_name

SLOP = r"(?<![\d.,])0(\.0+)? (kg|g|t|mg)\b"


def screen(rows, *about: str, width: int = 100) -> str:
    return projection_screen(rows, about or ("LoRA, 8B", "forecast", "peak 21.3 GiB"), TODAY, width=width)


def flat(text: str) -> str:
    return " ".join(text.split())


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


def test_the_screen_begins_with_what_to_do():
    rows = projected(peak_memory_gb=21.3)
    decision, text = decide(rows, ProjectionOptions()), screen(rows)
    assert flat(text).startswith(flat(advice_sentence(decision))) and decision.recommended is not None
    lines = text.splitlines()
    training = next(i for i, line in enumerate(lines) if line.startswith("LoRA, 8B · 20 h ["))
    assert "here on 1 × GeForce RTX 4090 · forecast · peak 21.3 GiB" in " ".join(lines[training : training + 2])
    first = flat(" ".join(lines[:training]))
    assert all(flat(reason) in first for reason in projection_text(rows).reasons)
    head, units = lines[training + 3 : training + 5]
    assert head.split()[:5] == ["GPUs", "time,", "h", "cost,", "$"] and units.split()[:3] == ["×", "$/h", "90%"]
    assert next(line for line in lines if line.startswith("here  RTX 4090")).split()[3] == "own"
    assert re.search(r"^  L40S +1 × 1\.50 +\d+ +\d+–\d+ +\d+ +\d+–\d+", text, re.MULTILINE)
    assert "B200 SXM, B300 SXM, GB200, MI355X: price on request" in text
    assert "0 claimed (H200 SXM, H100 SXM5 80GB)" in " ".join(projection_text(rows).notes)


def test_machines_stand_by_how_they_are_obtained_and_then_by_cost():
    rows = projected(peak_memory_gb=21.3, gpus=["RTX 3090"])
    lines = projection_text(rows).lines
    groups = list(dict.fromkeys(line.group for line in lines))
    reserved = "reserved only, for a minimum term; the code must train on 8 GPUs at once"  # of one GPU here
    assert groups == ["", "rent now", reserved, "nobody rents it out"]
    by_name = {short_name(row): row for row in rows}
    for group in groups[1:]:
        costs = [by_name[line.name].cost_usd for line in lines if line.group == group]
        points = [cost.point for cost in costs if cost is not None]
        assert points == sorted(points)
    printed = [line.strip() for line in screen(rows).splitlines()]
    assert [line for line in printed if line in groups[1:]] == groups[1:]
    eight = projected(target_gpus=3, provider="crusoe")
    whole = {line.group for line in projection_text(eight).lines if line.group.startswith("whole")}
    assert whole == {"whole machines only; the code must train on 4 GPUs at once"}
    of_three = {line.group for line in projection_text(projected(n_gpus=3, target_gpus=3)).lines}
    assert {"whole machines only", "reserved only, for a minimum term"} <= of_three


@pytest.mark.slow_cases
@pytest.mark.parametrize(("hours", "half_width"), [(20.0, 0.03), (2e4, 0.03), (3.3e5, 0.1), (1.2e6, 0.5)])
@pytest.mark.parametrize("here", ["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3060 Laptop GPU"])
@pytest.mark.parametrize("width", [80, 100])
def test_where_numbers_are_wide_no_word_is_cut_and_no_line_is_too_long(here, hours, half_width, width):
    rows = projected(forecast(hours, hours / 2, half_width), local_gpu=here)
    text = screen(rows, width=width)
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    for line in projection_text(rows, (), TODAY).lines:
        assert flat(line.name) in flat(text) and line.time.point in text and line.cost.point in text


def test_both_ends_of_a_range_have_the_decimals_of_its_point():
    for row in projected():
        for estimate in filter(None, (row.duration_s, row.cost_usd, row.emissions_kgco2e)):
            shown = figure(estimate, 1 / 3600 if estimate is row.duration_s else 1.0)
            texts = [shown.point, *filter(None, shown.range.split("–"))]
            assert len({len(text.partition(".")[2]) for text in texts}) == 1
            assert all(float(text.replace(",", "")) > 0 for text in texts)


def test_columns_that_say_nothing_are_left_out():
    with_energy, without = projected(), projected(forecast(kwh=None), country=None, carbon_intensity=None)
    assert "CO2e" in screen(with_energy)
    assert all(row.is_local or row.market is None or row.emissions_kgco2e for row in without)
    for rows in (with_energy, without):
        told = projection_text(rows)
        (table,) = [b for b in projection_blocks(rows) if isinstance(b, Table) and "GPUs × $/h" in heads(b)]
        assert ("market" in heads(table)) == any("claimed" in line.market for line in told.lines)
        for i, _ in enumerate(table.columns):
            assert any(cells[i] not in ("", "–", "none") for cells in table.rows)


def test_the_ground_of_a_screen_is_a_few_lines_and_the_report_has_it_all():
    rows = projected(forecast(kwh=None), country=None, embodied_kgco2e_per_gpu_hour=0.01)
    for width in (80, 100):
        lines = screen(rows, width=width).splitlines()
        last_blank = max(i for i, line in enumerate(lines) if not line)
        assert 2 <= len(lines) - last_blank - 1 <= 10 and lines[-1].endswith("-o report.html")
    told, page = projection_text(rows), texts_of(projection_blocks(rows))
    assert set(told.notes) <= set(page) and all(f"{text}." in page for text in (*told.warnings, *told.of_machines))


def test_probabilities_are_those_of_the_ranking():
    rows = projected(peak_memory_gb=21.3)
    verdict = rank(rows).cheapest_rented
    chances = {short_name(chance.machine): chance.probability for chance in verdict.chances}
    for line in projection_text(rows).lines:
        assert line.cheapest == (fmt.percent(chances[line.name]) if line.name in chances else "")
    (table,) = [b for b in projection_blocks(rows) if isinstance(b, Table) and "fastest" in heads(b)]
    best = verdict.chances[0]
    assert (label(best.machine), fmt.percent(best.probability)) in [cells[:2] for cells in table.rows]
    record = projection_record(rows, ("x",))
    (by_cost,) = [v for v in record["verdicts"] if v["among"] == "to rent now"]
    assert sum(chance["probability"] for chance in by_cost["chances"]) == pytest.approx(1.0, abs=0.01)


def test_embodied_emissions_are_shown_apart():
    rows, without = projected(embodied_kgco2e_per_gpu_hour=0.01), projected()
    (note,) = [text for text in projection_text(rows).notes if text.startswith("Embodied")]
    (l40s,) = (row for row in rows if row.name == "L40S")
    assert "by your figure, and in no other number: 200 g here, " in note
    assert f"{l40s.duration_s.point / 3600 * 10:.0f} g L40S" in note
    assert note in texts_of(projection_blocks(rows))
    assert projection_text(rows).lines == projection_text(without).lines and not any(
        "Embodied" in text for text in projection_text(without).notes
    )
    making = "making of the hardware"
    assert making in " ".join(projection_text(without).notes) and making not in " ".join(projection_text(rows).notes)
    record = projection_record(rows, ("x",))["projections"][0]
    assert record["embodied_kgco2e"] == pytest.approx(0.2)
    assert record["embodied_lower_kgco2e"] < 0.2 < record["embodied_upper_kgco2e"]
    assert projection_record(without, ("x",))["projections"][0]["embodied_kgco2e"] is None
    first = next(csv.DictReader(io.StringIO(projection_csv(rows))))
    assert float(first["embodied_kgco2e"]) == pytest.approx(0.2)
    on_a_cpu = projected(local_gpu=None, utilization=None, embodied_kgco2e_per_gpu_hour=0.01)
    (note,) = [text for text in projection_text(on_a_cpu).notes if text.startswith("Embodied")]
    assert on_a_cpu[0].embodied_kgco2e is None and " here, " not in note


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
        {"embodied_kgco2e_per_gpu_hour": 0.01},
    ],
)
@pytest.mark.parametrize("hours", [0.001, 20.0, 5000.0])
@pytest.mark.parametrize("width", [80, 100])
def test_it_fits_the_terminal_and_never_says_a_bare_zero(options, hours: float, width: int):
    rows = projected(forecast(hours, kwh=hours * 0.455), **options)
    text = screen(rows, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert not re.search(SLOP, text) and "None" not in text and "nan" not in text
    for row in rows:  # every GPU is named, and whole
        assert row.name == "this machine" or row.name.removeprefix("GeForce ").removeprefix("Instinct ") in " ".join(
            text.split()
        )
    for block_text in texts_of(projection_blocks(rows)):
        assert not re.search(SLOP, block_text), block_text


def test_what_is_not_known_is_a_dash_and_said():
    rows = projected(forecast(kwh=None), country=None, utilization=None)
    text = screen(rows, "x", "forecast")
    assert next(line for line in projection_text(rows).lines).cost.point == "–"
    assert "! No open price of electricity is known without a country" in text
    assert "no peak of GPU memory is known" in text


def test_what_does_not_fit_is_named_with_what_would():
    told = projection_text(projected(peak_memory_gb=46.0))
    large_enough = {"H200 SXM", "A100 PCIe 80GB", "H100 SXM5 80GB", "A100 SXM4 80GB"}
    assert {line.name for line in told.lines} == {"here  RTX 4090", *large_enough}
    (beside,) = (text for text in told.beside if "too small" in text)
    assert beside.startswith("L40S (48 GB): too small") and "it would fit into " in beside
    nowhere = " ".join(projection_text(projected(peak_memory_gb=900.0)).beside)
    assert "nothing here would hold it" in nowhere


def test_without_a_gpu_speedups_are_said_to_be_rough():
    told = projection_text(projected(local_gpu=None, utilization=None))
    assert told.lines[0].name == "here" and "without a GPU" in told.head
    assert {line.known_from for line in told.lines[1:]} == {"rough"}
    assert any(note.startswith("No GPU here") for note in told.notes)


def test_an_old_price_is_warned_of(tmp_path):
    prices = tmp_path / "prices.csv"
    prices.write_text(
        "provider,gpu,price,unit,gpus_per_instance,country,date_read\nacme,L40S,0.9,USD/GPU-hour,1,FR,2026-01-02\n"
    )
    told = projection_text(projected(prices=prices, provider="acme"), (), TODAY)
    assert any("L40S: the price was read on 2026-01-02, 323 days ago" in text for text in told.of_machines)
    assert any("(323 days old)" in note for note in told.notes)
    rows = projected(prices=prices)
    both = screen(rows)
    assert "L40S (acme)" in both and "L40S (crusoe)" in both
    notes = " ".join(projection_text(rows, (), TODAY).notes)
    assert "Prices of acme read 2026-01-02 (323 days old); of Crusoe Cloud read 2026-09-28 (54 days old)." in notes


def test_prices_of_a_catalogue_are_shown_to_be_as_old_as_its_file(tmp_path):
    prices = tmp_path / "acme.csv"
    prices.write_text("gpu_name,gpu_count,gpu_memory,price,spot\nL40S,1,48,0.9,False\nA100,1,80,1.9,False\n")
    written = datetime(2026, 11, 1, 12, tzinfo=UTC).timestamp()
    os.utime(prices, (written, written))
    assert "of acme dated by their file 2026-11-01 (20 days old)" in flat(screen(projected(prices=prices, gpus=["T4"])))
    notes = " ".join(projection_text(projected(prices=prices, provider="acme"), (), TODAY).notes)
    assert "Prices of acme dated by their file 2026-11-01 (20 days old)." in notes
    values = projection_values(projected(prices=prices, provider="acme")[1])
    assert (values["price_date"], values["price_date_is_of_file"]) == ("2026-11-01", True)


def test_short_trainings_are_in_cents():
    told = projection_text(projected(forecast(hours=0.01, kwh=0.004)))
    assert (told.units.cost.unit, told.units.time.unit) == ("¢", "s")


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
        assert flat(told.decision)[:60] in text
        for _, verdict in told.verdicts:
            assert verdict.split(",")[0] in text
        assert "0 claimed" in text and "What 3.47 kg of CO2e is comparable to" in text
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
    alone = projection_blocks(rows)
    of_work = next(block for block in added if block not in alone)  # the trials tell of what the training goes through
    assert projection_blocks(()) == () and tuple(block for block in added if block is not of_work) == alone
    assert of_work.text.startswith("A thousand samples cost $")


def test_the_report_of_a_run_says_what_its_samples_cost_elsewhere(tmp_path):
    beside, _ = elsewhere_blocks(gpu_run(tmp_path))  # 19,200 samples
    assert any(text.startswith("A thousand samples cost $") for text in texts_of(beside))


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


@pytest.mark.slow
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
    rows = projected(forecast(kwh=9.1), local_gpu="Unheard Of 9000", custom_speedup=2.0, utilization=None)
    charts = [b for b in projection_blocks(rows) if isinstance(b, BarChart)]
    assert [row.emissions_kgco2e is not None for row in rows].count(True) == 1
    assert not any("CO2e" in chart.title for chart in charts) and any("Time" in chart.title for chart in charts)


def test_another_makers_software_is_said_beside_the_table():
    notes = projection_text(projected(gpus=["MI300X"]), (), TODAY).notes
    assert any(note.endswith("Other software than here, CUDA or ROCm: MI300X.") for note in notes)
    assert not any("ROCm" in note for note in projection_text(projected(), (), TODAY).notes)


def test_the_column_of_the_cheapest_is_of_those_that_keep_the_limits():
    rows = projected(gpus=["A40"])
    free = projection_text(rows, decision=decide(rows))
    slowest = max((row for row in rows if row.is_for_rent_now), key=lambda row: row.duration_s.point)
    made = decide(rows, ProjectionOptions(within_s=slowest.duration_s.lower))
    bound = projection_text(rows, decision=made)
    with_chance = [{line.name for line in text.lines if line.cheapest} for text in (free, bound)]
    assert short_name(slowest) in with_chance[0] and short_name(slowest) not in with_chance[1]
    record = projection_record(rows, ("LoRA",), made)
    assert not any(v["among"] == "to rent now" for v in record["verdicts"])
    assert any(v["among"] == "to rent now" for v in projection_record(rows, ("LoRA",), decide(rows))["verdicts"])
    assert texts_of(projection_blocks(rows, decision=made)).count("cheapest to rent") == 0
    assert texts_of(projection_blocks(rows, decision=decide(rows))) != texts_of(projection_blocks(rows, decision=made))


def test_a_floor_that_gpus_share_is_said_to_be_less_on_several():
    plan = TrainingPlan(samples=100_000, batch_size=10, epochs=5)
    rows = projected(replace(forecast(1 / 20, kwh=None), plan=plan), local_gpu=None, utilization=None)
    text = " ".join(projection_text(rows).notes)
    assert "50,000 steps take at least 15.0 s on one GPU; several GPUs share them. That is the time of " in text
