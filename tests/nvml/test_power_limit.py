"""A lowered power limit outlives the process that has set it, unless that process puts it back."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from nvml.driver import NOT_SUPPORTED, Driver, Gpu, Line, fails, uuid_of

# There is no CUDA here: that the model is on the GPUs is the one thing that is not as with an NVIDIA GPU.
SCRIPT = """
import signal, sys, time
from greenlove_tracker.techniques import power_limit
{before}
power_limit._gpus_of = lambda parts: sys.argv[2:]
technique = power_limit.technique("power-limit", sys.argv[1])
technique.apply({{}})
with technique.active():
    print("lowered", flush=True)
    time.sleep(60)
"""


def start(driver: Driver, limit: str, *lines: Line, before: str = "", n_gpus: int = 1) -> subprocess.Popen[str]:
    script = driver.work_dir / "script.py"
    script.write_text(SCRIPT.format(before=before))
    env = driver.environment([Gpu()] * n_gpus, *lines)
    arguments = [limit, *(uuid_of(number) for number in range(n_gpus))]
    return subprocess.Popen(
        [sys.executable, str(script), *arguments], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def check_lowered(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "lowered\n", process.stderr.read()


@pytest.mark.parametrize(
    ("before", "exit_code"),
    [
        pytest.param("", -signal.SIGTERM, id="no-handler-of-its-own"),
        pytest.param("signal.signal(signal.SIGTERM, lambda *a: sys.exit(7))", 7, id="one-that-exits"),
    ],
)
def test_sigterm_puts_the_limits_back(driver: Driver, before: str, exit_code: int):
    process = start(driver, "250", Line("limit", 600, gpu=0), Line("limit", 500, gpu=1), before=before, n_gpus=2)
    check_lowered(process)
    assert driver.limits_w == [600, 500, 250, 250]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == exit_code
    assert sorted(driver.limits_w[4:]) == [500, 600]


@pytest.mark.parametrize(
    ("limit", "line", "says"),
    [
        pytest.param("150", Line("least", 200), "150 W cannot be: this GPU takes 200 to 700 W", id="range"),
        pytest.param(
            "50", fails("nvmlDeviceGetPowerManagementLimitC", NOT_SUPPORTED), "Invalid Argument", id="no-range"
        ),
    ],
)
def test_a_limit_that_the_gpu_cannot_have_names_the_range(driver: Driver, limit: str, line: Line, says: str):
    _, said = start(driver, limit, line).communicate(timeout=60)
    assert says in said and "UsageError" in said
    assert driver.limits_w == []
