from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenlove_tracker.experiments.definition import (
    SECTIONS,
    ExperimentBudget,
    StartPolicy,
    TechniqueChoice,
    read_experiment,
)
from greenlove_tracker.vocabulary.errors import SettingError, UsageError

pytestmark = pytest.mark.usefixtures("no_settings")

TASK = "def task():\n    raise AssertionError('nothing is run while a file is read')\n"
NEEDED = "name: digits\ntask: digits_task.py:task\n"
WHOLE = """\
name: digits
task: digits_task.py:task
arguments: [--width, 32, --rate, 1e-3, --zip, 017, --on, NO, --token, "${TOKEN}"]
epochs: 20
seeds: 2
arms:
  baseline:
  optimised:
    - amp-bf16
    - grad-accumulation=4
    - num-workers: 4
    - early-stopping: {metric: val_loss, patience: 5, min_delta: 0.001}
matrix:
  batch_size: [32, 64]
  --lr: [1e-3, 3e-3]
schedule: {below_gco2e_per_kwh: 250, max_wait: 1h}
budget: {hours: 2, energy_kwh: 1, cost_usd: 5, kgco2e: 0.5}
country: NO
settings: {intensity: mock, export: tensorboard, price_usd_per_gpu_hour: 2.5, pue: 1.2}
outputs: {directory: results/digits, reports: [html, pdf]}
"""


@pytest.fixture
def write(tmp_path):
    """Writes ``exp.yaml`` beside its task."""
    (tmp_path / "digits_task.py").write_text(TASK)

    def write_text(text: str, name: str = "exp.yaml") -> Path:
        (tmp_path / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        return tmp_path / name

    return write_text


@pytest.fixture
def refused(write):
    """Reads a text, and gives the error's message without the file's name."""

    def message(text: str, **options: bool) -> str:
        path = write(text)
        with pytest.raises(UsageError) as caught:
            read_experiment(path, **options)
        assert not isinstance(caught.value, SettingError)
        return str(caught.value).replace(str(path), "exp.yaml")

    return message


def test_a_whole_file(write, tmp_path):
    path = write(WHOLE)
    experiment = read_experiment(path)
    assert (experiment.name, experiment.path) == ("digits", path)
    assert experiment.sha256 == hashlib.sha256(WHOLE.encode()).hexdigest()
    assert experiment.baseline == "baseline, batch_size=32, --lr=1e-3" == experiment.runs[0].group
    assert experiment.start == StartPolicy(below_gco2e_per_kwh=250.0, max_wait="1h")
    assert experiment.budget == ExperimentBudget(hours=2.0, energy_kwh=1.0, cost_usd=5.0, kgco2e=0.5)
    assert experiment.outputs == tmp_path / "results" / "digits" and experiment.reports == ("html", "pdf")
    assert len(experiment.runs) == 2 * 2 * 4 == len({run.key for run in experiment.runs})
    assert len({run.name for run in experiment.runs}) == 16
    run = experiment.runs[1]
    assert run.name == "optimised, batch_size=32, --lr=1e-3, seed 0"
    words = ("--width", "32", "--rate", "1e-3", "--zip", "017", "--on", "NO", "--token", "${TOKEN}", "--lr=1e-3")
    assert run.arguments == words
    assert run.techniques == (
        TechniqueChoice("amp-bf16", {}),
        TechniqueChoice("grad-accumulation=4", {}),
        TechniqueChoice("num-workers=4", {}),
        TechniqueChoice("early-stopping", {"metric": "val_loss", "patience": 5, "min_delta": 0.001}),
    )
    assert run.task == f"{tmp_path / 'digits_task.py'}:task"
    assert run.task_sha256 == hashlib.sha256(TASK.encode()).hexdigest()
    assert (run.epochs, run.steps, run.batch_size, run.seed) == (20, None, 32, 0)
    assert run.settings == {
        "project": "digits",
        "country": "NO",
        "export": "tensorboard",
        "intensity": "mock",
        "price_usd_per_gpu_hour": "2.5",
        "pue": "1.2",
    }


EXAMPLES = {
    "digits": (6, "baseline"),
    "carbon_sweep": (4, "baseline, batch_size=32"),
    "pipeline": (4, "baseline"),
}


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parents[2].glob("examples/experiments/*.yaml")), ids=lambda path: path.stem
)
def test_the_examples(path):
    experiment = read_experiment(path)
    assert (len(experiment.runs), experiment.baseline) == EXAMPLES[path.stem]
    assert experiment.outputs.parent.parent == path.parent


