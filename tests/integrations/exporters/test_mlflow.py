"""MLflow, with a store in a file of SQLite: in processes of their own, for what is active is global there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import json, os, sys, time
sys.path.insert(0, {tests!r})
import mlflow
from fakes import FakeClock, make_tracker, session, tick, train
from greenlove_tracker import Tracker
from greenlove_tracker.integrations.exporters.mlflow import MLflowExporter
from greenlove_tracker.tracker import session
session._END_S = 200.0  # MLflow loads for as long as it takes
clock = FakeClock()

def runs():
    client = mlflow.MlflowClient()
    found = []
    for e in client.search_experiments():
        for run in client.search_runs([e.experiment_id]):
            names = run.data.metrics
            history = {{n: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, n)] for n in names}}
            report = [a.path for a in client.list_artifacts(run.info.run_id, "greenlove")]
            found.append(dict(id=run.info.run_id, name=run.info.run_name, status=run.info.status, experiment=e.name,
                              metrics=history, params=run.data.params, tags=run.data.tags, report=report))
    return found
"""
TESTS = str(Path(__file__).parents[2])


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory) -> Path:
    """A database that MLflow has made its tables in, which takes seconds."""
    store = tmp_path_factory.mktemp("store") / "mlflow.db"
    code = "import mlflow; mlflow.MlflowClient().search_experiments()"
    subprocess.run([sys.executable, "-c", code], env=_environment(f"sqlite:///{store}"), cwd=store.parent, check=True)
    return store


@pytest.fixture(autouse=True)
def store(tmp_path, empty_store) -> None:
    shutil.copy(empty_store, tmp_path / "mlflow.db")


