"""``greenlove plan --threshold``, as processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from greenlove_tracker import read_logs
from greenlove_tracker.vocabulary.records import Field
from greenlove_tracker.vocabulary.waits import WAIT_VARIABLE, hand_over_wait

WAIT = [sys.executable, "-m", "greenlove_tracker", "plan"]
SHOW = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("GREENLOVE_", "SLURM_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str, wrapper: tuple[str, ...] = (), timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*wrapper, *WAIT, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@contextlib.contextmanager
def waiting(*arguments: str):
    """Yield a process once it says that it waits."""
    with subprocess.Popen([*WAIT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None
            assert "waiting until" in child.stderr.readline()
            yield child
        finally:
            child.kill()


def test_words_arrive_unchanged_and_nothing_of_ours_is_on_stdout(here):
    words = ["a b", "", "$HOME", "'\"", "--threshold", "x\ny"]
    done = run("--intensity", "mock", "--threshold", "1000", "--", *SHOW, *words)
    assert (done.returncode, done.stdout) == (0, f"{words}\n"), done.stderr
    assert "starting: " in done.stderr and "MOCK" in done.stderr


@pytest.mark.parametrize("code, returncode", [("exit 7", 7), ("kill -TERM $$", -signal.SIGTERM)])
def test_the_end_of_the_command_is_ours(here, code, returncode):
    done = run("--intensity", "mock", "--threshold", "1", "--max-wait", "0.2s", "--", "sh", "-c", code)
    assert done.returncode == returncode
    assert "the maximum wait" in done.stderr


def test_without_a_command_it_only_waits(here):
    done = run("--intensity", "mock", "--threshold", "1000")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)]
)
def test_a_signal_during_the_wait_starts_nothing(here, number, code):
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the signal is ignored here, as under nohup, and by what is started")
    with waiting("--intensity", "mock", "--threshold", "1", "--", "touch", "started") as child:
        child.send_signal(number)
        out, err = child.communicate(timeout=20)
    assert (child.returncode, out) == (code, "")
    assert ("nothing was started" in err or number != signal.SIGINT) and "Traceback" not in err
    assert not Path("started").exists()


@pytest.mark.slow
def test_a_wait_that_stood_still_past_its_end_begins_when_it_goes_on(here):
    wait = ("--intensity", "mock", "--threshold", "1", "--max-wait", "2s")
    with waiting(*wait, "--", "touch", "started") as child:
        child.send_signal(signal.SIGSTOP)
        time.sleep(3.0)
        assert not Path("started").exists()
        child.send_signal(signal.SIGCONT)
        child.communicate(timeout=20)
    assert child.returncode == 0 and Path("started").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_wait_is_the_commands(here, number):
    handler = f"import signal, sys; signal.signal({int(number)}, lambda *_: sys.exit(9)); print('up', flush=True); "
    command = [sys.executable, "-c", handler + "signal.pause()"]
    arguments = ["--intensity", "mock", "--threshold", "1000", "--", *command]
    with subprocess.Popen([*WAIT, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        child.send_signal(number)
        child.communicate(timeout=20)
    assert child.returncode == 9


def test_the_command_has_the_signals_that_it_had_without_us(here):
    """Python ignores SIGPIPE, and what is ignored stays so in the program that a process becomes."""
    show = ["grep", "-E", "^Sig(Ign|Cgt|Blk)", "/proc/self/status"]
    if not Path("/proc/self/status").exists():
        pytest.skip("NOT TESTED: no /proc")
    bare = subprocess.run(show, capture_output=True, text=True, check=True)
    assert run("--intensity", "mock", "--threshold", "1000", "--", *show).stdout == bare.stdout


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--threshold", "200", "--", "no-such-command"], "there is no such command"),
        (["--threshold", "-1"], "Error: --threshold is a carbon intensity"),
        (["--threshold", "200", "--max-wait", "6"], "--max-wait"),
        (["--threshold", "200", "--intensity", "nobody"], "no such source of carbon intensity"),
        (["--threshold", "200", "--country", "Germny"], "Germany"),
    ],
)
def test_what_cannot_be_meant_is_said_before_the_wait(here, arguments, says):
    done = run(*arguments)
    assert done.returncode == 1 and says in done.stderr and done.stdout == ""


def can_unshare() -> bool:
    return subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_unshare(), reason="NOT TESTED: this user may not make a network namespace (unshare -rn)")
def test_without_any_network_the_table_answers(here):
    done = run("--country", "GB", "--threshold", "100", "--", "true", wrapper=("unshare", "-rn"))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "at all hours" in said and "neso: " in said and "year's average" in said


@pytest.mark.slow
def test_a_run_behind_it_has_the_wait_in_its_log(here):
    Path("train.py").write_text(
        "from greenlove_tracker import Tracker\n"
        "t = Tracker(1, sim_gpu_w=300)\nt.epoch_start(); t.epoch_end(); t.stop()\n"
    )
    greenlove = [sys.executable, "-m", "greenlove_tracker", "run", "train.py"]
    done = run("--intensity", "mock", "--threshold", "1", "--max-wait", "1.1s", "--", *greenlove)
    assert done.returncode == 0, done.stderr
    for found in read_logs("greenlove_logs").runs:  # of the script, and of its tracker
        assert float(found.text("wait_s")) >= 1.1
        assert found.text("wait_reason") == "maximum wait"
        assert 200 <= float(found.text("intensity_at_start_gco2e_per_kwh")) <= 400
    assert "Waited 1." in done.stderr.split("starting", 1)[1]


@pytest.mark.slow
def test_a_run_without_a_wait_says_nothing_of_one(here, monkeypatch):
    monkeypatch.setenv(WAIT_VARIABLE, "")  # which the next line sets, until the test is over
    hand_over_wait([Field("wait_s", "60", "s")], time.time() - 2 * 3600)
    Path("train.py").write_text("print('trained')\n")
    greenlove = [sys.executable, "-m", "greenlove_tracker", "run", "train.py"]
    done = subprocess.run(greenlove, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "waited" not in done.stderr
    assert read_logs("greenlove_logs").runs[0].text("wait_s") == ""
