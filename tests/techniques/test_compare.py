"""Comparing techniques in virtual time: the steps of the training move the clock."""

from __future__ import annotations

import contextlib
import copy
import random
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fakes import FakeClock  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

from greenlove_tracker import Technique, aggregate, compare, read_logs  # noqa: E402
from greenlove_tracker.logs.comparisons import read_comparison  # noqa: E402
from greenlove_tracker.logs.run_rows import COMPARISON  # noqa: E402
from greenlove_tracker.meter import NullMeter, SimulatedMeter  # noqa: E402
from greenlove_tracker.report.comparison import headline  # noqa: E402
from greenlove_tracker.techniques.technique import NotApplicableError, combined  # noqa: E402
from greenlove_tracker.vocabulary.comparisons import BASELINE, Verdict  # noqa: E402
from greenlove_tracker.vocabulary.errors import LogError, UsageError  # noqa: E402
from greenlove_tracker.vocabulary.records import Energy, Method  # noqa: E402


class Bench:
    """A small training whose steps take virtual time, and techniques that change it."""

    def __init__(self, tmp_path, *, step_s=0.25, noise=0.0, n=640, start_s=0.0):
        self.clock, self.dice, self.path = FakeClock(), random.Random(1), tmp_path
        self.step_s, self.noise, self.start_s = step_s, noise, start_s
        self.inputs = torch.linspace(-1, 1, n)[:, None]
        self.first_weights, self.more = [], {}

    def task(self):
        model = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.1), nn.Linear(8, 1))
        self.first_weights.append(copy.deepcopy(model.state_dict()))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.002)
        data = TensorDataset(self.inputs, 2 * self.inputs)
        pieces = {"model": model, "optimizer": optimizer, "criterion": nn.MSELoss(), "train_dataset": data}
        return pieces | {"train_step": self.step} | self.more

    def step(self, model, batch, optimizer, criterion, device):
        inputs, targets = batch
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        self.clock.pass_s(self.step_s * len(inputs) / 64 * max(0.1, 1 + self.dice.gauss(0, self.noise)))
        return loss

    def taking(self, name, factor, *, first_s=0.0):
        """A technique with which a step takes so many times as long."""

        def apply(parts):
            inner, calls = parts["train_step"], []

            def step(*arguments):
                began_s = self.clock.now_s
                loss = inner(*arguments)
                self.clock.now_s = began_s + (self.clock.now_s - began_s) * factor
                self.clock.pass_s(0.0 if calls else first_s)
                calls.append(1)
                return loss

            return parts | {"train_step": step}

        return Technique(name, apply)

    def compare(self, techniques, **arguments):
        meter = arguments.pop("meter", SimulatedMeter(self.clock, gpu_w=360.0))
        settings = {"log_dir": self.path, "country": "DE", "verbose": 0, "clock": self.clock, "meter": meter}
        return compare(arguments.pop("task", self.task), techniques, sleep=self.clock.pass_s, **settings | arguments)


def same(name="same"):
    return Technique(name, lambda parts: parts)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.mark.slow
def test_ratios_of_time_and_energy_with_their_intervals_and_verdicts(tmp_path):
    bench = Bench(tmp_path, noise=0.1)
    comparison = bench.compare([bench.taking("slower", 1.3), same(), bench.taking("faster", 0.7)])
    assert [row.name for row in comparison.rows] == ["faster", "same", "slower"]
    for row, ratio in zip(comparison.rows, (0.7, 1.0, 1.3), strict=True):
        assert row.time_ratio.point == pytest.approx(ratio, rel=0.05)
        assert row.energy_ratio.point == pytest.approx(ratio, rel=0.05)
        assert row.co2e_ratio == row.energy_ratio == row.cost_ratio
    assert [row.verdict for row in comparison.rows[::2]] == [Verdict.SAVES, Verdict.COSTS_MORE]
    assert comparison.baseline.time_ratio is None and comparison.energy_method == "tdp_model"
    assert all(t.duration_s >= 5 and t.energy_kwh for t in comparison.trials)
    assert comparison.spent_s <= 120 + 0.1


