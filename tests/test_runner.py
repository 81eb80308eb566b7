"""``greenlove run``: what is run must not notice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from fakes import only_run

from greenlove_tracker import read_logs
from greenlove_tracker.logs.aggregate import aggregate

RUN = [sys.executable, "-m", "greenlove_tracker"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("GREENLOVE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GREENLOVE_SIM_GPU_W", "360")  # no need to wait for the real meter
    return tmp_path


def greenlove(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RUN, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        stdin=subprocess.DEVNULL,
        **options,
    )


def write(name: str, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def test_a_script_sees_its_own_arguments_path_and_main():
    write("sub/helper.py", "WORD = 'found'\n")
    write(
        "sub/train.py",
        "import sys, helper\n"
        "print(sys.argv, __name__, __file__, helper.WORD, sys.modules['__main__'].__dict__ is globals())\n",
    )
    done = greenlove("--quiet", "sub/train.py", "--output", "x", "--log-dir", "y", "--help", "--", "-m")
    assert done.stderr == "" and done.returncode == 0
    arguments = ["sub/train.py", "--output", "x", "--log-dir", "y", "--help", "--", "-m"]
    assert done.stdout == f"{arguments} __main__ {Path.cwd()}/sub/train.py found True\n"
    assert only_run().text("command") == "greenlove run sub/train.py --output x --log-dir y --help -- -m"


def test_stdout_is_the_scripts_own_and_the_screen_goes_to_stderr():
    write("train.py", "print('only this')\n")
    done = greenlove("run", "--project", "thesis", "train.py")
    assert done.stdout == "only this\n"
    assert "thesis/" in done.stderr and " · finished" in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 100


@pytest.mark.parametrize(
    ("script", "code", "status"),
    [
        ("import sys; sys.exit(3)", 3, "failed"),
        ("import sys; sys.exit('no luck')", 1, "failed"),
        ("raise SystemExit", 0, "finished"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, "terminated"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "interrupted"),
        (
            "from greenlove_tracker import TrainingInterrupted; raise TrainingInterrupted(143, '', 'SIGTERM')",
            143,
            "terminated",
        ),
    ],
)
def test_exit_codes_and_signals_pass_through(script, code, status):
    write("train.py", script)
    done = greenlove("--quiet", "train.py")
    assert done.returncode == code
    assert ("no luck" in done.stderr) == ("no luck" in script)
    assert only_run().summary.status == status
    if code >= 0:
        assert only_run().summary.exit_code == code


def test_a_traceback_is_as_python_prints_it():
    write("train.py", "def f():\n    raise ValueError('boom')\nf()\n")
    plain = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, check=False)
    tracked = greenlove("--quiet", "train.py")
    assert tracked.returncode == plain.returncode == 1
    assert tracked.stderr == plain.stderr


def test_a_module_and_a_package():
    write("package/__init__.py", "")
    write(
        "package/train.py",
        "import sys\nfrom . import other\nprint(sys.argv[1:], __name__, __package__, __spec__.name)\n",
    )
    write("package/other.py", "")
    write("package/__main__.py", "print('main of', __package__)\n")
    assert greenlove("--quiet", "-m", "package.train", "-m", "x").stdout == (
        "['-m', 'x'] __main__ package package.train\n"
    )
    assert greenlove("run", "--quiet", "-m", "package").stdout == "main of package\n"
    assert "no module named" in greenlove("-m", "packag").stderr


def test_spawned_workers_find_the_scripts_functions():
    write(
        "train.py",
        "import multiprocessing as mp\n"
        "def square(x):\n    return x * x\n"
        "if __name__ == '__main__':\n"
        "    with mp.get_context('spawn').Pool(2) as pool:\n        print(pool.map(square, [1, 2, 3]))\n",
    )
    done = greenlove("--quiet", "train.py")
    assert done.stdout == "[1, 4, 9]\n", done.stderr


TRACKED = (
    "from greenlove_tracker import Tracker\n"
    "for fold in range(2):\n"
    "    with Tracker(epochs=2, country='DE') as tracker:\n"
    "        for _ in range(2):\n            tracker.epoch_start(); tracker.epoch_end()\n"
)


def parts_of_script(log_dir: str = "greenlove_logs"):
    """Return the runs of a script that makes several trackers, in order."""
    runs = sorted(read_logs(log_dir).runs, key=lambda run: run.text("started_at"))
    assert {run.text("part_of") for run in runs} == ({runs[0].run_id} if len(runs) > 1 else {""})
    assert all(run.problems == [] for run in runs)
    return runs


@pytest.mark.slow
def test_each_tracker_of_a_script_is_a_run_of_its_own():
    write(
        "train.py",
        "import time\nfrom greenlove_tracker import Tracker\n"
        "began_s = time.perf_counter()\n"
        "for fold in range(3):\n"
        "    with Tracker(epochs=4, project=f'fold{fold}') as tracker:\n"
        "        for _ in range(4):\n            tracker.epoch_start(); time.sleep(0.02); tracker.epoch_end()\n"
        "    print(tracker.summary.epochs_done)\n"
        "    time.sleep(0.1)\n"
        "print(time.perf_counter() - began_s)\n",
    )
    done = greenlove("--country", "FR", "--project", "all", "train.py")
    *epochs_done, script_s = done.stdout.split()
    assert epochs_done == ["4", "4", "4"], done.stderr
    parts = parts_of_script()
    assert [(run.summary.project, run.summary.epochs_done) for run in parts] == [(f"fold{i}", 4) for i in range(3)]
    assert {run.text("country") for run in parts} == {"FR"} and {run.summary.status for run in parts} == {"finished"}
    summaries = [run.summary for run in parts]
    whole_s = sum(summary.duration_s for summary in summaries)
    script = [datetime.fromisoformat(t) for t in (summaries[0].started_at, summaries[-1].ended_at)]
    assert float(script_s) < whole_s < (script[1] - script[0]).total_seconds() + 0.1  # each second is in one run
    assert sum(s.energy_kwh for s in summaries) == pytest.approx(360.0 * whole_s / 3_600_000, rel=0.05)
    assert done.stderr.count(" · finished · 4 of 4 epochs") == 3
    by_job = greenlove("report", "greenlove_logs", "--by", "job", "--csv").stdout.splitlines()
    assert len(by_job) == 2 and parts[0].run_id in by_job[1] and ",3," in by_job[1]


@pytest.mark.slow
def test_the_meter_of_the_script_goes_on_in_its_tracker():
    write(
        "train.py",
        "import time\nfrom greenlove_tracker import Tracker\n"
        "with Tracker(epochs=1) as tracker:\n"
        "    tracker.wait_ready(30)\n"
        "    tracker.epoch_start(); time.sleep(1.0); tracker.epoch_end()\n"
        "from codecarbon import OfflineEmissionsTracker\n"
        "import gc\n"
        "print(sum(isinstance(thing, OfflineEmissionsTracker) for thing in gc.get_objects()))\n",
    )
    done = greenlove("--quiet", "train.py", env={k: v for k, v in os.environ.items() if k != "GREENLOVE_SIM_GPU_W"})
    assert done.stdout == "1\n", done.stderr
    run = only_run()
    assert run.epochs[0].energy.cpu_kwh or run.epochs[0].energy.ram_kwh
    assert run.text("cpu_model") and run.text("meter").startswith("codecarbon")


def test_a_training_that_ended_is_finished_whatever_becomes_of_its_script():
    write(
        "train.py",
        "import os, signal, sys, time\nfrom greenlove_tracker import Tracker, read_logs\n"
        "with Tracker(1, log_dir='mine') as t:\n    t.epoch_start(); t.epoch_end()\n"
        "print(read_logs('mine').runs[0].summary.status, t.forecast, t.summary.exit_code)\n"
        "sys.stdout.flush(); time.sleep(0.2); os.kill(os.getpid(), int(sys.argv[1]))\n",
    )
    for n, number in enumerate((signal.SIGKILL, signal.SIGTERM), 1):
        done = greenlove("train.py", f"{number:d}")
        assert (done.returncode, done.stdout) == (-number, "finished None None\n"), done.stderr
        run = max(read_logs("mine").runs, key=lambda run: run.text("started_at"))
        assert len(read_logs("mine").runs) == n == len(read_logs("greenlove_logs").runs)  # of the start-up
        assert (run.summary.status, run.summary.epochs_done, run.problems) == ("finished", 1, [])
        assert run.has_summary is (number == signal.SIGTERM)
    assert run.summary.duration_s > 0.2


def test_a_tracker_that_nobody_stops_ends_as_the_script_does():
    write(
        "train.py",
        "import sys\nfrom greenlove_tracker import Tracker\n"
        "t = Tracker(2)\nt.epoch_start(); t.epoch_end()\nsys.exit(3)\n",
    )
    assert greenlove("--quiet", "train.py").returncode == 3
    run = only_run()
    assert (run.summary.status, run.summary.exit_code) == ("failed", 3)
    write(
        "kill.py",
        "import os, signal\nfrom greenlove_tracker import Tracker\n"
        "t = Tracker(2)\nt.epoch_start(); t.epoch_end()\nos.kill(os.getpid(), signal.SIGTERM)\n",
    )
    assert greenlove("--quiet", "--log-dir", "other", "kill.py").returncode == -signal.SIGTERM
    (run,) = parts_of_script("other")
    assert (run.summary.status, run.summary.epochs_done) == ("terminated", 1)


def test_any_command_is_measured_from_outside():
    done = greenlove("run", "--", "sh", "-c", "echo out; echo err >&2; exit 5")
    assert (done.returncode, done.stdout) == (5, "out\n")
    assert done.stderr.startswith("err\n") and "exit 5" in done.stderr
    run = only_run()
    assert run.summary.duration_s > 0 and run.summary.energy_kwh is not None
    assert run.text("command") == "greenlove run -- sh -c 'echo out; echo err >&2; exit 5'"


@pytest.mark.slow
def test_a_commands_own_trackers_write_epochs_and_count_no_energy_twice():
    write("train.py", TRACKED.replace("country='DE'", "country='DE', verbose=0"))
    write("both.sh", f"{sys.executable} train.py\n{sys.executable} train.py\n")
    done = greenlove("run", "--", "sh", "both.sh")
    assert done.returncode == 0, done.stderr
    run = only_run()
    assert len(run.epochs) == 2 and sum(len(run.epochs_of(rank)) for rank in run.rows) == 8
    command_kwh = sum(r.gap_before.gpu_kwh or 0.0 for r in run.command_rows)
    assert run.summary.energy.gpu_kwh == pytest.approx(command_kwh)
    assert run.summary.gpu_count == 1
    assert run.problems == []


@pytest.mark.slow_cases
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_command_and_its_end_is_ours(number):
    write("wait.sh", "trap 'echo cleaned; exit 9' TERM INT\necho up\nwhile :; do sleep 0.05; done\n")
    child = subprocess.Popen(
        [*RUN, "run", "--quiet", "--", "sh", "wait.sh"], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    time.sleep(0.12)  # dash drops a signal that comes while it starts a process, as it does right after "up"
    child.send_signal(number)
    out, _ = child.communicate(timeout=180)
    assert (child.returncode, out) == (9, "cleaned\n")
    assert only_run().summary.exit_code == 9


COUNTING = """
import signal, sys, time
seen = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: seen.append(signal.Signals(number).name))
print("up", flush=True)
while not seen:
    time.sleep(0.01)
