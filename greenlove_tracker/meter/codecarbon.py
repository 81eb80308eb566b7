"""CodeCarbon as a meter: one offline tracker a run, read by flush deltas, with no network and no files of its own.

Names with a leading underscore are CodeCarbon's private parts; each use is guarded, and the version is pinned.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

from greenlove_tracker.devices import (
    Gpu,
    GpuSelection,
    Share,
    ShareLoad,
    cpu_counter_state,
    machine_share,
    nvml_gpus,
    select_gpus,
)
from greenlove_tracker.errors import MeterError, UsageError
from greenlove_tracker.forks import forks_wait
from greenlove_tracker.logs.schema import CODECARBON_PREFIX
from greenlove_tracker.meter.base import MeterInfo
from greenlove_tracker.records import MEASURED_METHODS, Energy, Field, Method

# Only our reads may measure: CodeCarbon takes deltas without a lock against its own periodic thread.
_MEASURE_BY_ITSELF_S = 86400.0
# A GPU never draws nothing; NVML's counter moves every 0.1 s. Zeros for longer mean that it is not read any more.
_MAX_GPU_ZERO_S = 1.0
# Each of these in CodeCarbon's hands would break a sum of ours: PUE twice, foreign GPUs, readings that overlap.
_OURS = {
    "pue",
    "gpu_ids",
    "measure_power_secs",
    "tracking_mode",
    "force_cpu_power",
    "force_ram_power",
    "api_call_interval",
}
_CPU_METHODS = {
    "intel_rapl": Method.COUNTER,
    "windows_emi": Method.COUNTER,
    "intel_power_gadget": Method.SAMPLED_POWER,
    "cpu_load": Method.TDP_MODEL,
    "constant": Method.CONSTANT,
}


_log = logging.getLogger("greenlove_tracker")
_codecarbon_log = logging.getLogger("codecarbon")


class _SilentLog:
    """Keeps CodeCarbon's log silent while any meter of this process lives."""

    def __init__(self) -> None:
        self._lock, self._n_meters, self._level_before = threading.Lock(), 0, logging.NOTSET

    def begin(self) -> None:
        """Silence it for one more meter."""
        with self._lock:
            if not self._n_meters or _codecarbon_log.level != logging.CRITICAL:  # else it is by us
                self._level_before = _codecarbon_log.level
            self._n_meters += 1
            _codecarbon_log.setLevel(logging.CRITICAL)

    def end(self) -> None:
        """Give its level back, where this was the last meter and the program has not set its own."""
        with self._lock:
            self._n_meters -= 1
            if not self._n_meters and _codecarbon_log.level == logging.CRITICAL:
                _codecarbon_log.setLevel(self._level_before)


_silent_log = _SilentLog()


