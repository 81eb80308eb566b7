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


def test_the_report_shows_each_pair_and_what_is_asked(bench):
    slow = {"problem": "no answer in 240 s", "spent_s": 240.0}
    pairs = [bench.Pair.of(line(sitting=s)) for s in (1, 2)] + [bench.Pair.of(line("CNN", green_love=slow))]
    text = bench.report(pairs)
    assert "| MLP | 1 | 20.0 / 25.0 | 22.0 (19.0–24.0) · 0.0% · 6.0 s | 30.0 (29.0–31.0) · 20.0% · 60.0 s |" in text
    assert "| no answer in 240 s |" in text and "| green-love | 2 of 3 | 20.0% | 20.0% | 0 of 2 |" in text
    assert "| carbontracker | 3 of 3 | 20.0% | 20.0% | none given |" in text
    assert (
        "ours touch [before, after] in 3 of 3 pairs, green-love's in 0; of the 2 that theirs miss, ours touch 2" in text
    )
    assert "0.10 of green-love's (median; at most 0.10); at most 1/3 is asked, and met: in 3 of 3 pairs" in text
    assert "green-love's: ours less theirs is -20.0 points" in text and "over 2 of 3 pairs): better" in text


def test_a_forecast_that_ours_did_not_make_is_not_overlooked(bench):
    silent = {"problem": "exit 1: out of memory"}
    text = bench.report([bench.Pair.of(line()), bench.Pair.of(line("CNN", ours=silent))])
    assert "over 1 of 2 pairs): worse: ours made no forecast in 1" in text
    assert "and not met: in 1 of 2 pairs" in text and "ours touch [before, after] in 1 of 2 pairs" in text


def test_a_tool_that_always_fails_leaves_nothing_to_compare(bench):
    failed = {"problem": "exit 70: no components"}
    text = bench.report([bench.Pair.of(line(green_love=failed, carbontracker=failed))])
    assert "time: nothing to compare" in text and "error beside carbontracker's: nothing to compare" in text
    assert "| green-love | 0 of 1 | none | none | none given | none | none |" in text


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


def test_without_the_truth_nothing_is_recorded(bench, monkeypatch):
    monkeypatch.setattr(bench, "run_subject", lambda *arguments: {"problem": "exit 1: out of memory"})
    with pytest.raises(SystemExit, match="out of memory"):
        bench.compare("MLP", 1, "cpu", 1, 25.0)


def test_the_page_keeps_what_is_around_the_marks(bench, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{bench.BEGIN}\nold\n{bench.END}\nafter\n")
    importlib.import_module("scoring").put_into(page, "new", bench.BEGIN, bench.END)
    assert page.read_text() == f"before\n{bench.BEGIN}\nnew\n{bench.END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="lacks the marks"):
        importlib.import_module("scoring").put_into(page, "new", bench.BEGIN, bench.END)


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


def test_what_a_tool_adds_is_the_median_difference_within_a_round(overhead):
    plain = [(5.0, 6.0), (9.0, 9.0), (5.0, 6.0)]  # a neighbour came by in the second round
    costs = {"plainly": plain, "ours": [(5.2, 6.7), (9.3, 9.8), (5.1, 6.9)]}
    wall_s, cpu_s = overhead.added_costs(costs)["ours"]
    assert (wall_s, cpu_s) == (pytest.approx(0.2), pytest.approx(0.8))
    table = overhead.whole_table(costs).splitlines()
    assert table[1].split() == ["plainly", "5.00", "s", "6.00", "s"]
    assert table[2].split()[1:] == ["5.20", "s", "6.90", "s", "+0.20", "s", "+0.80", "s"]


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


@pytest.mark.parametrize(
    ("tool", "old", "new", "verdict"),
    [
        ("ours", b"0.", b"0_", ""),  # the reader refuses it by itself
        ("CodeCarbon", b"3600.0", b"3700.0", "plausible"),  # nobody can know
        ("carbontracker", b"0:00:01.20", b"0:00:01.30", "plausible"),
    ],
)
def test_the_fuzzer_judges_by_a_grammar_of_its_own(fuzzer, tmp_path, tool, old, new, verdict):
    seed = next(s for s in fuzzer.seeds() if s.tool == tool and any(old in data for data in s.files.values()))
    name = next(n for n, data in seed.files.items() if old in data and not n.endswith("run.csv"))
    _, directory, before = fuzzer._lay_out(seed, tmp_path)
    data = seed.files[name].replace(old, new, 1)
    (tmp_path / name).write_bytes(data)
    assert fuzzer.unnoticed(seed, name, data, before, fuzzer.read(directory)) == verdict


@pytest.mark.slow
def test_the_fuzzer_finds_a_reader_that_believes_everything(fuzzer, monkeypatch):
    from greenlove_tracker.logs import schema

    monkeypatch.setattr(schema, "_is_number", lambda text: True)
    monkeypatch.setattr(schema, "_are_close", lambda a, b: True)
    tallies = fuzzer.fuzz(3000, seed=3)
    assert tallies["ours"].count("unnoticed") > 0


def test_the_fuzzer_finds_a_crash(fuzzer, monkeypatch):
    monkeypatch.setattr(fuzzer, "read", lambda directory: {}["missing"])
    seed = fuzzer.seeds()[0]
    tally = fuzzer.Tally()
    assert fuzzer._try(seed, Path(), "", b"", fuzzer.Reading((), (), 0, frozenset()), tally).startswith(
        "crash of KeyError"
    )


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
