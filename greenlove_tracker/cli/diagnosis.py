"""``greenlove doctor``: how each component will be measured here, what is missing, and the exact fix."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import greenlove_tracker
from greenlove_tracker.logs.run import Run
from greenlove_tracker.machine.devices import RAPL_DIR, CounterState, cpu_counter_state, nvml_gpus, select_gpus
from greenlove_tracker.machine.job import Ranks
from greenlove_tracker.meter import GpuEnergy
from greenlove_tracker.rendering import html, terminal
from greenlove_tracker.report.wording import beyond_gpus
from greenlove_tracker.settings.config import Settings
from greenlove_tracker.text import format as fmt
from greenlove_tracker.tracker.meter_starter import MeterStarter
from greenlove_tracker.tracker.session import Session
from greenlove_tracker.vocabulary.phases import Plan
from greenlove_tracker.vocabulary.records import COMPONENTS, MEASURED_METHODS, Factor, RunStatus

UDEV_RULE = 'SUBSYSTEM=="powercap", ACTION=="add", RUN+="/bin/chmod a+r /sys%p/energy_uj"'
_METER_TIMEOUT_S = 60.0
_LOOK_S = 0.3  # NVML's counters move each 0.1 s at the latest
_LEAST_FREE_GB = 1e-3  # a run needs some kB, a long one some MB

GOOD = "✓"
NEUTRAL = "–"
BAD = "✗"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's: a subject, what it is, how it is measured, and what would mend it."""

    subject: str
    value: str
    method: str
    mark: str
    note: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings on this machine."""

    findings: Sequence[Finding]
    can_measure: bool
    measured_w: float | None
    full_load_w: float | None
    beyond_gpus: str = ""  # what their counters leave out; empty without GPUs

    def as_dict(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return {"version": greenlove_tracker.__version__, **asdict(self)}

    def as_text(self) -> str:
        """Return the screen of ``greenlove doctor``."""
        return html.fill(
            "doctor.txt",
            found=self,
            version=greenlove_tracker.__version__,
            python=platform.python_version(),
            system=f"{platform.system()} {platform.release().split('-')[0]}",
            fixes=list(dict.fromkeys(finding.fix for finding in self.findings if finding.fix)),
            beyond_gpus=terminal.wrap(self.beyond_gpus, "  ", "  "),
        )


def examine(settings: Settings) -> Diagnosis:
    """Begin a real run in a directory that is thrown away, and look at what its log says.

    No network is asked, and nothing is left behind.

    Raises:
        UsageError: for an unknown place.
    """
    with tempfile.TemporaryDirectory() as directory:
        # no intensity and no tariff by the hour: the trial asks nobody
        trial = replace(settings, log_dir=directory, verbose=0, continues="", intensity="", electricity_tariff="")
        session = Session(trial, Plan(), Ranks())
        if session.wait_ready(_METER_TIMEOUT_S):
            time.sleep(_LOOK_S)  # so that each GPU is read
        session.finish(RunStatus.FINISHED)
        gpus = session.run_parts.get(MeterStarter).gpus()
        run = Run(session.run_dir)
        found = {name: text for name, (text, _) in run.lines.items()}
    findings = [
        *_gpu_findings(found, gpus),
        _cpu_finding(found),
        _ram_finding(found),
        _country_finding(settings, run.carbon_intensity),
        _share_finding(found),
        _log_finding(Path(settings.log_dir)),
    ]
    can_measure = any(found.get(f"{c}_method") for c in COMPONENTS) or settings.is_simulated
    beyond = ""
    if found.get("gpu_models"):
        beyond = beyond_gpus(settings.node_overhead, counts_host=bool(found.get("cpu_method")))
    return Diagnosis(findings, can_measure, *_full_load(found), beyond)


def _full_load(found: Mapping[str, str]) -> tuple[float | None, float | None]:
    """Return the power at full load that will be measured, and all of it, as far as rated powers are known."""
    rated = {"gpu": "gpu_power_limit_w", "cpu": "cpu_tdp_w", "ram": "ram_w"}
    powers_w = {c: float(found[field]) for c, field in rated.items() if found.get(field)}
    if not powers_w:
        return None, None
    measured_w = sum(w for c, w in powers_w.items() if found.get(f"{c}_method") in MEASURED_METHODS)
    return measured_w, sum(powers_w.values())


def _method(found: Mapping[str, str], component: str) -> str:
    return found.get(f"{component}_method", "unmeasured").replace("_", " ").replace("tdp model", "modelled")


def _gpu_findings(found: Mapping[str, str], read: Sequence[GpuEnergy]) -> Iterator[Finding]:
    """Yield a line for each GPU: how it was read in the trial, or why it was not."""
    present = nvml_gpus()
    if present.problem:
        yield Finding("gpu", "unknown", "unmeasured", BAD, present.problem, _DRIVER_FIX)
        return
    if not present and not read:
        if "gpu_models" in found:
            yield Finding("gpu", found["gpu_models"], _method(found, "gpu"), GOOD, "")
        else:
            yield Finding("gpu", "none found", "", NEUTRAL, "no NVIDIA driver answered")
    yield from (_finding_of_ours(one, found.get("gpu_doubt", "")) for one in read)
    ours = {one.gpu.index for one in read}
    chosen = select_gpus(present, os.environ).gpus
    for gpu in present:
        why = found.get("meter_note", "the meter did not start") if gpu in chosen else "CUDA_VISIBLE_DEVICES hides it"
        if gpu.index not in ours:
            yield Finding(f"gpu {gpu.index}", gpu.name, "left out", NEUTRAL, f"{why} {gpu.problem}".rstrip())


def _finding_of_ours(one: GpuEnergy, doubt: str) -> Finding:
    gpu = one.gpu
    method = one.method.replace("_", " ")
    mark = GOOD
    fix = ""
    if one.kwh is None or one.problem:
        method = "unmeasured"
        mark = BAD
        fix = next((fix for word, fix in _GPU_FIXES.items() if word in one.problem), _DRIVER_FIX)
    note = "; ".join(filter(None, (one.problem, f"limit {fmt.power(gpu.power_limit_w)}", doubt)))
    return Finding(f"gpu {gpu.index}", gpu.name or "unknown", method, mark, note, fix)


_DRIVER_FIX = "see what nvidia-smi says; after an update of the driver, reboot"
# By what the driver says of a GPU (nvmlErrorString).
_GPU_FIXES = {
    "lost": "reset the GPU (sudo nvidia-smi --gpu-reset -i N) or reboot; dmesg | grep Xid tells why",
    "Not Supported": "its driver gives neither energy nor power: greenlove calibrate takes a wall meter's",
    "Permissions": "ask your container or cluster for this GPU, or leave it out by CUDA_VISIBLE_DEVICES",
}


_COUNTER_FIX = (
    f"sudo chmod a+r {RAPL_DIR}/intel-rapl:*/energy_uj     (until the next boot; for good:\n"
    "         greenlove doctor --print-udev | sudo tee /etc/udev/rules.d/60-rapl.rules)"
)


def _cpu_finding(found: Mapping[str, str]) -> Finding:
    method = found.get("cpu_method", "")
    name = found.get("cpu_model", "unknown")
    if method == "counter":
        return Finding("cpu", name, "counter", GOOD, found.get("cpu_scope", "") or "RAPL energy counter")
    tdp = f"TDP of {found['cpu_tdp_w']} W" if "cpu_tdp_w" in found else "rated power unknown"
    note = found.get("meter_note", "no counter was read")
    fix = _COUNTER_FIX if cpu_counter_state() is CounterState.LOCKED else ""
    return Finding("cpu", name, _method(found, "cpu"), BAD if fix or not method else NEUTRAL, f"{tdp}; {note}", fix)


def _ram_finding(found: Mapping[str, str]) -> Finding:
    size = f"{found['ram_gb']} GiB" if "ram_gb" in found else "unknown"
    by_size = f"{found['ram_w']} W by size; no counter exists" if "ram_w" in found else ""
    note = by_size or found.get("meter_note", "")
    return Finding("ram", size, _method(found, "ram"), NEUTRAL if "ram_method" in found else BAD, note)


def _country_finding(settings: Settings, intensity: Factor) -> Finding:
    grams = f"{fmt.significant(intensity.value)} g/kWh"
    if settings.carbon_intensity_gco2e_per_kwh is not None:
        return Finding("country", settings.country or "not set", "as given", GOOD, grams)
    if settings.country:
        return Finding("country", settings.country, "table", GOOD, f"{grams}, {intensity.year}, {intensity.basis}")
    fix = "greenlove run --country DE …      or   export GREENLOVE_COUNTRY=DE"
    return Finding("country", "not set", "world mean", BAD, f"{grams} instead of yours", fix)


def _share_finding(found: Mapping[str, str]) -> Finding:
    cpu = float(found.get("cpu_share", 1.0))
    ram = float(found.get("ram_share", 1.0))
    if cpu == ram == 1.0:
        return Finding("share", "whole machine", "", GOOD, "no limit by cgroup, affinity or Slurm")
    value = f"CPU {fmt.percent(cpu)}, RAM {fmt.percent(ram)}"
    return Finding("share", value, "charged by it", GOOD, f"limited by {found.get('share_source', '')}")


def _log_finding(path: Path) -> Finding:
    whole = path.absolute()
    parent = next((one for one in (whole, *whole.parents) if os.path.lexists(one)), whole)
    is_writable = parent.is_dir() and os.access(parent, os.W_OK)
    free_gb = shutil.disk_usage(parent).free / 1e9 if is_writable else 0.0
    if free_gb < _LEAST_FREE_GB:
        problem = "the disk is full" if is_writable else "not writable"
        return Finding("logs", str(path), "", BAD, problem, "choose another: export GREENLOVE_LOG_DIR=…")
    return Finding("logs", str(path), "", GOOD, f"writable, {free_gb:,.0f} GB free")