time.sleep(0.5)
print(*seen)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "send", "has_terminal"),
    [
        (signal.SIGINT, os.kill, False),
        (signal.SIGTERM, os.kill, False),
        (signal.SIGUSR1, os.kill, False),
        (signal.SIGTERM, os.kill, True),
        (signal.SIGINT, os.killpg, True),  # Ctrl-C
    ],
)
def test_a_signal_reaches_the_command_once(number, send, has_terminal):
    write("count.py", COUNTING)
    terminal = os.openpty() if has_terminal else ()
    child = subprocess.Popen(
        [*RUN, "run", "--quiet", "--", sys.executable, "count.py"],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
        stdin=terminal[1] if terminal else subprocess.DEVNULL,
    )
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    send(child.pid, number)
    assert (child.communicate(timeout=180)[0], child.returncode) == (f"{number.name}\n", 0)
    for end in terminal:
        os.close(end)


def test_a_command_killed_by_a_signal_is_passed_on():
    done = greenlove("run", "--quiet", "--", "sh", "-c", "kill -9 $$")
    assert done.returncode == -signal.SIGKILL
    assert only_run().summary.status == "failed"


def test_what_cannot_be_run_says_so():
    done = greenlove("nowhere.py")
    assert "no such script: nowhere.py" in done.stderr and done.returncode == 2
    missing = greenlove("run", "--", "no-such-program")
    assert missing.returncode == 1 and "cannot start no-such-program" in missing.stderr
    assert not [r for r in read_logs("greenlove_logs").runs if r.summary.status == "running"]