class CodeCarbonMeter:
    """Measures this node with CodeCarbon.

    Args:
        env: the environment; which GPUs and which share of the machine are ours.
        local_world_size: processes of the training on this node.
        carbon_intensity_gco2e_per_kwh: passed on, so that CodeCarbon's own outputs agree with ours.
        cpu_tdp_w: rated power of the CPU, fed to CodeCarbon's load model; disables RAPL.
        ram_w: power of the memory of the whole machine.
        country_iso3: of the run, for CodeCarbon's own outputs; empty where none is set.
        options: further arguments of ``OfflineEmissionsTracker``: its CSV, API, Prometheus and other outputs.

    Raises:
        UsageError: where an option is one that the tracker sets itself.
    """

    starts_at_once = False
    resolution_s = 0.1

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        local_world_size: int = 1,
        carbon_intensity_gco2e_per_kwh: float,
        cpu_tdp_w: float | None = None,
        ram_w: float | None = None,
        country_iso3: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._env = env
        self._local_world_size = local_world_size
        self._intensity = carbon_intensity_gco2e_per_kwh
        self._cpu_tdp_w = cpu_tdp_w
        self._ram_w = ram_w
        self._country_iso3 = country_iso3
        self._options = dict(options or {})
        if taken := sorted(_OURS & set(self._options)):
            raise UsageError(f"codecarbon_options: {', '.join(taken)} is set by the tracker; use its own settings")
        self._tracker: Any = None
        self._version = ""
        self._silences_log = False
        self._deltas: list[Any] = []
        self._share = Share(1.0, 1.0, "whole machine")
        self._cpu_factor = 1.0  # what a modelled energy of the whole machine is multiplied with
        self._gpu_zero_since_s: float | None = None
        self._power_read_s: list[float] = []  # when CodeCarbon's own thread did so since the last read
        self._read_s: float | None = None
        self.longest_hole_s = 0.0  # without a reading of power behind the last read, where power is integrated
        self._present: tuple[Gpu, ...] = ()
        self._named = self._gpus = GpuSelection(())  # by the environment; of those, what is measured
        self._leaves_gpus_out = False
        self._info = MeterInfo(())

    def start(self) -> MeterInfo:
        """Import CodeCarbon, let it find the hardware, and begin; takes one to several seconds.

        Raises:
            MeterError: where CodeCarbon is missing, fails or finds no hardware.
        """
        with forks_wait:
            return self._start()

    def _start(self) -> MeterInfo:
        self._share = machine_share(self._env, self._local_world_size)
        self._present = nvml_gpus()
        self._named = select_gpus(self._present, self._env, self._local_world_size)
        self._measure_gpus(self._named)
        self._version = _import_quietly()
        _silent_log.begin()
        self._silences_log = True
        with _quick_detection():
            self._tracker = self._construct(self._named)
            self._tracker.start()
            hardware = list(getattr(self._tracker, "_hardware", []))
            if getattr(self._tracker, "_start_time", None) is None or not hardware:
                self.stop()
                raise MeterError(f"CodeCarbon {self._version} found no hardware to measure")
            self._cpu_factor = self._share.cpu
            self._charge_load_of_share(hardware)
            self._note_power_readings(hardware)
            self._flush()
        self._deltas.clear()
        self._read_s = time.perf_counter()
        self._info = self._describe(hardware)
        return self._info

    def reselect_gpus(self, env: Mapping[str, str]) -> MeterInfo | None:
        """Measure the GPUs that this environment names; those of before, and a doubt, where CodeCarbon cannot change.

        It reads the counters of all GPUs and sums those that are ours, so that nothing is lost at the change.
        """
        if not self._present:
            return None
        named = select_gpus(self._present, env, self._local_world_size)
        if named == self._named:
            return self._info
        self._named = named
        hardware = list(getattr(self._tracker, "_hardware", []))
        part = next((part for part in hardware if type(part).__name__ == "GPU"), None)
        if part is not None and not hasattr(part, "_gpu_ids_resolved"):  # another version of CodeCarbon
            doubt = "CUDA_VISIBLE_DEVICES was changed after the start; the GPUs that it named before are counted"
            named = GpuSelection(self._gpus.gpus, doubt)
        elif part is not None and named.gpus:
            part.gpu_ids, part._gpu_ids_resolved = [g.index for g in named.gpus], True
            models = Counter(g.name for g in named.gpus)
            self._tracker._gpu_ids = part.gpu_ids
            self._tracker._conf.update(  # for CodeCarbon's own outputs
                gpu_ids=part.gpu_ids,
                gpu_count=len(named.gpus),
                gpu_model="".join(f"{n} x {name}" for name, n in models.items()),
            )
        self._measure_gpus(named)
        self._info = self._describe(hardware)
        return self._info

    def _measure_gpus(self, gpus: GpuSelection) -> None:
        self._gpus, self._gpu_zero_since_s = gpus, None
        # CodeCarbon takes an empty CUDA_VISIBLE_DEVICES for unset, and would charge GPUs that we may not use.
        self._leaves_gpus_out = bool(self._present) and not gpus.gpus

    def _construct(self, gpus: GpuSelection) -> Any:
        from codecarbon import OfflineEmissionsTracker
        from codecarbon.output_methods.base_output import BaseOutput

        deltas = self._deltas

        class Collector(BaseOutput):  # type: ignore[misc]  # CodeCarbon has no types
            def out(self, total: Any, delta: Any) -> None:
                deltas.append(delta)

        # Every parameter is explicit: what is not, a ~/.codecarbon.config or CODECARBON_* may set.
        arguments: dict[str, Any] = {
            "project_name": "greenlove",
            "measure_power_secs": _MEASURE_BY_ITSELF_S,
            "tracking_mode": "machine",
            "output_methods": [],
            "api_call_interval": -1,
            "allow_multiple_runs": True,
            "log_level": "critical",
            "logger_preamble": "",
            "gpu_ids": [g.index for g in gpus.gpus] or None,
            "country_iso_code": self._country_iso3 or "USA",  # it needs one, see below
            "region": None,
            "cloud_provider": None,
            "cloud_region": None,
            "country_2letter_iso_code": None,
            "electricitymaps_api_token": "",
            "emissions_endpoint": None,
            "output_dir": ".",
            "pue": 1.0,
            "wue": 0.0,
            "force_carbon_intensity_g_co2e_kwh": self._intensity,
            "force_cpu_power": self._cpu_tdp_w,
            "force_ram_power": self._ram_w,
            "force_mode_cpu_load": False,
            "rapl_include_dram": False,
            "rapl_prefer_psys": False,
            "metadata": None,
            "experiment_name": "base",
            "logging_logger": None,
            "api_endpoint": "https://api.codecarbon.io",
            "api_key": "",
            "prometheus_url": "localhost:9091",
            "output_file": "emissions.csv",
            "on_csv_write": "append",
            "experiment_id": "greenlove",
        }
        arguments.update(self._options)
        arguments["output_handlers"] = [Collector(), *self._options.get("output_handlers", ())]
        tracker = OfflineEmissionsTracker(**arguments)
        if not self._country_iso3 and "country_iso_code" not in self._options:
            tracker._country_iso_code = tracker._country_name = ""  # its outputs name no place that nobody named
        if isinstance(tracker.run_id, UUID):  # else its API gave it
            tracker.run_id = f"{CODECARBON_PREFIX}{tracker.run_id}"  # its rows are known for those of this run
        return tracker

    def _charge_load_of_share(self, hardware: Iterable[Any]) -> None:
        """Let CodeCarbon model our share of the CPUs alone: rated power and load of what we may use.

        Its model is cubic in the load, so that of the whole machine would charge a busy share as if it were idle.
        """
        for part in hardware:
            is_modelled = type(part).__name__ == "CPU" and getattr(part, "_mode", "") == "cpu_load"
            if is_modelled and self._share.busy_s is not None and hasattr(part, "_cpu_load_meter"):
                part._cpu_load_meter = ShareLoad(self._share)
                part._tdp *= self._share.cpu
                part.start()  # forgets what was sampled of the whole machine
                self._cpu_factor = 1.0

    def _note_power_readings(self, hardware: Iterable[Any]) -> None:
        """Note when the power of GPUs without a counter is read, which CodeCarbon's thread does each second.

        The mean of these readings, times the time, is their energy; of a time without one nobody knows.
        """
        for part in hardware:
            read_power = getattr(part, "monitor_power", None)
            if type(part).__name__ == "GPU" and read_power is not None:
                part.monitor_power = partial(self._read_power, read_power)

    def _read_power(self, read_power: Callable[[], None]) -> None:
        read_power()
        self._power_read_s.append(time.perf_counter())

    def _longest_hole_s(self, methods: Iterable[Method | None]) -> float:
        """Return the longest time since the last read without a reading of power; 0 where counters integrate it."""
        now_s, (readings_s, self._power_read_s) = time.perf_counter(), (self._power_read_s, [])
        times_s = [now_s if self._read_s is None else self._read_s, *readings_s, now_s]
        self._read_s = now_s
        if Method.SAMPLED_POWER not in methods:
            return 0.0
        return max(after - before for before, after in pairwise(times_s))

    def read(self) -> Energy:
        """Return the energy since the last read.

        Raises:
            MeterError: where CodeCarbon's flush failed; it swallows its exceptions and returns None.
        """
        self._flush()
        deltas = list(self._deltas)
        self._deltas.clear()
        if not deltas:
            raise MeterError("CodeCarbon's flush gave no reading")
        cpu_method, gpu_method, ram_method = self._methods()
        self.longest_hole_s = self._longest_hole_s((cpu_method, gpu_method, ram_method))
        cpu_factor = 1.0 if cpu_method in MEASURED_METHODS else self._cpu_factor
        cpu = _sum(d.cpu_energy for d in deltas)
        gpu = self._plausible_gpu_kwh(_sum(d.gpu_energy for d in deltas)) if gpu_method else None
        ram = _sum(d.ram_energy for d in deltas)
        cpu_kwh = cpu * cpu_factor if cpu is not None and cpu_method else None
        ram_kwh = ram * self._share.ram if ram is not None and ram_method else None
        return Energy(
            cpu_kwh,
            gpu,
            ram_kwh,
            cpu_method if cpu_kwh is not None else None,
            gpu_method if gpu is not None else None,
            ram_method if ram_kwh is not None else None,
        )

    def stop(self) -> None:
        """Stop CodeCarbon's threads; its own outputs write their last line."""
        try:
            if self._tracker is not None:
                self._tracker.stop()
        finally:
            if self._silences_log:
                self._silences_log = False
                _silent_log.end()

    def _methods(self) -> tuple[Method | None, Method | None, Method | None]:
        cpu, gpu, ram = _methods(getattr(self._tracker, "_hardware", []))
        return cpu, None if self._leaves_gpus_out else gpu, ram

    def _flush(self) -> None:
        if self._tracker.flush() is None:
            raise MeterError("CodeCarbon's flush failed")

    def _plausible_gpu_kwh(self, gpu_kwh: float | None) -> float | None:
        """Return the energy of the GPUs; None once it has been zero for longer than any GPU can draw nothing."""
        now_s = time.perf_counter()
        if gpu_kwh:
            self._gpu_zero_since_s = None
            return gpu_kwh
        if self._gpu_zero_since_s is None:
            self._gpu_zero_since_s = now_s
        return gpu_kwh if now_s - self._gpu_zero_since_s < _MAX_GPU_ZERO_S else None

    def _describe(self, hardware: Iterable[Any]) -> MeterInfo:
        gpus, conf = self._gpus, getattr(self._tracker, "_conf", {})
        cpu_method, gpu_method, ram_method = self._methods()
        by_kind = {type(part).__name__: part for part in hardware}
        ram, cpu = by_kind.get("RAM"), by_kind.get("CPU")
        ram_w = ram.total_power().W * self._share.ram if ram is not None else None
        unmeasured = [name for name, method in (("cpu", cpu_method), ("ram", ram_method)) if method is None]
        if gpus.gpus and gpu_method is None:
            unmeasured.append("gpu")
        limits_w = [g.power_limit_w for g in gpus.gpus if g.power_limit_w is not None]
        memories_gb = {g.memory_gb for g in gpus.gpus}
        gpu_count = 0 if self._leaves_gpus_out else len(gpus.gpus) or int(conf.get("gpu_count") or 0)
        values = {
            "meter": f"codecarbon {self._version}",
            "cpu_model": conf.get("cpu_model") or "",
            "cpu_threads": conf.get("cpu_count") or "",
            "cpu_method": cpu_method or "",
            "cpu_scope": "whole node" if cpu_method is Method.COUNTER and not self._share.is_whole_machine else "",
            "gpu_count": gpu_count,
            "gpu_models": _models(gpus) or (conf.get("gpu_model") if gpu_count else "") or "",
            "gpu_method": gpu_method or "",
            "gpu_doubt": gpus.doubt,
            "ram_method": ram_method or "",
            "cpu_share": self._share.cpu,
            "ram_share": self._share.ram,
            "share_source": self._share.source,
            "unmeasured": " ".join(unmeasured),
            "codecarbon_run_id": getattr(self._tracker, "run_id", "") if self._options else "",
            "meter_note": "" if cpu_method in MEASURED_METHODS else cpu_counter_state().value,
        }
        fields = [Field(name, str(value)) for name, value in values.items() if value != ""]
        fields.append(Field("ram_gb", f"{(conf.get('ram_total_size') or 0.0) * self._share.ram:.1f}", "GiB"))
        if ram_w is not None:
            fields.append(Field("ram_w", f"{ram_w:.4g}", "W"))
        if cpu is not None and getattr(cpu, "_tdp", None):
            fields.append(Field("cpu_tdp_w", f"{cpu._tdp * self._cpu_factor:.4g}", "W"))
        if limits_w:
            fields.append(Field("gpu_power_limit_w", f"{sum(limits_w):g}", "W"))
        if len(memories_gb) == 1 and (memory_gb := memories_gb.pop()) is not None:  # else it is not that of any one
            fields.append(Field("gpu_memory_gb", f"{memory_gb:.4g}", "GiB"))
        return MeterInfo(tuple(fields), gpu_count)


