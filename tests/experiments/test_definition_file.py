from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenlove_tracker.config import setting_names
from greenlove_tracker.errors import SettingError, UsageError
from greenlove_tracker.experiments.definition import ExperimentBudget, StartPolicy, TechniqueChoice
from greenlove_tracker.experiments.definition_file import OWN_PLACES, read_experiment
from greenlove_tracker.experiments.file_sections import EXPORTERS, SECTIONS
from greenlove_tracker.integrations.exporters import exporter_from
from greenlove_tracker.report.build import checked_suffix

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
schedule: {start: best, deadline: tomorrow 08:00, max_wait: 6h}
carbon: {intensity: mock}
budget: {hours: 2, energy_kwh: 1, cost_usd: 5, kgco2e: 0.5}
country: NO
exporters: [tensorboard, prometheus=/a/file.prom]
settings: {price_usd_per_gpu_hour: 2.5, pue: 1.2}
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
    assert (experiment.name, experiment.path, experiment.text) == ("digits", path, WHOLE)
    assert experiment.sha256 == hashlib.sha256(WHOLE.encode()).hexdigest()
    assert experiment.baseline == "baseline, batch_size=32, --lr=1e-3" == experiment.runs[0].group
    assert experiment.start == StartPolicy("best", None, "tomorrow 08:00", "6h", "run")
    assert experiment.budget == ExperimentBudget(2.0, 1.0, 5.0, 0.5)
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
        "export": "tensorboard,prometheus=/a/file.prom",
        "intensity": "mock",
        "price_usd_per_gpu_hour": 2.5,
        "pue": 1.2,
    }


EXAMPLES = {"digits": (6, "baseline"), "carbon_sweep": (4, "baseline, batch_size=32")}


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parents[2].glob("examples/experiments/*.yaml")), ids=lambda path: path.stem
)
def test_the_examples(path):
    experiment = read_experiment(path)
    assert (len(experiment.runs), experiment.baseline) == EXAMPLES[path.stem]
    assert experiment.text == path.read_text(encoding="utf-8") and experiment.outputs.parent.parent == path.parent


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


@pytest.mark.parametrize("text", [f"\ufeff{NEEDED}", NEEDED.replace("\n", "\r\n"), f"{NEEDED}# é 😀"])
def test_the_text_is_as_the_file_has_it(write, text):
    experiment = read_experiment(write(text))
    assert experiment.text == text and experiment.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_what_is_rearranged_is_trained_no_second_time(write):
    before = read_experiment(write(WHOLE))
    lines = (
        WHOLE.replace("seeds: 2", "seeds: [4, 1, 0]").replace("[html, pdf]", "[md]").replace("best,", "monday 06:00,")
    )
    lines = lines.replace("  --lr: [1e-3, 3e-3]", "  --lr: [3e-3, 1e-3]").replace("hours: 2,", "hours: 9,")
    lines = lines.replace("min_delta: 0.001, ", "").replace(
        "patience: 5, min_delta: 0.001", "min_delta: 1e-3, patience: 5"
    )
    lines = (
        lines.replace("  baseline:\n", "")
        .replace("matrix:", "  plain: []\nmatrix:")
        .replace("[tensorboard,", "[wandb,")
    )
    after = read_experiment(write(lines))
    assert {run.key for run in before.runs} < {run.key for run in after.runs}
    assert after.baseline.startswith("optimised")


def test_code_that_changed_is_known_by_its_own_hash(write, tmp_path):
    (before,) = read_experiment(write(NEEDED)).runs
    (tmp_path / "digits_task.py").write_text(f"{TASK}# more\n")
    (after,) = read_experiment(write(NEEDED)).runs
    assert before.key == after.key and before.task_sha256 != after.task_sha256