def test_what_a_script_gives_its_tracker_holds_and_the_options_are_its_defaults():
    script = (
        "import os, time\nfrom greenlove_tracker import Tracker\nos.mkdir('below')\nos.chdir('below')\n"
        "with Tracker(2, country='FR', pue=1.5) as t:\n"
        "    for _ in range(2):\n        t.epoch_start(); time.sleep(0.1); t.epoch_end()\n"
        "print(t.summary.epochs_done, t.summary.pue)\n"
    )
    write("train.py", script)
    done = greenlove("--country", "DE", "--project", "mine", "--pue", "1.1", "train.py")
    assert done.stdout == "2 1.5\n", done.stderr
    run = only_run()
    assert (run.text("country"), run.summary.project, run.summary.pue) == ("FR", "mine", 1.5)
    assert run.carbon_intensity.value == pytest.approx(44.18) and run.electricity_price is not None
    assert run.epochs[0].emissions_gco2e == pytest.approx(
        run.epochs[0].energy.total_kwh * 1.5 * run.carbon_intensity.value
    )


@pytest.mark.slow
def test_a_runner_inside_a_run_and_a_childs_tracker_count_nothing_twice():
    write("inner.py", TRACKED)
    greenlove("run", "--", *RUN, "inner.py")
    run = only_run()
    assert (run.summary.epochs_done, run.summary.epochs_planned) == (4, 4)
    assert run.summary.energy.gpu_kwh == pytest.approx(sum(r.gap_before.gpu_kwh or 0 for r in run.command_rows))
    write("parent.py", f"import subprocess, sys\nsubprocess.run([{sys.executable!r}, 'inner.py'])\n")
    greenlove("--log-dir", "other", "parent.py")
    logs = read_logs("other")
    assert len(logs.runs) == 1 and logs.runs[0].summary.epochs_done == 4
    own = sum((r.energy.gpu_kwh or 0) + (r.gap_before.gpu_kwh or 0) for r in logs.runs[0].rows[0])
    assert logs.runs[0].summary.energy.gpu_kwh == pytest.approx(own)


