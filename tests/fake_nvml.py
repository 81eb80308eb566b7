"""NVML with one GPU whose power limit lies in a file: processes see what another one has set, and what is refused.

``at(directory)`` writes a module ``pynvml`` there; a process that finds it first on its path uses it.
"""

from __future__ import annotations

from pathlib import Path

UUID = "GPU-1a2b"
_MODULE = """
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent
NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION = 3, 4

class NVMLError(Exception):
    def __init__(self, value, text):
        super().__init__(text)
        self.value = value

def refuse(name):
    if (HERE / name).exists():
        text = (HERE / name).read_text()
        value = {"permission": 4, "support": 3}.get(text, 999)
        raise NVMLError(value, text)

def nvmlInit(): refuse("no_driver")
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetHandleByUUID(uuid):
    if uuid != "GPU-1a2b":
        raise NVMLError(6, "Not Found")
    return 0
def nvmlDeviceGetUUID(handle): return "GPU-1a2b"
def nvmlDeviceGetName(handle): return "NVIDIA H100"
def nvmlDeviceGetMemoryInfo(handle): return SimpleNamespace(total=80 * 1024**3)
def nvmlDeviceGetComputeRunningProcesses(handle): return []
def nvmlDeviceGetTotalEnergyConsumption(handle): return 1
def nvmlDeviceGetPowerManagementLimit(handle): return int((HERE / "limit_mw").read_text())
nvmlDeviceGetEnforcedPowerLimit = nvmlDeviceGetPowerManagementLimit
def nvmlDeviceGetPowerManagementDefaultLimit(handle): return 700_000
def nvmlDeviceGetPowerManagementLimitConstraints(handle): return [200_000, 700_000]
def nvmlDeviceSetPowerManagementLimit(handle, limit_mw):
    refuse("no_set")
    with (HERE / "sets").open("a") as file:
        file.write(f"{limit_mw}\\n")
    if not (HERE / "deaf").exists():
        (HERE / "draft").write_text(str(limit_mw))
        (HERE / "draft").replace(HERE / "limit_mw")  # whoever reads sees one or the other
"""


class FakeNvml:
    """The GPU of a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        (directory / "pynvml.py").write_text(_MODULE)
        self.limit_w = 600.0

    @property
    def limit_w(self) -> float:
        return int((self.directory / "limit_mw").read_text()) / 1000

    @limit_w.setter
    def limit_w(self, limit_w: float) -> None:
        (self.directory / "limit_mw").write_text(str(round(limit_w * 1000)))

    def refuse(self, what: str, reason: str) -> None:
        (self.directory / what).write_text(reason)

    def allow(self, what: str) -> None:
        (self.directory / what).unlink()