@pytest.mark.parametrize(
    ("schedule", "start"),
    [
        ("{below_gco2e_per_kwh: 250}", StartPolicy("below", 250.0)),
        (
            "{start: below, below_gco2e_per_kwh: 250, max_wait: 1h30m, each: experiment}",
            StartPolicy("below", 250.0, max_wait="1h30m", each="experiment"),
        ),
        ("{start: 08:00}", StartPolicy("08:00", each="experiment")),
        ("{start: 2026-11-23T08:00, each: run}", StartPolicy("2026-11-23T08:00")),
        ("{deadline: +6h}", StartPolicy(deadline="+6h")),
        ("", StartPolicy()),
    ],
)
def test_when_it_begins(write, schedule, start):
    assert read_experiment(write(f"{NEEDED}schedule: {schedule}\n")).start == start


MISTAKES = [
    ("name: digits\n", ["line 1, column 1: task: is missing: write task: digits_task.py:task"]),
    ("- a\n", ["line 1, column 1: must be a mapping of names to values, not a list"]),
    (f"{NEEDED}epoch: 20\n", ["line 3, column 1: epoch: no such key: did you mean epochs?"]),
    (f"{NEEDED}hours: 20\n", ["hours: no such key here: it stands under budget:"]),
    (f"{NEEDED}budget: {{task: 20}}\n", ["budget.task: no such key here: it stands under no other"]),
    (NEEDED.replace("digits\n", "2026\n"), ["line 1, column 7: name: must be a text, not 2026: put it in quotes"]),
    (NEEDED.replace("digits\n", "../x\n"), ["name: becomes a directory"]),
    (f"{NEEDED}epochs: true\n", ["line 3, column 9: epochs: must be a whole number, not true"]),
    (f"{NEEDED}epochs: 2.0\n", ["epochs: must be a whole number, not 2.0"]),
    (f"{NEEDED}epochs: '2'\n", ["epochs: must be a whole number, not '2'"]),
    (f"{NEEDED}epochs: 0\n", ["epochs: must be at least 1, not 0"]),
    (f"{NEEDED}epochs: 3\nsteps: 3\n", ["line 4, column 1: steps: epochs and steps exclude each other"]),
    (f"{NEEDED}batch_size: 1_000\n", ["batch_size: must be a whole number, not 1_000"]),
    (f"{NEEDED}seeds: [0, -1]\n", ["seeds[1]: must be at least 0, not -1"]),
    (f"{NEEDED}seeds: [0, 4294967296]\n", ["seeds[1]: must be at most 4,294,967,295, not 4294967296"]),
    (f"{NEEDED}seeds: [1, 1]\n", ["seeds: a seed stands twice"]),
    (f"{NEEDED}seeds: []\n", ["seeds: is empty"]),
    (f"{NEEDED}seeds: 0\n", ["seeds: must be from 1 to 10,000 seeds, not 0"]),
    (f"{NEEDED}seeds: true\n", ["seeds: must be a list of seeds such as [0, 1, 2], or their number, not true"]),
    (f"{NEEDED}seeds: 5000\nmatrix: {{batch_size: [1, 2, 3]}}\n", ["these are 15,000 trainings"]),
    (f"{NEEDED}arguments: --width 3\n", ["arguments: must be a list, such as [a, b], not --width 3"]),
    (f"{NEEDED}arguments: [[1]]\n", ["arguments[0]: must be one word of a command line, not a list"]),
    (f"{NEEDED}arguments:\n- ~\n", ["line 4, column 3: arguments[0]: is empty"]),
    (f"{NEEDED}arms: {{}}\n", ["arms: is empty"]),
    (f"{NEEDED}arms: {{a: amp-bf16}}\n", ["arms.a: must be a list, such as [a, b], not amp-bf16"]),
    (f"{NEEDED}arms: {{a: [amp-bf17]}}\n", ["arms.a[0]: no technique is called 'amp-bf17': did you mean amp-bf16?"]),
    (f"{NEEDED}arms: {{a: [amp-bf16+compile]}}\n", ["write each technique as an item of its own"]),
    (f"{NEEDED}arms: {{a: [grad-accumulation=]}}\n", ["'grad-accumulation=': no value stands after the ="]),
    (f"{NEEDED}arms: {{a: [{{compile: [1]}}]}}\n", ["compile takes options as {name: value}, not a list"]),
    (f"{NEEDED}arms: {{a: [{{num-workers=2: 3}}]}}\n", ["num-workers takes options as {name: value}, not 3"]),
    (f"{NEEDED}arms: {{a: [compile, compile]}}\n", ["arms.a[1]: compile and compile exclude each other"]),
    (f"{NEEDED}arms: {{a: [compile], b: [compile]}}\n", ["line 3, column 22: arms.b: is the same training as arms.a"]),
    (f"{NEEDED}arms: {{'a, b': []}}\n", ["the name of an arm has 1 to 60 characters, and no comma"]),
    (f"{NEEDED}arms: {{plain: []}}\nbaseline: plane\n", ["baseline: no arm is called 'plane': did you mean plain?"]),
    (f"{NEEDED}matrix: {{lr: [1]}}\n", ["line 3, column 10: matrix.lr: no such key: there are epochs, steps"]),
    (f"{NEEDED}matrix: {{--: [1]}}\n", ["matrix.--: no argument has such a name"]),
    (f"{NEEDED}matrix: {{batch_size: 1}}\n", ["matrix.batch_size: must be a list, such as [a, b], not 1"]),
    (f"{NEEDED}matrix: {{batch_size: [1, 2, 1]}}\n", ["matrix.batch_size: a value stands twice"]),
    (f"{NEEDED}matrix: {{batch_size: [0]}}\n", ["matrix.batch_size[0]: must be at least 1, not 0"]),
    (f"{NEEDED}matrix: {{batch_size: }}\n", ["matrix.batch_size: is empty"]),
    (f"{NEEDED}matrix: {{--lr: [a, ~]}}\n", ["matrix.--lr[1]: is empty"]),
    (f"{NEEDED}matrix: {{--lr: []}}\n", ["matrix.--lr: is empty"]),
    (f'{NEEDED}matrix: {{--lr: ["a\\nb"]}}\n', ["matrix.--lr[0]: becomes part of a name"]),
    (f"{NEEDED}batch_size: 4\nmatrix: {{batch_size: [1]}}\n", ["matrix.batch_size: stands above the matrix too"]),
    (f"{NEEDED}arguments: [--lr=3]\nmatrix: {{--lr: [1]}}\n", ["matrix.--lr: stands in arguments too"]),
    (f"{NEEDED}epochs: 4\nmatrix: {{steps: [1]}}\n", ["matrix.steps: epochs and steps exclude each other"]),
    (f"{NEEDED}schedule: {{start: soon}}\n", ["schedule.start: must be now, best, below or a time: 'soon' is no time"]),
    (f"{NEEDED}schedule: {{start: best}}\n", ["schedule.start: best needs deadline: beside it"]),
    (f"{NEEDED}schedule: {{start: below}}\n", ["schedule.start: below needs below_gco2e_per_kwh: beside it"]),
    (f"{NEEDED}schedule: {{start: now, below_gco2e_per_kwh: 2}}\n", ["is of start: below, not of start: now"]),
    (f"{NEEDED}schedule: {{max_wait: 6h}}\n", ["schedule.max_wait: nothing is waited for"]),
    (f"{NEEDED}schedule: {{max_wait: 6}}\n", ["schedule.max_wait: must be a text, not 6: put it in quotes"]),
    (f"{NEEDED}schedule: {{deadline: 2026-11-22}}\n", ["'2026-11-22' names no hour"]),
    (f"{NEEDED}schedule: {{each: epoch}}\n", ["schedule.each: must be 'run' or 'experiment', not epoch"]),
    (f"{NEEDED}carbon: {{intensity: mokc}}\n", ["no such source of carbon intensity: did you mean mock?"]),
    (f"{NEEDED}carbon: {{intensity: a.csv}}\n", ["no such source of carbon intensity: there is no file "]),
    (f"{NEEDED}budget: {{hours: -1}}\n", ["budget.hours: must be more than 0, not -1"]),
    (f"{NEEDED}budget: {{hours: .inf}}\n", ["budget.hours: must be a finite number, not .inf"]),
    (f"{NEEDED}budget: {{hours: .nan}}\n", ["budget.hours: must be a finite number, not .nan"]),
    (f"{NEEDED}budget: {{hours: true}}\n", ["budget.hours: must be a number, not true"]),
    (f"{NEEDED}country: Norwai\n", ["country: 'Norwai' is not an ISO 3166 code", "did you mean Norway?"]),
    (f"{NEEDED}country: false\n", ["country: must be a text, not false: put it in quotes"]),
    (
        f"{NEEDED}exporters: [tensorbord]\n",
        ["exporters[0]: no exporter is called 'tensorbord': did you mean tensorboard?"],
    ),
    (f"{NEEDED}exporters: ['wandb,mlflow']\n", ["write each exporter as an item of its own"]),
    (f"{NEEDED}outputs: {{reports: [doc]}}\n", ["outputs.reports[0]: must be 'html', 'pdf' or 'md', not doc"]),
    (f"{NEEDED}settings: {{peu: 2}}\n", ["line 3, column 12: settings.peu: no such setting: did you mean pue?"]),
    (f"{NEEDED}settings: {{contry: NO}}\n", ["settings.contry: no such setting: did you mean country? write country:"]),
    (f"{NEEDED}settings: {{pue: 0.5}}\n", ["settings.pue: must be at least 1 (1.0: no overhead), not 0.5"]),
    (f"{NEEDED}settings: {{pue: }}\n", ["settings.pue: is empty"]),
    (f"{NEEDED}settings: {{verbose: true}}\n", ["settings.verbose: cannot be true"]),
    (f"{NEEDED}settings: {{is_rented: maybe}}\n", ["settings.is_rented: must be yes or no, not 'maybe'"]),
    (f"{NEEDED}settings: {{electricity_tariff: [base]}}\n", ["settings.electricity_tariff: "]),
    (
        f"{NEEDED}settings: {{monitor_epochs: 2, epochs_before_pred: 4}}\n",
        ["settings: settings.monitor_epochs (2) cannot be less than settings.epochs_before_pred (4)"],
    ),
    (
        f"{NEEDED}carbon: {{intensity: mock}}\nsettings: {{carbon_intensity_gco2e_per_kwh: 3}}\n",
        ["line 4, column 11: settings: give settings.carbon_intensity_gco2e_per_kwh or carbon.intensity, not both"],
    ),
    (NEEDED.replace(":task", ""), ["task: must name a file and a function in it, such as train.py:task"]),
    (NEEDED.replace("digits_task", "gone"), ["line 2, column 7: task: there is no file "]),
    (NEEDED.replace("digits_task", "x" * 5000), ["task: there is no file "]),
    (NEEDED.replace(":task", ":tusk"), ["task: digits_task.py has no function tusk: did you mean task?"]),
    (f"{NEEDED}country: ${{COUNTRY}}\n", ["country: ${NAME} is read in arguments alone"]),
    (f"{NEEDED}settings: {{tags: '${{USER}}'}}\n", ["settings.tags: ${NAME} is read in arguments alone"]),
    (f'{NEEDED}arguments: ["${{A:-b}}"]\n', ["arguments[0]: ${NAME} stands for an environment variable"]),
    (NEEDED.replace(".py", ".txt"), ["task: must name a file and a function in it"]),
    (f"{NEEDED}country: 1{'0' * 98}\n", ["country: must be a text, not 1000", "0…: put it in quotes"]),
    (f"{NEEDED}arms: {{a: [{{compile: true}}]}}\n", ["compile takes options as {name: value}, not true"]),
    (f"{NEEDED}name: x\n", ["line 3, column 1: name: stands twice, first in line 1"]),
    (f"{NEEDED}a: [\n", ["line 4, column 1: not YAML: ", "is not closed"]),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[said[0][:60] for _, said in MISTAKES])