SPAWNED = """
import os, sys, time
import torch.distributed as dist, torch.multiprocessing as mp
from greenlove_tracker import Tracker
def work(rank, world, when):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    if when == "before":
        tracker = Tracker(epochs=2, verbose=0)
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/group", rank=rank, world_size=world)
    if when == "after":
        tracker = Tracker(epochs=2, verbose=0)
    with tracker:
        for _ in range(2):
            tracker.epoch_start(); time.sleep(0.05); tracker.step(n_samples=4); dist.barrier(); tracker.epoch_end()
if __name__ == "__main__":
    if sys.argv[2] == "spawn":
        mp.spawn(work, args=(2, sys.argv[1]), nprocs=2)
    else:
        os.environ["MASTER_PORT"] = "0"
        ranks = [mp.get_context("spawn").Process(target=work, args=(rank, 2, sys.argv[1])) for rank in range(2)]
        [rank.start() for rank in ranks]
        [rank.join() for rank in ranks]
"""


@pytest.mark.slow
@pytest.mark.parametrize(("when", "how"), [("before", "spawn"), ("after", "spawn"), ("after", "processes")])
def test_processes_that_train_together_are_one_run_with_one_energy(when, how):
    pytest.importorskip("torch")
    write("train.py", SPAWNED)
    done = subprocess.run(
        [sys.executable, "train.py", when, how], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    run = only_run()
    assert sorted(run.rows) == [0, 1] and run.problems == []
    summary = run.summary
    assert (summary.epochs_done, summary.n_ranks, summary.n_nodes, summary.counts.samples) == (2, 2, 1, 16)
    measured_s = sum(row.gap_before_s + row.duration_s for row in run.metered_rows)
    assert summary.energy_kwh == pytest.approx(360.0 * measured_s / 3_600_000, rel=0.1)
    lines = (run.path / "summary.csv").read_text().splitlines()
    assert "n_ranks,2," in lines and "epochs_done,2," in lines


def test_workers_of_a_pool_train_each_for_themselves():
    write(
        "train.py",
        "import multiprocessing as mp\nfrom greenlove_tracker import Tracker\n"
        "def work(n):\n"
        "    with Tracker(epochs=1, verbose=0) as tracker:\n        tracker.epoch_start(); tracker.epoch_end()\n"
        "if __name__ == '__main__':\n"
        "    with mp.get_context('spawn').Pool(2) as pool:\n        pool.map(work, range(3))\n",
    )
    subprocess.run([sys.executable, "train.py"], check=True, timeout=180)
    assert [run.summary.epochs_done for run in read_logs("greenlove_logs").runs] == [1, 1, 1]


def test_where_the_runner_alone_is_killed_the_total_is_that_of_the_rows():
    write(
        "train.py",
        "import time\nfrom greenlove_tracker import Tracker\n"
        "with Tracker(epochs=4, verbose=0) as tracker:\n"
        "    print('up', flush=True)\n"
        "    for _ in range(4):\n        tracker.epoch_start(); time.sleep(0.3); tracker.epoch_end()\n"
        "print('down', flush=True)\n",
    )
    child = subprocess.Popen([*RUN, "run", "--", sys.executable, "train.py"], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "up\n"
    child.kill()
    assert child.stdout.readline() == "down\n"
    child.wait()
    summary = only_run().summary
    assert (summary.status, summary.epochs_done) == ("interrupted", 4)
    assert summary.duration_s >= 1.2
    assert summary.energy_kwh == pytest.approx(360.0 * summary.duration_s / 3_600_000, rel=0.1)


def test_nohup_is_respected():
    write("up.sh", f"trap '' HUP\n{' '.join(RUN)} run --quiet -- sh -c 'kill -HUP $$; echo alive'\n")
    done = subprocess.run(["sh", "up.sh"], capture_output=True, text=True, timeout=180, check=False)
    assert done.stdout == "alive\n"


@pytest.mark.slow_cases
@pytest.mark.parametrize("what", ["script", "module", "command"])
@pytest.mark.parametrize("broken", ["GREENLOVE_PUE", "GREENLOVE_COUNTRY", "toml", "log_dir", "--log-dir"])
def test_what_is_wrong_outside_the_command_line_keeps_nothing_from_running(monkeypatch, broken, what):
    write("train.py", "import sys\nprint(sys.argv[1:], __name__, 'greenlove_tracker' in sys.modules)\nsys.exit(7)\n")
    write("elsewhere", "a file")
    if broken.startswith("GREENLOVE_"):
        monkeypatch.setenv(broken, "abc")
    elif broken == "toml":
        write("greenlove.toml", "pue = = 2")
    else:
        monkeypatch.setenv("GREENLOVE_LOG_DIR", "elsewhere")
    options = ["--log-dir", "elsewhere/logs"] if broken == "--log-dir" else []
    words = {"script": ["train.py"], "module": ["-m", "train"], "command": ["--", sys.executable, "train.py"]}[what]
    done = greenlove("run", *options, *words, "--lr", "3")
    assert (done.returncode, done.stdout) == (7, "['--lr', '3'] __main__ False\n"), done.stderr
    assert done.stderr.count("this is run, but not tracked: ") == 1 and "Traceback" not in done.stderr


def test_what_is_wrong_on_the_command_line_is_an_error():
    write("train.py", "print('ran')\n")
    for options in (["--pue", "0.5"], ["--country", "Germny"]):
        done = greenlove("run", *options, "train.py")
        assert done.returncode != 0 and done.stdout == "" and "Error: " in done.stderr


@pytest.mark.slow
def test_the_options_of_python_hold_where_a_script_is_run_untracked():
    write(
        "train.py", "import sys\nprint(sys.flags.optimize, sys.warnoptions, sys._xoptions, sys.stdout.write_through)\n"
    )
    flags = ["-O", "-W", "ignore", "-X", "faulthandler", "-u"]
    for words in (["train.py"], ["-m", "train"]):
        tracked, untracked = [
            subprocess.run(
                [sys.executable, *flags, "-m", "greenlove_tracker", "run", "--quiet", *words],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, **more},
            )
            for more in ({}, {"GREENLOVE_PUE": "abc"})
        ]
        assert "not tracked" in untracked.stderr and "not tracked" not in tracked.stderr
        assert tracked.stdout == untracked.stdout == "1 ['ignore'] {'faulthandler': True} True\n"


@pytest.mark.slow
def test_of_an_overrun_a_command_is_only_warned():
    options = ["--max-energy", "1e-12", "--on-overrun", "stop"]
    done = greenlove("run", *options, "--", "sh", "-c", "echo hi; sleep 0.2; exit 3")
    assert (done.returncode, done.stdout) == (3, "hi\n"), done.stderr
    assert done.stderr.count("on_overrun stop works where") == 1 and only_run().summary.status == "failed"


def test_only_the_first_training_of_a_script_resumes_the_run_that_was_given():
    write("train.py", TRACKED)
    assert greenlove("--continues", "20260101T000000-0000", "train.py").returncode == 0
    parts = parts_of_script()
    assert sorted(run.text("continues") for run in parts) == ["", "20260101T000000-0000"]
    assert len(aggregate("greenlove_logs").by("training")) == 2