def test_an_arm_has_a_start_of_its_own_and_what_waits_for_nothing_comes_first(write):
    waiting = "schedule: {below_gco2e_per_kwh: 200, max_wait: 1h}"
    experiment = read_experiment(write(f"{NEEDED}seeds: 2\narms: {{now: [], later: {{{waiting}}}}}\n"))
    assert [(run.arm, run.seed) for run in experiment.runs] == [("now", 0), ("now", 1), ("later", 0), ("later", 1)]
    starts = [experiment.start_of(run) for run in experiment.runs]
    own = StartPolicy(below_gco2e_per_kwh=200.0, max_wait="1h")
    assert starts == [StartPolicy(), StartPolicy(), own, own] and experiment.baseline == "now"
    assert len({run.key for run in experiment.runs}) == 4  # the same training at another time is another one
    turned = read_experiment(write(f"{NEEDED}{waiting}\narms: {{later: [compile], now: {{schedule: {{}}}}}}\n"))
    assert [run.arm for run in turned.runs] == ["now", "later"] and turned.baseline == "later"


def test_the_least_file(write, tmp_path):
    experiment = read_experiment(write(NEEDED))
    (run,) = experiment.runs
    assert (run.name, run.arm, run.group, experiment.baseline) == ("baseline, seed 0", *["baseline"] * 3)
    assert (run.epochs, run.steps, run.batch_size, run.arguments, run.techniques) == (None, None, None, (), ())
    assert run.settings == {"project": "digits"} and experiment.start == StartPolicy()
    assert experiment.budget == ExperimentBudget() and experiment.reports == ("html",)
    assert experiment.outputs == tmp_path / "greenlove_experiments" / "digits"


def test_paths_start_at_the_file_wherever_the_command_is_called_from(write, tmp_path, monkeypatch):
    path = write(NEEDED)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert read_experiment(Path("..") / path.name).runs[0].key == read_experiment(path).runs[0].key
    assert read_experiment(Path("..") / path.name).outputs.parent.parent.samefile(tmp_path)


@pytest.mark.parametrize("text", [NEEDED.replace("\n", "\r\n"), f"{NEEDED}# é 😀"])
def test_the_text_is_as_the_file_has_it(write, text):
    experiment = read_experiment(write(text))
    assert experiment.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_what_is_rearranged_is_trained_no_second_time(write):
    before = read_experiment(write(WHOLE))
    lines = WHOLE.replace("seeds: 2", "seeds: [4, 1, 0]").replace("[html, pdf]", "[md]").replace("1h}", "9h}")
    lines = lines.replace("  --lr: [1e-3, 3e-3]", "  --lr: [3e-3, 1e-3]").replace("hours: 2,", "hours: 9,")
    lines = lines.replace("min_delta: 0.001, ", "").replace(
        "patience: 5, min_delta: 0.001", "min_delta: 1e-3, patience: 5"
    )
    lines = lines.replace("  baseline:\n", "").replace("matrix:", "  plain: []\nmatrix:")
    after = read_experiment(write(lines.replace("tensorboard,", "wandb,")))
    assert {run.key for run in before.runs} < {run.key for run in after.runs}
    assert after.baseline.startswith("optimised")


def test_code_that_changed_is_known_by_its_own_hash(write, tmp_path):
    (before,) = read_experiment(write(NEEDED)).runs
    (tmp_path / "digits_task.py").write_text(f"{TASK}# more\n")
    (after,) = read_experiment(write(NEEDED)).runs
    assert before.key == after.key and before.task_sha256 != after.task_sha256