@pytest.mark.slow
def test_a_machine_with_a_price_costs_by_its_time(bench):
    comparison = bench.compare([bench.taking("faster", 0.5)], price_usd_per_gpu_hour=2.0, meter=NullMeter())
    (row,) = comparison.rows
    assert row.energy_ratio is None and row.co2e_ratio is None and row.cost_ratio is None  # no GPU is metered
    bench = Bench(bench.path)
    (row,) = bench.compare([bench.taking("faster", 0.5)], price_usd_per_gpu_hour=2.0).rows
    assert row.cost_ratio == row.time_ratio


@pytest.mark.slow
@pytest.mark.parametrize("budget_s", [2.0, 20.0, 120.0])
@pytest.mark.parametrize("step_s", [0.05, 0.3, 4.0])
def test_the_budget_is_overrun_by_one_step_of_each_arm_at_most(tmp_path, budget_s, step_s):
    bench = Bench(tmp_path, step_s=step_s, noise=0.05)
    comparison = bench.compare([bench.taking("slower", 1.5), same()], budget_s=budget_s)
    least_s = (1 + 1.5 + 1) * step_s * 1.2  # each arm's first step shows whether it runs at all
    assert comparison.spent_s <= max(budget_s, least_s) + 1.5 * step_s * 1.2
    counts = {(t.block, t.arm) for t in comparison.trials}
    assert len(counts) == len(comparison.trials) == 3 * len({t.block for t in comparison.trials})


@pytest.mark.slow
def test_too_short_says_which_budget_would_do(tmp_path):
    bench = Bench(tmp_path, step_s=4.0)
    comparison = bench.compare([same()], budget_s=20.0)
    (row,) = comparison.rows
    assert row.verdict is Verdict.TOO_SHORT and row.budget_s > 20 and "are needed" in comparison.notes[0]
    bench = Bench(tmp_path, step_s=4.0)
    assert bench.compare([same()], budget_s=row.budget_s).rows[0].verdict is Verdict.NO_DIFFERENCE


@pytest.mark.slow
def test_equal_arms_train_alike(bench):
    comparison = bench.compare([same("a"), same("b")])
    losses = [[t.loss for t in comparison.trials if t.arm == arm] for arm in (BASELINE, "a", "b")]
    assert losses[0] == losses[1] == losses[2] and losses[0][0] > losses[0][-1]
    assert not any(row.notes for row in comparison.rows)


@pytest.mark.slow
def test_random_states_stay_as_they_were(bench):
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    assert len(bench.compare([same("a")], budget_s=60).trials) > 6
    assert torch.equal(states[0], torch.get_rng_state()) and states[1] == random.getstate()
    assert (states[2] == np.random.get_state()[1]).all()


def test_a_task_that_returns_the_same_model_each_time_is_refused(bench):
    pieces = bench.task()
    with pytest.raises(UsageError, match="make both inside the function"):
        bench.compare([same()], task=lambda: pieces)


@pytest.mark.slow
def test_an_arm_that_cannot_run_says_why_and_the_others_go_on(bench):
    def refuses(parts):
        raise NotApplicableError("this CPU has no bf16 instructions")

    def breaks(parts):
        def step(*arguments):
            raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

        return parts | {"train_step": step}

    def breaks_later(parts):
        inner, calls = parts["train_step"], []

        def step(*arguments):
            calls.append(1)
            if len(calls) > 200:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return inner(*arguments)

        return parts | {"train_step": step}

    several = [Technique("refused", refuses), Technique("broken", breaks), Technique("later", breaks_later), same()]
    comparison = bench.compare(several, budget_s=200)
    assert [row.name for row in comparison.rows] == ["same", "refused", "broken", "later"]
    reasons = {row.name: row.reason for row in comparison.rows if row.verdict is Verdict.NOT_RUN}
    assert reasons == {
        "refused": "this CPU has no bf16 instructions",
        "broken": "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
        "later": "out of memory",
    }
    assert {t.arm for t in comparison.trials} == {BASELINE, "same"}
    assert comparison.rows[0].time_ratio.point == pytest.approx(1, rel=1e-3)


