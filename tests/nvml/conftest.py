"""The scripted NVIDIA driver, built once a session."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from nvml.driver import HERE, Driver


@pytest.fixture(scope="session")
def nvml_library_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc: the stand-in of NVIDIA's library cannot be built")
    directory = tmp_path_factory.mktemp("nvml")
    library = directory / "libnvidia-ml.so.1"
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, "-o", str(library), str(HERE / "nvml_stub.c"), "-lm"], check=True)
    return directory


@pytest.fixture
def driver(nvml_library_dir: Path, tmp_path: Path, no_settings) -> Driver:
    return Driver(nvml_library_dir, tmp_path)