MISTAKES = [
    ("task: digits_task.py:task\n", ["line 1: name: is missing: write name: digits"]),
    ("name: digits\n", ["line 1: task: is missing: write task: digits_task.py:task"]),
    ("- a\n", ["line 1: should be a valid dictionary"]),
    (f"{NEEDED}epoch: 20\n", ["line 3: epoch: no such key: did you mean epochs?"]),
    (f"{NEEDED}hours: 20\n", ["hours: no such key: there are name, task"]),
    (NEEDED.replace("digits\n", "../x\n"), ["name: becomes a directory"]),
    (f"{NEEDED}epochs: true\n", ["line 3: epochs: should be a valid integer", "not 'true'"]),
    (f"{NEEDED}epochs: 0\n", ["epochs: should be greater than or equal to 1, not '0'"]),
    (f"{NEEDED}epochs: 3\nsteps: 3\n", ["line 4: steps: epochs and steps exclude each other"]),
    (f"{NEEDED}seeds: [0, -1]\n", ["seeds[1]: should be greater than or equal to 0, not '-1'"]),
    (f"{NEEDED}seeds: [1, 1]\n", ["baseline, seed 1 and baseline, seed 1 are the same training"]),
    (f"{NEEDED}seeds: 0\n", ["seeds: List should have at least 1 item"]),
    (f"{NEEDED}seeds: 5000\n", ["seeds: List should have at most 1000 items"]),
    (f"{NEEDED}arguments: --width 3\n", ["arguments: should be a valid list, not '--width 3'"]),
    (f"{NEEDED}arguments:\n- x\n- [1]\n", ["line 5: arguments[1]: should be a valid string"]),
    (f"{NEEDED}arms: {{a: [amp-bf17]}}\n", ["arms.a[0]: no technique is called 'amp-bf17': did you mean amp-bf16?"]),
    (f"{NEEDED}arms:\n  x: []\n  a: [compile]\n  b: [compile]\n", ["a, seed 0 and b, seed 0 are the same training"]),
    (f"{NEEDED}arms: {{'': []}}\n", ["becomes part of a name: 1 to 100 characters"]),
    (f"{NEEDED}arms: {{plain: []}}\nbaseline: plane\n", ["baseline: no arm is called 'plane': did you mean plain?"]),
    (f"{NEEDED}matrix: {{lr: [1]}}\n", ["matrix: no such key: lr: there are epochs, steps"]),
    (f"{NEEDED}matrix: {{batch_size: [0]}}\n", ["matrix.batch_size[0]: should be greater than or equal to 1"]),
    (f"{NEEDED}matrix: {{--lr: []}}\n", ["matrix.--lr: List should have at least 1 item"]),
    (f'{NEEDED}matrix: {{--lr: ["a\\nb"]}}\n', ["matrix.--lr[0]: becomes part of a name"]),
    (f"{NEEDED}epochs: 4\nmatrix: {{steps: [1]}}\n", ["steps: epochs and steps exclude each other"]),
    (f"{NEEDED}schedule: {{start: best}}\n", ["schedule.start: no such key"]),
    (f"{NEEDED}arms: {{a: {{schedule: {{start: best}}}}}}\n", ["arms.a.schedule.start: no such key"]),
    (
        f"{NEEDED}arms: {{a: {{technique: []}}}}\n",
        ["arms.a.technique: no such key: did you mean techniques?"],
    ),
    (f"{NEEDED}schedule: {{max_wait: 6}}\n", ["schedule.max_wait: '6' is no length of time"]),
    (f"{NEEDED}budget: {{hours: -1}}\n", ["budget.hours: should be greater than 0, not '-1'"]),
    (f"{NEEDED}budget: {{hours: inf}}\n", ["budget.hours: should be a finite number, not 'inf'"]),
    (f"{NEEDED}country: Norwai\n", ["country: country 'Norwai' is not an ISO 3166 code", "did you mean Norway?"]),
    (f"{NEEDED}outputs: {{reports: [doc]}}\n", ["outputs.reports[0]: should be 'html', 'pdf', 'md', 'json' or 'csv'"]),
    (f"{NEEDED}settings: {{peu: 2}}\n", ["line 3: settings: no such setting: peu; did you mean pue?"]),
    (f"{NEEDED}settings: {{pue: 0.5}}\n", ["settings.pue: pue must be at least 1 (1.0: no overhead), not 0.5"]),
    (NEEDED.replace(":task", ""), ["task: must name a file and a function in it, such as train.py:task"]),
    (NEEDED.replace("digits_task", "gone"), ["line 2: task: must name a file and a function in it", "gone.py"]),
    (NEEDED.replace("digits_task", "x" * 5000), ["task: must name a file"]),
    (NEEDED.replace(":task", ":tusk"), ["task: must name a file and a function in it"]),
    (NEEDED.replace(".py", ".txt"), ["task: must name a file and a function in it"]),
    (f"{NEEDED}name: x\n", ['line 3: not YAML: found duplicate key "name"']),
    (f"{NEEDED}a: [\n", ["line 4: not YAML: "]),
    (f"{NEEDED}a: !!int x\n", ["not YAML: "]),
    ("[" * 2000, ["not YAML: "]),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[said[0][:60] for _, said in MISTAKES])
def test_a_mistake_is_said_with_its_place_and_what_to_do(refused, text, said):
    message = refused(text)
    assert message.startswith("exp.yaml") and "\n" not in message
    assert all(part in message for part in said), message


def test_several_mistakes_are_said_at_once_in_the_order_of_the_lines(refused):
    message = refused("name: a/b\nepochs: x\ntask: digits_task.py:task\nseeds: y\n")
    assert [line.partition(" should")[0] for line in message.splitlines()] == [
        "exp.yaml has 3 mistakes:",
        "  line 1: name: becomes a directory: up to 80 letters, digits, dots, - and _, not 'a/b'",
        "  line 2: epochs:",
        "  line 4: seeds:",
    ]


