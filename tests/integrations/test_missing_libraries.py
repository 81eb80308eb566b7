"""A framework that is not installed: its callback says which line installs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

MISSING = """
import sys
class Missing:
    def find_spec(self, name, *arguments):
        if name in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import greenlove_tracker.integrations.{module}
"""


@pytest.mark.parametrize(
    ("module", "names", "said"),
    [
        ("keras", ("keras",), "the Keras callback needs keras"),
        ("lightgbm", ("lightgbm",), "the LightGBM callback needs lightgbm"),
        ("xgboost", ("xgboost",), "the XGBoost callback needs xgboost"),
        ("lightning", ("lightning", "pytorch_lightning"), "the Lightning callback needs lightning"),
        ("huggingface", ("transformers",), "the Hugging Face callback needs transformers"),
    ],
)
def test_the_line_that_installs_it_is_said(module, names, said):
    code = MISSING.format(names=names, module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f'MissingExtraError: {said}: pip install "greenlove-tracker[' in done.stderr
