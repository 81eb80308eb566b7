"""Warnings of libraries that a tracker loads and calls: off the terminal, while the training's own get through."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import warnings

import pytest
from fakes import ScriptedMeter, gpu_energy

from greenlove_tracker import Tracker
from greenlove_tracker.tracker.foreign_warnings import without_foreign_warnings


class LoudMeter(ScriptedMeter):
    """Warns in each of its calls, as libraries do when they are imported and where they are out of date."""

    starts_at_once = False

    def __init__(self) -> None:
        super().__init__([gpu_energy(0.0)] * 9)

    def start(self):
        warnings.warn("SOCKS support is not installed", stacklevel=1)
        return super().start()

    def read(self):
        warnings.warn("no permission to read RAPL", stacklevel=1)
        return super().read()

    def stop(self):
        warnings.warn("NVML is deprecated", stacklevel=1)


@pytest.fixture(autouse=True)
def _alone():
    """Leave no thread of a run that has ended inside, where it loads what forecasts need."""
    yield
    for thread in threading.enumerate():
        if thread.name == "greenlove-tracker":
            thread.join(30)


@pytest.mark.parametrize(("verbose", "is_shown"), [(0, False), (1, False), (2, True)])
def test_what_a_meter_warns_of_is_shown_from_verbose_2_on(logs, no_settings, verbose, is_shown):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with Tracker(1, log_dir=logs, meter=LoudMeter(), verbose=verbose) as tracker:
            assert tracker.wait_ready(10)
            warnings.warn("the training's own", stacklevel=1)
            tracker.epoch_start()
            tracker.epoch_end()
            warnings.warn("the training's own, once more", stacklevel=1)
    shown = [str(warning.message) for warning in seen]
    foreign = ["SOCKS support is not installed", "no permission to read RAPL", "NVML is deprecated"]
    assert [message in shown for message in foreign] == [is_shown] * 3
    assert {message for message in shown if message not in foreign} == {
        "the training's own",
        "the training's own, once more",
    }
    assert tracker.summary is not None and tracker.summary.epochs_done == 1


def test_only_the_thread_that_is_inside_is_silent(caplog):
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        before = warnings.showwarning
        with without_foreign_warnings(1), without_foreign_warnings(0):
            warnings.warn("foreign", stacklevel=1)
            other = threading.Thread(target=warnings.warn, args=("the training's own",))
            other.start()
            other.join()
        assert warnings.showwarning is before
        warnings.warn("afterwards", stacklevel=1)
    assert [str(warning.message) for warning in seen] == ["the training's own", "afterwards"]
    assert "UserWarning: foreign" in caplog.text


def test_who_takes_our_place_meanwhile_gets_every_warning():
    theirs_seen = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with without_foreign_warnings(1):
            ours = warnings.showwarning

            def theirs(*arguments):
                theirs_seen.append(str(arguments[0]))
                ours(*arguments)

            warnings.showwarning = theirs
        assert warnings.showwarning is theirs
        with without_foreign_warnings(1):  # now theirs is shown after ours, and calls ours
            assert warnings.showwarning == ours
        warnings.warn("the training's own", stacklevel=1)
    assert "the training's own" in theirs_seen
    assert [str(warning.message) for warning in seen] == ["the training's own"]  # and not in a circle


def test_nothing_on_stderr_though_the_training_shows_all_warnings(tmp_path):
    """A filter that the training sets again and again takes away the one by which requests hides its own warning."""
    script = (
        "import sys, time, warnings\n"
        "from greenlove_tracker import Tracker\n"
        "with Tracker(2, verbose=0) as tracker:\n"
        "    while 'codecarbon.core' not in sys.modules or not tracker.wait_ready(0):\n"
        "        warnings.simplefilter('always')\n"
        "        time.sleep(0.001)\n"
        "    for _ in range(2):\n"
        "        tracker.epoch_start()\n"
        "        time.sleep(0.1)\n"
        "        tracker.epoch_end()\n"
        "        assert tracker.forecast is not None\n"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("GREENLOVE_")}
    env["ALL_PROXY"] = "socks5://localhost:1"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