def test_a_mistake_is_said_with_its_place_and_what_to_do(refused, text, said):
    message = refused(text)
    assert message.startswith("exp.yaml, line ") and "\n" not in message
    assert all(part in message for part in said), message


@pytest.mark.parametrize("name", OWN_PLACES)
def test_a_setting_with_a_place_of_its_own_names_it(refused, name):
    assert f"settings.{name}: is not set here: {OWN_PLACES[name]}" in refused(f"{NEEDED}settings: {{{name}: 1}}\n")


def test_several_mistakes_are_said_at_once_in_the_order_of_the_lines(refused):
    message = refused("name: 1\nepochs: x\ntask: digits_task.py:task\nseeds: y\n")
    assert message.splitlines() == [
        "exp.yaml has 3 mistakes:",
        "  line 1, column 7: name: must be a text, not 1: put it in quotes",
        "  line 2, column 9: epochs: must be a whole number, not x",
        "  line 4, column 8: seeds: must be a list of seeds such as [0, 1, 2], or their number, not 'y'",
    ]
    many = refused(NEEDED + "".join(f"key{n}: 1\n" for n in range(14))).splitlines()
    assert len(many) == 12 and many[-1] == "  and 4 more"


def test_options_of_techniques_are_checked_where_they_are_made(refused, write):
    text = f"{NEEDED}arms:\n  a:\n  - early-stopping: {{patiance: 3}}\n  b: [amp-bf16, amp-fp16]\n"
    assert len(read_experiment(write(text)).runs) == 2  # without torch only their names are known
    assert refused(text, makes_techniques=True).splitlines()[1:] == [
        "  line 5, column 22: arms.a[0].early-stopping.patiance: early-stopping has no option 'patiance': did you mean "
        "patience?",
        "  line 6, column 3: arms.b: amp-bf16 and amp-fp16 exclude each other",
    ]
    good = f"{NEEDED}arms: {{a: [grad-accumulation=4, {{early-stopping: {{metric: val_loss, patience: 3}}}}]}}\n"
    assert read_experiment(write(good), makes_techniques=True).runs[0].arm == "a"