@pytest.mark.slow
def test_what_changes_the_length_of_a_training_is_not_tried(bench):
    def never(parts):
        raise AssertionError("applied")

    whole = Technique("early", never, is_of_whole=True)
    several = [whole, combined([replace(whole, name="late"), same()]), same()]
    rows = {row.name: row for row in bench.compare(several, budget_s=200).rows}
    assert rows["same"].verdict is not Verdict.NOT_RUN
    for name in ("early", "late+same"):
        assert rows[name].verdict is Verdict.NOT_RUN
        assert "only whole trainings show: add --full, or use greenlove experiment" in rows[name].reason
    assert not any("budget" in note for note in bench.compare([whole], budget_s=200).notes)


@pytest.mark.slow
def test_what_compiles_long_comes_last_and_starves_no_other(tmp_path):
    bench = Bench(tmp_path)
    slow = [replace(bench.taking(name, 0.5, first_s=100.0), is_slow_to_start=True) for name in ("compiled", "again")]
    comparison = bench.compare([slow[0], bench.taking("faster", 0.7), slow[1]])
    rows = {row.name: row for row in comparison.rows}
    assert rows["faster"].verdict is Verdict.SAVES and rows["faster"].time_ratio.point == pytest.approx(0.7, rel=0.01)
    assert rows["again"].notes == ("The budget was over before its first step",)
    assert {rows[name].verdict for name in ("compiled", "again")} == {Verdict.TOO_SHORT}


@pytest.mark.slow
def test_what_is_slow_to_start_is_compared_in_what_is_left(tmp_path):
    bench = Bench(tmp_path)
    slow = replace(bench.taking("compiled", 0.5, first_s=30.0), is_slow_to_start=True)
    compiled, faster = bench.compare([slow, bench.taking("faster", 0.7)], budget_s=400).rows
    assert compiled.time_ratio.point == pytest.approx(0.5, rel=0.01) and compiled.verdict is Verdict.SAVES
    assert faster.n_trials > compiled.n_trials > 2


def test_where_starting_takes_the_budget_that_is_said(tmp_path):
    bench = Bench(tmp_path)
    slow = replace(bench.taking("compiled", 0.5, first_s=200.0), is_slow_to_start=True)
    comparison = bench.compare([slow])
    said = headline(comparison)
    assert said.startswith("Nothing was measured: compiled took the budget: its first steps lasted 3 min 20 s of 2 min")
    assert "--budget" in said and not comparison.trials
    assert read_comparison(comparison.run_dir) == comparison


@pytest.mark.slow
def test_the_baselines_own_failure_is_raised_with_a_note(bench):
    bench.more = {"train_step": lambda *arguments: 1 / 0}
    with pytest.raises(ZeroDivisionError) as caught:
        bench.compare([same()])
    assert "everything is as it was before" in caught.value.__notes__[0]
    (run,) = read_logs(bench.path).runs
    assert run.summary.status == "failed"


@pytest.mark.parametrize(
    "techniques, message",
    [
        ([], "no technique is named"),
        (["amp-bf32"], "did you mean amp-bf16"),
        ([same(), same()], "named twice"),
        ([same(BASELINE)], "always compared"),
    ],
)
def test_bad_arguments_are_said_before_anything_runs(bench, techniques, message):
    with pytest.raises(UsageError, match=message):
        bench.compare(techniques)
    with pytest.raises(UsageError, match="positive seconds"):
        bench.compare([same()], budget_s=0)
    assert not bench.first_weights and not list(bench.path.iterdir())


@pytest.mark.slow
def test_ctrl_c_ends_it(bench):
    def apply(parts):
        def step(*arguments):
            raise KeyboardInterrupt

        return parts | {"train_step": step}

    with pytest.raises(KeyboardInterrupt):
        bench.compare([Technique("interrupted", apply)])
    assert [str(run.summary.status) for run in read_logs(bench.path).runs] == ["interrupted"]


