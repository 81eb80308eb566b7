"""A feature of a run is one module and one line: a toy part, told of everything; and one that fails."""

from __future__ import annotations

from fakes import make_tracker, session, train

from greenlove_tracker import read_logs
from greenlove_tracker.logs.run_fields import FIELDS, RunField
from greenlove_tracker.logs.schema import amount
from greenlove_tracker.tracker import session as session_module
from greenlove_tracker.tracker.part import RunPart
from greenlove_tracker.vocabulary.records import Field, RowKind


class LongestEpoch(RunPart):
    """Writes how long the longest epoch took."""

    longest_s = 0.0

    def row(self, row):
        if row.kind is RowKind.EPOCH:
            self.longest_s = max(self.longest_s, row.duration_s)

    def ending(self):
        self._writer.write_fields([Field("longest_epoch_s", f"{self.longest_s:g}")])


class Failing(RunPart):
    """Fails at its second row."""

    n_rows = n_ticks = 0

    def row(self, row):
        self.n_rows += 1
        if self.n_rows == 2:
            raise ValueError("of a toy")

    def tick(self):
        self.n_ticks += 1


def with_parts(monkeypatch, *kinds):
    monkeypatch.setitem(FIELDS, "longest_epoch_s", RunField("the time of the longest epoch", amount))
    monkeypatch.setattr(session_module, "PARTS", (*kinds, *session_module.PARTS))  # the one line


def test_a_part_is_one_module_and_one_line(clock, tmp_path, monkeypatch):
    with_parts(monkeypatch, LongestEpoch)
    with make_tracker(clock, tmp_path) as tracker:
        train(tracker, clock, 1, epoch_s=3.0)
        train(tracker, clock, 2, epoch_s=2.0)
    assert read_logs(tmp_path).runs[0].text("longest_epoch_s") == "3"


def test_a_part_that_fails_is_warned_of_once_and_dropped_and_the_run_goes_on(clock, tmp_path, monkeypatch, caplog):
    with_parts(monkeypatch, Failing, LongestEpoch)
    with make_tracker(clock, tmp_path) as tracker:
        failing = session().run_parts.get(Failing)
        train(tracker, clock, 4)
        assert tracker.forecast is not None
    assert (failing.n_rows, failing.n_ticks) == (2, 1)
    assert caplog.text.count("training goes on: ValueError('of a toy')") == 1
    (run,) = read_logs(tmp_path).runs
    assert run.summary.epochs_done == 4 and run.text("longest_epoch_s") == "10"