def _environment(uri: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GREENLOVE_", "MLFLOW_"))}
    return kept | {"MLFLOW_TRACKING_URI": uri, "MLFLOW_DISABLE_TELEMETRY": "true"}


def told(tmp_path: Path, code: str, *, uri: str = "", **variables: str) -> tuple[Any, str]:
    """What the script prints last, as JSON, and what it says on stderr."""
    env = _environment(uri or f"sqlite:///{tmp_path}/mlflow.db") | variables
    script = tmp_path / "script.py"
    script.write_text(HEAD.format(tests=TESTS) + code)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
def test_into_a_run_of_its_own(tmp_path):
    code = """
tracker = make_tracker(clock, "logs", epochs=4, country="DE", project="thesis", export="mlflow")
assert mlflow.active_run() is None
train(tracker, clock, 2, gap_s=2.0)
tracker.log_metric("top-1 (%)", 93.0)
tracker.log_metric("val/../../loss//", 0.5)
assert mlflow.active_run() is None
train(tracker, clock, 2, gap_s=2.0)
tracker.stop()
s = tracker.summary
print(json.dumps([runs(), s.run_id, s.energy_kwh, s.emissions_kgco2e, s.cost_usd]))
"""
    ((run,), run_id, energy_kwh, emissions_kgco2e, cost_usd), _ = told(tmp_path, code, MLFLOW_EXPERIMENT_NAME="costs")
    assert (run["status"], run["name"], run["experiment"]) == ("FINISHED", run_id, "costs")
    metrics = run["metrics"]
    assert metrics["greenlove/epoch_energy_kwh"] == [[n, pytest.approx(0.001)] for n in (1, 2, 3, 4)]
    assert metrics["greenlove/power_w"] == [[n, pytest.approx(360.0)] for n in (1, 2, 3, 4)]
    assert metrics["greenlove/duration_s"] == [[n, 12.0 * n] for n in (1, 2, 3, 4)]
    for name, total in (("energy_kwh", energy_kwh), ("emissions_kgco2e", emissions_kgco2e), ("cost_usd", cost_usd)):
        assert metrics[f"greenlove/{name}"][-1] == [4, pytest.approx(total)]
    for bound in ("", "_lower", "_upper"):
        assert [step for step, _ in metrics[f"greenlove/forecast_duration{bound}_s"]] == [1, 2, 3]
    assert metrics["greenlove/metrics/top-1 ___"] == [[2, 93.0]]
    assert metrics["greenlove/metrics/val/_/_/loss/_/_"] == [[2, 0.5]]
    assert run["params"]["greenlove/country"] == "DE" and run["params"]["greenlove/epochs_planned"] == "4"
    assert run["tags"]["greenlove/run_id"] == run_id and run["tags"]["greenlove/project"] == "thesis"
    assert run["report"] == ["greenlove/report.html"]


@pytest.mark.slow
def test_into_the_active_run_which_is_left_open(tmp_path):
    code = """
with mlflow.start_run() as active:
    mlflow.log_metric("loss", 1.0, step=0)
    with Tracker(2, log_dir="logs", verbose=0, sim_gpu_w=100.0, exporters=[MLflowExporter()]) as tracker:
        for epoch in range(2):
            tracker.epoch_start(); time.sleep(0.05); tracker.epoch_end()
    assert mlflow.active_run().info.run_id == active.info.run_id
    during = runs()
    mlflow.log_metric("loss", 0.5, step=1)
print(json.dumps([during, runs(), active.info.run_id]))
"""
    ((during,), (after,), run_id), stderr = told(tmp_path, code)
    assert during["id"] == after["id"] == run_id
    assert (during["status"], after["status"]) == ("RUNNING", "FINISHED")
    assert [step for step, _ in after["metrics"]["greenlove/epoch_duration_s"]] == [1, 2]
    assert after["metrics"]["loss"] == [[0, 1.0], [1, 0.5]] and after["report"] == ["greenlove/report.html"]
    assert "failed" not in stderr


@pytest.mark.slow
def test_a_run_that_is_begun_behind_the_tracker_is_found_and_two_trackers_in_one_run_do_no_harm(tmp_path):
    code = """
os.environ["GREENLOVE_EXPORT"] = "mlflow"
for length in (2, 3):
    with Tracker(length, log_dir="logs", verbose=0, sim_gpu_w=100.0) as tracker:
        if length == 2:
            mlflow.start_run()
        for epoch in range(length):
            tracker.epoch_start(); time.sleep(0.05); tracker.epoch_end()
mlflow.end_run()
print(json.dumps(runs()))
"""
    (run,), stderr = told(tmp_path, code)
    assert [step for step, _ in run["metrics"]["greenlove/epoch_duration_s"]] == [1, 2, 1, 2, 3]
    assert run["params"]["greenlove/epochs_planned"] == "2" and "failed" not in stderr


@pytest.mark.slow
def test_under_the_runner_the_run_that_the_script_makes_active_is_found(tmp_path):
    (tmp_path / "train.py").write_text(
        "import mlflow, time, torch\n"
        "from greenlove_tracker.tracker import session\n"
        "session._END_S = 200.0\n"
        "net = torch.nn.Linear(2, 1)\n"
        "opt = torch.optim.SGD(net.parameters(), 0.01)\n"
        "loader = torch.utils.data.DataLoader(torch.ones(8, 2), 2)\n"
        "with mlflow.start_run(run_name='mine'):\n"
        "    for _ in range(3):\n"
        "        for batch in loader:\n"
        "            opt.zero_grad(); net(batch).sum().backward(); opt.step()\n"
        "        mlflow.log_metric('loss', 1.0)\n"
        "        time.sleep(1.0)\n"
    )
    code = """
import subprocess
words = [sys.executable, "-m", "greenlove_tracker", "run", "--export", "mlflow", "train.py"]
done = subprocess.run(words, env=os.environ | {"GREENLOVE_SIM_GPU_W": "100"}, capture_output=True, text=True)
assert done.returncode == 0 and "failed" not in done.stderr, done.stderr
print(json.dumps(runs()))
"""
    (run,), _ = told(tmp_path, code)
    assert (run["name"], run["status"]) == ("mine", "FINISHED")
    assert [step for step, _ in run["metrics"]["greenlove/epoch_duration_s"]] == [1, 2, 3]
    assert len(run["metrics"]["loss"]) == 3 and run["report"]


@pytest.mark.slow
def test_a_run_named_by_the_variable_is_the_users(tmp_path):
    code = """
run_id = mlflow.MlflowClient().create_run("0").info.run_id
os.environ["MLFLOW_RUN_ID"] = run_id
tracker = make_tracker(clock, "logs", exporters=[MLflowExporter()])
train(tracker, clock, 2)
tracker.stop()
assert os.environ["MLFLOW_RUN_ID"] == run_id
print(json.dumps([runs(), run_id]))
"""
    ((run,), run_id), _ = told(tmp_path, code)
    assert run["id"] == run_id and run["status"] == "RUNNING" and "greenlove/energy_kwh" in run["metrics"]


@pytest.mark.slow
@pytest.mark.parametrize("ending, status", [("raise ValueError", "FAILED"), ("pass", "FINISHED")])
def test_the_end_of_the_process_ends_a_run_of_its_own(tmp_path, ending, status):
    code = f"""
import subprocess
code = '''
import sys, time
from greenlove_tracker import Tracker
from greenlove_tracker.tracker import session
session._END_S = 200.0
tracker = Tracker(3, log_dir="logs", verbose=0, sim_gpu_w=100.0, export="mlflow")
tracker.epoch_start(); time.sleep(0.05); tracker.epoch_end()
with tracker:
    {ending}
'''
subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
print(json.dumps(runs()))
"""
    (run,), _ = told(tmp_path, code)
    assert run["status"] == status and run["report"] and "greenlove/energy_kwh" in run["metrics"]


@pytest.mark.slow
def test_a_service_that_cannot_be_reached_is_one_warning(tmp_path):
    code = """
with Tracker(2, log_dir="logs", verbose=0, sim_gpu_w=100.0, exporters=[MLflowExporter()]) as tracker:
    for epoch in range(2):
        tracker.epoch_start(); time.sleep(0.05); tracker.epoch_end()
print(json.dumps([tracker.summary.epochs_done, tracker.summary.status]))
"""
    variables = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "2"}
    result, stderr = told(tmp_path, code, uri="http://127.0.0.1:9", **variables)
    assert result == [2, "finished"] and stderr.count("MLflow failed, and is left out") == 1