def test_options_of_techniques_are_checked_where_they_are_made(refused, write):
    text = f"{NEEDED}arms:\n  a:\n  - early-stopping: {{patiance: 3}}\n  b: [amp-bf16, amp-fp16]\n"
    assert len(read_experiment(write(text)).runs) == 2  # without torch only their names are known
    assert refused(text, makes_techniques=True).splitlines()[1:] == [
        "  line 4: arms.a: early-stopping has no option 'patiance': did you mean patience?",
        "  line 6: arms.b: amp-bf16 and amp-fp16 exclude each other",
    ]
    good = f"{NEEDED}arms: {{a: [grad-accumulation=4, {{early-stopping: {{metric: val_loss, patience: 3}}}}]}}\n"
    assert read_experiment(write(good), makes_techniques=True).runs[0].arm == "a"


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match=r"gone\.yaml cannot be read: .*No such file"):
        read_experiment(tmp_path / "gone.yaml")
    with pytest.raises(UsageError, match="cannot be read"):
        read_experiment("a\0b")
    (tmp_path / "latin.yaml").write_bytes("name: x\n# é\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"latin\.yaml cannot be read: .*utf-8"):
        read_experiment(tmp_path / "latin.yaml")


def test_a_broken_setting_of_the_machine_is_said_to_be_one(write, tmp_path, monkeypatch):
    monkeypatch.setenv("GREENLOVE_PUE", "0.1")
    with pytest.raises(SettingError, match="GREENLOVE_PUE"):
        read_experiment(write(NEEDED))


def test_files_of_intensity_and_tariff_lie_beside_the_experiment(write, tmp_path):
    (tmp_path / "grid.csv").write_text("utc,gco2e_per_kwh\n2026-11-22T00:00Z,100\n")
    (tmp_path / "price.csv").write_text("utc,usd_per_kwh\n2026-11-22T00:00Z,0.1\n2026-11-22T01:00Z,0.2\n")
    text = f"{NEEDED}settings: {{intensity: grid.csv, electricity_tariff: price.csv}}\n"
    settings_of_runs = read_experiment(write(text)).runs[0].settings
    assert settings_of_runs["intensity"] == str(tmp_path / "grid.csv")


def test_what_a_variable_holds_is_in_nothing_that_reading_gives(write, refused, monkeypatch, capfd):
    monkeypatch.setenv("TOKEN", "hunter2hunter2")
    monkeypatch.setenv("HOST", "hunter2hunter2")
    experiment = read_experiment(write(WHOLE))
    said = refused(WHOLE.replace("epochs: 20", "epochs: x").replace("country: NO", "country: '${TOKEN}'"))
    assert "${TOKEN}" in repr(experiment)
    for output in (repr(experiment), said, *capfd.readouterr()):
        assert "hunter2" not in output


def test_reading_loads_no_torch(write):
    code = (
        "import sys; from greenlove_tracker.experiments.definition import read_experiment as r; "
        "print(len(r(sys.argv[1]).runs), {'torch', 'numpy', 'pandas'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code, str(write(WHOLE))], capture_output=True, text=True, check=True)
    assert done.stdout == "16 set()\n"


KEYS = sorted(
    {key for model in SECTIONS.values() for key in model.model_fields} | {"--lr", "-l", "<<", "early-stopping"}
)
SCALARS = (
    *(None, True, 0, -1, 3, 10**30, 0.5, 1e400, "", "a", "NO", "best", "08:00", "amp-bf16", "num-workers=4", "${A}"),
    *("$$", "tensorboard", "mock", "html", "digits_task.py:task", "../..", "\0", "x" * 300, "\u2028", "~root", "1,2"),
)
VALUES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=8,
)
FUZZ = settings(
    deadline=None,
    max_examples=100,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def read_or_refuse(path: Path) -> None:
    try:
        assert read_experiment(path).runs
    except UsageError as error:
        assert str(error).startswith(str(path))


@FUZZ
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4))
def test_of_any_values_only_usage_errors_come_out(write, values):
    read_or_refuse(write(json.dumps({"name": "digits", "task": "digits_task.py:task", **values})))


@FUZZ
@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE)), st.integers(0, 4), st.sampled_from([*"[]{}:,&*!|>'\"#%@`\t\n-"])))
)
def test_of_a_damaged_file_only_usage_errors_come_out(write, damages):
    text = WHOLE
    for at, length, put in damages[:5]:
        text = text[:at] + put + text[at + length :]
    read_or_refuse(write(text))
