from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _one_thread(bare_environment: None) -> Iterator[None]:
    """Run so small a model, which would only wait for a second one; each test in a directory of its own."""
    torch = sys.modules.get("torch")
    n_threads = torch.get_num_threads() if torch else 1
    if torch:
        torch.set_num_threads(1)
    yield
    if torch:
        torch.set_num_threads(n_threads)
