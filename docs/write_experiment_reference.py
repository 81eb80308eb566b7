"""Write ``docs/reference/experiment.md``: what may stand in an experiment's file.

python docs/write_experiment_reference.py
"""

from __future__ import annotations

import inspect
from pathlib import Path

from greenlove_tracker.experiments.definition import SECTIONS, MatrixSection

EXAMPLE = """\
name: digits
task: digits_task.py:task
arguments: [--width, 32]
epochs: 20
seeds: [0, 1, 2]
arms:                       # the first is the baseline, unless baseline: names another
  baseline: []
  optimised:
    - amp-bf16
    - grad-accumulation=4
    - lr-schedule: {shape: cosine, warmup: 0.1}
    - early-stopping: {metric: val_loss, patience: 5, min_delta: 0.001}
matrix:                     # every combination, with every arm and seed
  batch_size: [32, 64]
  --lr: [1e-3, 3e-3]        # an argument of the task's file
schedule: {below_gco2e_per_kwh: 250, max_wait: 6h}
budget: {hours: 2, energy_kwh: 1}
country: NO
settings: {price_usd_per_gpu_hour: 2.5, export: tensorboard}
outputs: {directory: results/digits, reports: [html, pdf]}
"""

PAGE = Path(__file__).parent / "reference" / "experiment.md"

_RULES = """\
Only `name` and `task` are needed. An error names each mistake with its line and what to write instead.

**YAML.** Each value is a text, as it is written: `NO`, `10:30`, `2026-11-22` and `1e-3` stay what they are. A key that
takes a number reads the text as one. In the options of a technique, numbers, `true` and `false` are what they look
like. A key stands once. One document, UTF-8.

**Paths** start at the file's own directory. So the same command finds what lies there, and goes on with it, wherever it
is called from.

**Environment variables.** `${NAME}` in `arguments` and in a named argument of `matrix` is put in by the process
that trains, at the last moment, as Python's `os.path.expandvars` does. Neither the log nor a report ever holds the
value. Within `[ ]` it needs quotes: `"${TOKEN}"`.

**Arms.** A technique is `amp-bf16`, `grad-accumulation=4`, or a name with its options:
`early-stopping: {patience: 5}`. `greenlove compare --list` names them all. An arm that waits for a clean grid while
the others begin at once has a `schedule` beside its `techniques`.

**Matrix.** A named argument is handed on as `--lr=1e-3`, one with a single dash as `-l 1e-3`, after those of
`arguments`. What stands in the matrix counts before what stands above it.

**Order.** Seed by seed, and in each combination by combination, all arms follow one another; who is first takes turns,
so that what drifts, such as the temperature of a GPU, favours none. Where one arm waits for a clean grid and another
does not, all that wait for nothing come first.

**What has been trained** is known again by a hash of what defines a training: file name and function of the task,
arguments as they are written, techniques with their options and their order, an arm's own schedule, epochs, steps,
batch size and seed. To add a seed or an arm, to rename an arm, to reorder keys, or to change the schedule of all,
budget, settings or outputs trains nothing anew. The hash does not see the code of the task: after a change, name
another `outputs: {directory: …}`.

**The savings as data.** `report.json` (its list `savings`) and `report.csv` have a row for each quantity of each arm:
`combination` of the matrix, empty where there is one, `arm`, `quantity`, `baseline` and `value` (means in the unit of the name,
USD, GiB or the metric's own), `change`, `change_lower` and `change_upper`. The change of an amount is the ratio to the
baseline, below 1 saves; that of a metric is the difference. Where both ends are the change, its range is not known.
"""


def experiment_reference() -> str:
    """Return the page ``docs/reference/experiment.md``."""
    parts = [
        "# An experiment's file",
        "",
        "<!-- made by: python docs/write_experiment_reference.py -->",
        "",
        "```yaml",
        EXAMPLE.rstrip(),
        "```",
        "",
        _RULES.rstrip(),
    ]
    for name, model in SECTIONS.items():
        about = inspect.getdoc(model) or ""
        parts += ["", f"## {name or 'The file'}", *(["", about] if name else []), ""]
        parts += ["| key | such as | meaning |", "|---|---|---|"]
        for key, field in model.model_fields.items():
            parts.append(f"| `{key}` | `{(field.examples or [''])[0]}` | {field.description} |")
        if model is MatrixSection:
            parts.append("| `--NAME` | `[1e-3, 3e-3]` | an argument of the task's file, each value as it is written |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(experiment_reference(), encoding="utf-8")