def _import_quietly() -> str:
    """Import CodeCarbon without a line on the terminal and without its calls of ``scontrol``; return its version."""
    is_unset = "CODECARBON_LOG_LEVEL" not in os.environ
    if is_unset:
        os.environ["CODECARBON_LOG_LEVEL"] = "critical"  # read at the first import only
    try:
        import codecarbon
        import codecarbon.core.util
        import codecarbon.external.ram
    except ImportError as error:
        raise MeterError(f"CodeCarbon cannot be imported ({error}): pip install codecarbon") from error
    finally:
        if is_unset:
            del os.environ["CODECARBON_LOG_LEVEL"]
    # In a Slurm job it asks scontrol for the job's size: a burden to the cluster, and without scontrol it measures
    # nothing. We take our share from cgroup and SLURM_* instead; the environment itself is left as it is.
    for module in (codecarbon.core.util, codecarbon.external.ram):
        if hasattr(module, "SLURM_JOB_ID"):
            module.SLURM_JOB_ID = None
    return str(codecarbon.__version__)


@contextmanager
def _quick_detection() -> Iterator[None]:
    """Let CodeCarbon find what it finds by itself, without child processes of Python and without pandas.

    It asks py-cpuinfo for the CPU's name, which runs ten commands and a second Python, and loads pandas to look into
    two tables: together 1.4 s of a core, beside a training that may take no longer. What is found is the same.
    """
    try:
        import codecarbon.core.cpu
        import codecarbon.core.resource_tracker
        import codecarbon.input

        tables, tdp = codecarbon.input.DataSource, codecarbon.core.cpu.TDP
        slow_name, slow_power_w = codecarbon.core.util.detect_cpu_model, tdp._get_cpu_power_from_registry
        cpu_table, country_table = tables().cpu_power_path, tables().global_energy_mix_data_path
    except (ImportError, AttributeError) as error:  # another version: it finds them its own way
        _log.debug("greenlove: CodeCarbon's own detection: %r", error)
        yield
        return

    def cpu_name() -> str | None:
        name: str | None = _cpu_name() or slow_name()
        return name

    def rated_power_w(self: Any, model: str) -> float | None:
        try:
            return _rated_power_w(cpu_table, model, self._get_matching_cpu)
        except Exception as error:  # its private parts have changed
            _log.debug("greenlove: CodeCarbon's own table of CPUs: %r", error)
            power_w: float | None = slow_power_w(self, model)
            return power_w

    def countries(self: Any) -> Any:
        return json.loads(country_table.read_text(encoding="utf-8"))

    users = (codecarbon.core.util, codecarbon.core.cpu, codecarbon.core.resource_tracker)
    replaced = [
        *((module, "detect_cpu_model", cpu_name) for module in users),
        (tdp, "_get_cpu_power_from_registry", rated_power_w),
        (tables, "get_global_energy_mix_data", countries),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    try:
        for owner, name, function in replaced:
            setattr(owner, name, function)
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def _cpu_name(cpuinfo: str = "/proc/cpuinfo") -> str | None:
    """Return the name of the CPU as py-cpuinfo finds it on Linux: of ``/proc/cpuinfo``, else of ``lscpu``."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        with Path(cpuinfo).open(encoding="utf-8", errors="replace") as lines:
            if name := _field(lines, {"model name", "cpu", "processor", "uarch"}):
                return name
        command = ["lscpu"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False, env=_plain_english())
        return _field(told.stdout.splitlines(), {"model name"})
    except (OSError, subprocess.SubprocessError):
        return None


def _field(lines: Iterable[str], names: set[str]) -> str | None:
    """Return the value of the first ``name: value`` of these names that is more than a number."""
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip().lower() in names and value.strip() and not value.strip().isdigit():
            return value.strip()
    return None


def _plain_english() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}


def _rated_power_w(path: Path, model: str, find: Callable[[str, Mapping[str, list[str]]], str | None]) -> float | None:
    """Return the rated power of a CPU in CodeCarbon's table, whose names ``find`` goes through."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = [(row["Name"], row["TDP"]) for row in csv.DictReader(lines)]
    name = find(model, {"Name": [name for name, _ in rows]})
    return float(next(tdp for row_name, tdp in rows if row_name == name)) if name else None


def _methods(hardware: Iterable[Any]) -> tuple[Method | None, Method | None, Method | None]:
    """Return the methods of CPU, GPU and RAM right now; a GPU may fall back from its counter to sampled power."""
    cpu: Method | None = None
    gpu: Method | None = None
    ram: Method | None = None
    for part in hardware:
        kind = type(part).__name__
        if kind == "CPU":
            cpu = _CPU_METHODS.get(str(getattr(part, "_mode", "")), Method.TDP_MODEL)
        elif kind == "GPU":
            devices = getattr(getattr(part, "devices", None), "devices", [])
            falls_back = any(getattr(d, "_use_power_fallback", False) for d in devices)
            gpu = Method.SAMPLED_POWER if falls_back else Method.COUNTER
        elif kind == "RAM":
            ram = Method.CONSTANT
        elif kind in ("AppleSiliconChip", "Raspberry"):
            chip = getattr(part, "chip_part", "")
            cpu = Method.SAMPLED_POWER if chip == "CPU" else cpu
            gpu = Method.SAMPLED_POWER if chip == "GPU" else gpu
            ram = Method.SAMPLED_POWER if chip == "RAM" else ram
    return cpu, gpu, ram


def _sum(deltas: Iterable[float]) -> float | None:
    """Return the sum; None where a total fell, which it does when CodeCarbon's own threads disturb a reading."""
    values = list(deltas)
    return sum(values) if all(v >= 0 for v in values) else None


def _models(gpus: GpuSelection) -> str:
    return ", ".join(f"{n} × {name}" for name, n in Counter(g.name for g in gpus.gpus).items())