@pytest.mark.slow
def test_what_is_spent_once_is_kept_apart_and_in_the_whole_run(bench):
    bench.more = {"total_epochs": 100}
    comparison = bench.compare([bench.taking("compiled", 0.5, first_s=8.0)])
    (row,) = comparison.rows
    assert row.time_ratio.point == pytest.approx(0.5, rel=0.01)
    assert row.one_off_s == pytest.approx(8.0, rel=0.01) and comparison.baseline.one_off_s == pytest.approx(0, abs=1e-6)
    base, whole = comparison.baseline.whole_run, row.whole_run
    assert base.duration_s.point == pytest.approx(100 * 10 * 0.25, rel=0.01)
    assert whole.duration_s.point == pytest.approx(0.5 * 250 + 8, rel=0.01)
    assert base.energy_kwh.point == pytest.approx(250 * 0.36 / 3600, rel=0.01)
    assert whole.emissions_kgco2e.point > 0 and whole.cost_usd.point > 0


@pytest.mark.slow
def test_what_an_arm_counted_and_a_loss_that_is_no_number_are_said(bench):
    def learning(name, rate):
        def apply(parts):
            for group in parts["optimizer"].param_groups:
                group["lr"] = rate
            parts["technique_notes"] = [lambda: "3 of 100 steps were skipped", lambda: ""]
            return parts

        return Technique(name, apply, note="It learns at another rate")

    rows = {row.name: row for row in bench.compare([learning("slow", 1e-5), learning("wild", 1e5)]).rows}
    assert rows["slow"].notes == ("It learns at another rate", "3 of 100 steps were skipped")
    assert not rows["slow"].learns_otherwise
    assert "not a finite number" in rows["wild"].learns_otherwise


@pytest.mark.slow
def test_batches_of_another_size_train_on_as_many_samples(bench):
    def larger(parts):
        return parts | {"batch_size": 100}

    comparison = bench.compare([Technique("larger", larger)], budget_s=60)
    trained = [sum(t.samples for t in comparison.trials if t.arm == arm) for arm in (BASELINE, "larger")]
    assert abs(trained[0] - trained[1]) <= 100 * len(comparison.trials)
    assert comparison.rows[0].time_ratio.point == pytest.approx(1, rel=0.01)


@pytest.mark.slow
def test_where_a_model_gave_the_energy_the_answer_is_of_the_time(bench, monkeypatch):
    """A lower load alone makes a model's energy less."""
    slower = bench.taking("slower", 1.2)

    @contextlib.contextmanager
    def at_half_the_load():
        meter._powers_w["gpu"] = 180.0
        yield
        meter._powers_w["gpu"] = 360.0

    for method, verdict in ((Method.TDP_MODEL, Verdict.COSTS_MORE), (Method.COUNTER, Verdict.SAVES)):
        meter = SimulatedMeter(bench.clock, gpu_w=360.0)
        monkeypatch.setattr(Energy, "component_method", lambda energy, component, method=method: method)
        found = bench.compare([replace(slower, active=at_half_the_load)], meter=meter)
        assert found.rows[0].energy_ratio.point == pytest.approx(0.6, rel=0.02) and found.rows[0].verdict is verdict


@pytest.mark.slow
def test_its_energy_is_apart_from_that_of_trainings(bench):
    comparison = bench.compare([same()])
    logs = read_logs(bench.path)
    (run,) = logs.runs
    assert run.is_comparison and run.is_exploration and not run.is_complete
    assert run.text("compared") == "same" and run.summary.epochs_done == len(comparison.trials)
    metered = sum(t.energy_kwh for t in comparison.trials)
    assert run.summary.energy_kwh > metered > 0
    groups = aggregate(bench.path).by("kind")
    assert {name: group.n_runs for name, group in groups.items()} == {(COMPARISON,): 1}


@pytest.mark.slow
def test_the_log_reads_back_as_it_was_and_damage_is_refused_by_name(bench):
    comparison = bench.compare([bench.taking("slower", 1.2), same('odd, "named"')], price_usd_per_gpu_hour=1.0)
    assert read_comparison(comparison.run_dir) == comparison
    assert read_comparison(bench.path) is None
    for name in ("comparison_trials.csv", "comparison.csv"):
        path = comparison.run_dir / name
        path.write_bytes(path.read_bytes()[:-60])
        with pytest.raises(LogError, match=name):
            read_comparison(comparison.run_dir)