def test_the_text_for_a_report_holds_no_secrets(write):
    text = f"{NEEDED}# as it is\narguments: [--api-key, hunter2, '--db_password=tr0ub4dor', --width, 32]\n"
    experiment = read_experiment(write(f"{text}matrix: {{--hf_token: [s3cret, s4cret]}}\n"))
    assert experiment.runs[0].arguments[:2] == ("--api-key", "hunter2")
    assert not any(secret in experiment.text for secret in ("hunter2", "tr0ub4dor", "s3cret", "s4cret"))
    assert "# as it is\narguments: [--api-key, MASKED, '--db_password=MASKED', --width, 32]\n" in experiment.text


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match=r"gone\.yaml cannot be read: No such file"):
        read_experiment(tmp_path / "gone.yaml")
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path, tmp_path / "pipe.yaml"):
        with pytest.raises(UsageError, match="is not a file: name the YAML file"):
            read_experiment(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_experiment("a\0b")
    (tmp_path / "latin.yaml").write_bytes("name: x\n# é\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"latin\.yaml, line 2: not UTF-8"):
        read_experiment(tmp_path / "latin.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (256 * 1024 + 1))
    with pytest.raises(UsageError, match="larger than 256 KiB"):
        read_experiment(tmp_path / "large.yaml")


def test_a_broken_setting_of_the_machine_is_said_to_be_one(write, tmp_path, monkeypatch):
    monkeypatch.setenv("GREENLOVE_PUE", "0.1")
    with pytest.raises(SettingError, match="GREENLOVE_PUE"):
        read_experiment(write(NEEDED))


@pytest.mark.parametrize("source", ["def task(:\n", "\0"])
def test_a_task_that_is_no_python(write, tmp_path, source):
    path = write(NEEDED)
    (tmp_path / "digits_task.py").write_text(source)
    with pytest.raises(UsageError, match=r"task: digits_task\.py is no Python"):
        read_experiment(path)


@pytest.mark.parametrize(
    "source",
    ["from x import task\n", "from x import *\n", "import y as task\n", "if 1:\n    task = 3\n", "class task: pass\n"],
)
def test_a_function_may_come_from_anywhere(write, tmp_path, source):
    path = write(NEEDED)
    (tmp_path / "digits_task.py").write_text(source)
    assert read_experiment(path).runs


def test_files_of_intensity_and_tariff_lie_beside_the_experiment(write, tmp_path):
    (tmp_path / "grid.csv").write_text("utc,gco2e_per_kwh\n2026-11-22T00:00Z,100\n")
    (tmp_path / "price.csv").write_text("utc,usd_per_kwh\n2026-11-22T00:00Z,0.1\n2026-11-22T01:00Z,0.2\n")
    text = f"{NEEDED}carbon: {{intensity: grid.csv}}\nsettings: {{electricity_tariff: price.csv}}\n"
    settings_of_runs = read_experiment(write(text)).runs[0].settings
    assert settings_of_runs["intensity"] == str(tmp_path / "grid.csv")


def test_what_a_variable_holds_is_in_nothing_that_reading_gives(write, refused, monkeypatch, capfd):
    monkeypatch.setenv("TOKEN", "hunter2hunter2")
    monkeypatch.setenv("HOST", "hunter2hunter2")
    experiment = read_experiment(write(WHOLE))
    said = refused(WHOLE.replace("epochs: 20", "epochs: x").replace("country: NO", "country: '${TOKEN}'"))
    assert "${TOKEN}" in repr(experiment) and "TOKEN" not in said
    for output in (repr(experiment), said, *capfd.readouterr()):
        assert "hunter2" not in output


def test_reading_loads_no_torch(write):
    code = (
        "import sys; from greenlove_tracker.experiments.definition_file import read_experiment as r; "
        "print(len(r(sys.argv[1]).runs), {'torch', 'numpy', 'pandas'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code, str(write(WHOLE))], capture_output=True, text=True, check=True)
    assert done.stdout == "16 set()\n"


def test_every_format_of_a_report_can_be_written(write):
    experiment = read_experiment(write(f"{NEEDED}outputs: {{reports: [html, pdf, md, md]}}\n"))
    assert [checked_suffix(f"a.{name}") for name in experiment.reports] == [".html", ".pdf", ".md"]


def test_every_exporter_of_a_file_is_one():
    with pytest.raises(UsageError, match=f"there are {', '.join(EXPORTERS)}"):
        exporter_from("?")


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
@given(st.data())
def test_of_any_setting_only_usage_errors_come_out(write, data):
    values = data.draw(st.dictionaries(st.sampled_from(setting_names()), VALUES, max_size=3))
    read_or_refuse(write(f"{NEEDED}settings: {json.dumps(values)}\n"))


@FUZZ
@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE)), st.integers(0, 4), st.sampled_from([*"[]{}:,&*!|>'\"#%@`\t\n-"])))
)
def test_of_a_damaged_file_only_usage_errors_come_out(write, damages):
    text = WHOLE
    for at, length, put in damages[:5]:
        text = text[:at] + put + text[at + length :]
    read_or_refuse(write(text))


@pytest.mark.parametrize("length", range(0, len(WHOLE), 37))
def test_of_a_file_that_was_cut_off_only_usage_errors_come_out(write, length):
    read_or_refuse(write(WHOLE[:length]))
