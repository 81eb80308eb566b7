"""How forecasts are judged and shown beside those of peers; no training is run here."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
TASK = {"loop": "MLP", "batches": 3, "device": "cpu", "threads": 1, "seed": 1}


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("compare_explorations")


@pytest.fixture
def tools(bench):
    return importlib.import_module("exploration_tools")


def answer(point_s, lower_s=None, upper_s=None, spent_s=6.0):
    ends = {} if lower_s is None else {"lower_s": lower_s, "upper_s": upper_s}
    return {"point_s": point_s, "spent_s": spent_s, **ends}


def line(loop="MLP", sitting=1, before_s=20.0, after_s=25.0, device="cpu", **answers):
    said = {"ours": answer(22.0, 19.0, 24.0), "green-love": answer(30.0, 29.0, 31.0, 60.0), "carbontracker": answer(16)}
    said |= {name.replace("_", "-"): value for name, value in answers.items()}
    return {
        "loop": loop,
        "sitting": sitting,
        "device": device,
        "before_s": before_s,
        "after_s": after_s,
        "answers": said,
        "machine": "a CPU, 2 cores",
        "order": ["ours"],
        "commit": "abc",
    }


@pytest.mark.parametrize(
    "point, error", [(20, 0), (22, 0), (25, 0), (30, 0.2), (15, 0.25), (0, 1.0)], ids=lambda value: f"{value:g}"
)
def test_an_error_is_counted_from_the_nearer_end_and_not_inside(bench, point, error):
    assert bench.error_outside(point, 20, 25) == pytest.approx(error)
    assert bench.error_outside(point, 25, 20) == pytest.approx(error)


def test_the_bootstrap_is_of_the_mean_and_repeats(bench):
    same = bench.bootstrapped([-0.1] * 8)
    assert [same.mean, same.lower, same.upper] == pytest.approx([-0.1] * 3)
    spread = bench.bootstrapped([-0.3, -0.1, 0.0, 0.1] * 25)
    assert spread == bench.bootstrapped([-0.3, -0.1, 0.0, 0.1] * 25)
    assert spread.lower < spread.mean < spread.upper and spread.mean == pytest.approx(-0.075)
    standard_error = 0.1479 / 100**0.5  # of these four values, each as often
    assert spread.upper - spread.lower == pytest.approx(2 * 1.96 * standard_error, rel=0.05)


@pytest.mark.parametrize(
    "differences, verdict",
    [
        ([-0.1, -0.2, -0.15], "better"),
        ([0.1, 0.2, 0.15], "worse"),
        ([-0.1, 0.2, 0.0], "no difference shown"),
        ([0.0, 0.0, 0.0], "no difference shown"),
    ],
)
def test_a_verdict_follows_from_the_interval(bench, differences, verdict):
    assert bench.bootstrapped(differences).verdict == verdict


def test_a_pair_knows_who_errs_and_whose_interval_touches(bench):
    pair = bench.Pair.of(line(before_s=25.0, after_s=20.0))
    assert [pair.error(tool) for tool in bench.TOOLS] == pytest.approx([0.0, 0.2, 0.2])
    assert [pair.touches(tool) for tool in bench.TOOLS] == [True, False, None]
    at_the_end = bench.Pair.of(line(green_love=answer(27.0, 25.0, 29.0)))
    assert at_the_end.touches("green-love")


def test_every_tool_is_first_in_turn_and_loops_differ(bench):
    orders = {(sitting, loop): bench.order_of(sitting, loop) for sitting in (1, 2, 3) for loop in bench.LOOPS}
    for loop in bench.LOOPS:
        assert {orders[sitting, loop][0] for sitting in (1, 2, 3)} == set(bench.TOOLS)
    assert all(sorted(order) == sorted(bench.TOOLS) for order in orders.values())
    assert orders[1, "MLP"] != orders[1, "CNN"]


def test_a_sitting_goes_on_where_it_was_and_is_never_run_again(bench, monkeypatch, tmp_path, capsys):
    record = tmp_path / "deep" / "record.jsonl"
    done = []

    def compare(loop, sitting, *rest):
        done.append((loop, sitting))
        if len(done) == 3:
            raise KeyboardInterrupt
        return line(loop, sitting)

    monkeypatch.setattr(bench, "compare", compare)
    with pytest.raises(KeyboardInterrupt):
        bench.sit(2, bench.LOOPS, "cpu", 1, 25.0, record)
    assert done == [("CNN", 2), ("LSTM", 2), ("transformer", 2)]
    bench.sit(2, bench.LOOPS, "cpu", 1, 25.0, record)
    assert done[3:] == [("transformer", 2), ("MLP", 2)] and "CNN, sitting 2, cpu: already in" in capsys.readouterr().out
    assert [p.loop for p in bench.read(record)] == list(bench.LOOPS)


def test_a_line_of_the_record_is_made_of_the_answers(bench, monkeypatch):
    asked = []

    def ask(subject, task, timeout_s):
        asked.append((subject, task.batches))
        answers = {"size": {"batch_s": 0.01, "epochs": 25, "batch": 64, "torch": "2", "gpu": "H100"}}
        return answers.get(subject, {"truth_s": 24.0, **answer(23.0)})

    monkeypatch.setattr(bench, "run_subject", ask)
    made = json.loads(json.dumps(bench.compare("LSTM", 1, "cuda", 1, 25.0)))
    assert asked == [("size", 1), *((name, 100) for name in ("truth", *made["order"], "truth"))]
    assert made["plan"] == {"epochs": 25, "batches": 100, "batch": 64} and made["machine"].startswith("H100 · ")
    assert bench.Pair.of(made).error("ours") == pytest.approx(1 / 24)


@pytest.mark.parametrize(
    "ending, expected",
    [
        ((0, 'noise\n{"point_s": 1.0}\n', ""), {"point_s": 1.0}),
        ((70, "", "Traceback\nNoComponents: none\n"), {"problem": "exit 70: NoComponents: none"}),
        ((0, "", ""), {"problem": "exit 0: said nothing"}),
        (None, {"problem": "no answer in 240 s", "spent_s": 240.0}),
    ],
)
def test_what_a_process_comes_to_is_its_answer(tools, monkeypatch, ending, expected):
    def run(command, *, timeout, **options):
        assert command[2] == "ours" and json.loads(command[3]) == TASK
        if ending is None:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, *ending)

    monkeypatch.setattr(tools.subprocess, "run", run)
    assert tools.run_subject("ours", tools.Task(**TASK), 240.0) == expected


@pytest.fixture
def overhead(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("overhead")


def test_the_cost_of_a_whole_process_has_that_of_its_children(overhead, tmp_path):
    burn = "import time\nwhile time.process_time() < 0.4: sum(range(1000))"
    child = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}], check=True)"
    wall_s, cpu_s = overhead.whole_process(child, str(tmp_path))
    assert cpu_s > 0.4 and wall_s > 0.4
    with pytest.raises(SystemExit, match="exit code 3"):
        overhead.whole_process("raise SystemExit(3)", str(tmp_path))


@pytest.fixture
def fuzzer(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("fuzz_logs")


@pytest.mark.slow
def test_damaged_logs_neither_crash_nor_hang_nor_give_numbers_that_nobody_doubts(fuzzer):
    tallies = fuzzer.fuzz(1500, seed=3)
    assert set(tallies) == {"ours", "carbontracker", "CodeCarbon"}
    assert [tally.examples for tally in tallies.values() if tally.failures] == []
    assert sum(t.inputs for t in tallies.values()) == 1500 and all(t.noticed > 50 for t in tallies.values())
    assert "1,500 damaged logs, 0 failures" in fuzzer.report(tallies)


@pytest.mark.slow
def test_the_fuzzer_finds_a_reader_that_believes_everything(fuzzer, monkeypatch):
    from greenlove_tracker.logs import schema

    monkeypatch.setattr(schema, "_is_number", lambda text: True)
    monkeypatch.setattr(schema, "_are_close", lambda a, b: True)
    tallies = fuzzer.fuzz(3000, seed=3)
    assert tallies["ours"].count("unnoticed") > 0


def test_hours_that_are_not_known_are_in_no_ratio_of_intensities(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    log_ratios = importlib.import_module("intensity_persistence").log_ratios
    values = np.array([1.0, 3.0, 4.0, 8.0, np.nan, 1.0, 1.0, 1.0])
    assert log_ratios(values, 2, 1) == pytest.approx([np.log(2.0), np.log(8 / 3.5), 0.0])


def test_each_seeded_fault_is_one_line_of_the_package_and_names_tests_that_are_there(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    faults = importlib.import_module("seeded_faults")
    assert [(fault.file, fault.text) for fault in faults.FAULTS if faults.occurrences(fault) != 1] == []
    named = {Path(test.partition("::")[0]) for fault in faults.FAULTS for test in fault.tests}
    assert len(faults.FAULTS) == 60 and all((BENCHMARKS.parent / path).exists() for path in named)
