"""What a cell shows: in a real kernel, cell by cell, as Jupyter would."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import pytest

from greenlove_tracker import read_logs

ROOT = Path(__file__).parents[1]
REASON = "notebooks are NOT tested: pip install ipykernel nbclient nbconvert"


def jupyter(name: str) -> Any:
    """Return a module of Jupyter's; where it is missing, CI fails."""
    if os.environ.get("CI"):
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=REASON)


@pytest.fixture
def run_cells(no_settings, tmp_path, monkeypatch):
    """Run the cells of a notebook in a kernel; return what it sent while they ran, as (cell, kind, content)."""
    client_type = jupyter("nbclient").NotebookClient
    jupyter("ipykernel")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'tests'}")
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    sent = []

    class Client(client_type):
        def process_message(self, message, cell, index):
            sent.append((index, message["msg_type"], message["content"]))
            return super().process_message(message, cell, index)

    def run(notebook):
        Client(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
        assert not [content for _, kind, content in sent if kind == "stream" and content["name"] == "stderr"]
        return sent

    return run


def text_of(content) -> str:
    return content["data"]["text/plain"]


@pytest.mark.slow
def test_the_example_shows_one_line_that_is_replaced_and_cards(run_cells, tmp_path):
    notebook = jupyter("nbformat").read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    sent = run_cells(notebook)
    (run,) = read_logs(tmp_path / "greenlove_logs").runs
    _, training, summary, forecast, printed = (cell for cell in notebook.cells if cell.cell_type == "code")

    shown = [content for _, kind, content in sent if kind in ("display_data", "update_display_data")]
    assert len({content["transient"]["display_id"] for content in shown}) == 1 and len(shown) >= 3
    assert all(text_of(content).startswith("greenlove  epoch ") for content in shown[1:-1])
    screen, *others = training.outputs
    assert {output.output_type for output in others} == {"stream"}  # what the loop printed
    assert f"{run.path.name} · finished · 24 of 24 epochs" in text_of(screen)

    for cell, says in (summary, f"{run.path.name} (finished) took "), (forecast, "Forecast of this training: "):
        (card,) = cell.outputs
        assert says.rstrip() in card["data"]["text/html"] and ">~" in card["data"]["text/html"]
        assert text_of(card).startswith(says) and text_of(card) in printed.outputs[0]["text"]

    page, _ = jupyter("nbconvert").HTMLExporter().from_notebook_node(notebook)
    assert summary.outputs[0]["data"]["text/html"] in page


@pytest.mark.slow
def test_nothing_of_a_run_lands_in_a_later_cell(run_cells):
    cells = [
        """
from threading import Thread
from fakes import FakeClock, make_tracker, train
clock = FakeClock()
tracker = make_tracker(clock, "logs", verbose=1, country="DE")
train(tracker, clock, 2)
""",
        """
background = Thread(target=train, args=(tracker, clock, 18))
background.start()
background.join()
""",
        "tracker.stop()",
    ]
    formats = jupyter("nbformat").v4
    notebook = formats.new_notebook(cells=[formats.new_code_cell(cell) for cell in cells])
    sent = run_cells(notebook)
    updates = [(index, text_of(content)) for index, kind, content in sent if kind == "update_display_data"]
    assert [index for index, _ in updates] == [0] * 2 + [1] * 18 + [2]
    assert "epoch 2/20" in updates[1][1] and "epoch 20/20" in updates[-2][1]
    (screen,) = notebook.cells[0].outputs
    assert text_of(screen) == updates[-1][1] and "finished · 20 of 20 epochs" in text_of(screen)
    assert [cell.outputs for cell in notebook.cells[1:]] == [[], []]
