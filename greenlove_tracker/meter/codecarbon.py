"""CodeCarbon as a meter: one offline tracker a run, read by the deltas of ``flush()``, without network and files.

The meter uses CodeCarbon's public interface. The private parts that it needs stand at the end of this file, and the
version is pinned.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import re
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

from greenlove_tracker.logs.schema import CODECARBON_PREFIX
from greenlove_tracker.machine.devices import Share, ShareLoad, cpu_counter_state, machine_share, nvml_gpus, select_gpus
from greenlove_tracker.machine.forks import forks_wait
from greenlove_tracker.machine.job import Environment, Ranks
from greenlove_tracker.meter.base import Meter, MeterInfo, MeterOfSome, NullMeter, SimulatedMeter
from greenlove_tracker.meter.gpus import GpuReaders, gpu_readers
from greenlove_tracker.settings.config import Settings
from greenlove_tracker.vocabulary.errors import MeterError, UsageError
from greenlove_tracker.vocabulary.records import MEASURED_METHODS, Clock, Energy, Field, Method, joined_methods

# Only our own readings may measure: CodeCarbon's periodic thread takes deltas without a lock.
_MEASURE_BY_ITSELF_S = 86400.0
# Options that would break our sums: PUE counted twice, foreign GPUs, overlapping readings.
_OURS = {
    "pue",
    "gpu_ids",
    "measure_power_secs",
    "tracking_mode",
    "force_cpu_power",
    "force_ram_power",
    "api_call_interval",
}

_codecarbon_log = logging.getLogger("codecarbon")
_one_starts = threading.Lock()  # one meter at a time replaces parts of CodeCarbon


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
    _running: ClassVar[set[CodeCarbonMeter]] = set()  # CodeCarbon's log is silent while there are any

    def __init__(
        self,
        env: Environment,
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
        self._country_iso3 = country_iso3
        self._cpu_tdp_w = cpu_tdp_w
        self._ram_w = ram_w
        self._options = dict(options or {})
        taken = sorted(_OURS & self._options.keys())
        if taken:
            raise UsageError(f"codecarbon_options: {', '.join(taken)} is set by the tracker; use its own settings")
        self._tracker: Any = None
        self._version = ""
        self._deltas: list[Any] = []
        self._readers = GpuReaders(())
        self._share = Share(1.0, 1.0, "whole machine")
        self._cpu_factor = 1.0  # our share of a modelled energy of the whole machine
        self._doubt = ""  # doubt about which GPUs are ours
        self._driver_problem = ""

    def start(self) -> MeterInfo:
        """Import CodeCarbon, let it find the hardware, and begin; takes one to several seconds.

        Raises:
            MeterError: if CodeCarbon is missing, fails or finds no hardware.
        """
        with forks_wait:
            self._share = machine_share(self._env, self._local_world_size)
            present = nvml_gpus()
            selected = select_gpus(present, self._env, self._local_world_size)
            self._doubt = selected.doubt
            if self._env.get("CUDA_VISIBLE_DEVICES") not in ("", "-1"):  # these hide all GPUs
                self._driver_problem = present.problem
            self._running.add(self)
            with _one_starts, _last_record() as said:
                self._version = _import_without_slurm()
                self._readers = gpu_readers(selected.gpus, self._env, self._local_world_size)
                with _quick_detection(self._readers):
                    self._tracker = self._construct()
                    self._tracker.start()
                if not _hardware(self._tracker) or self._tracker.flush() is None:
                    self.stop()
                    raise MeterError(f"CodeCarbon {self._version} found no hardware to measure{said.quoted}")
            if _model_share_alone(self._tracker, self._share):
                self._cpu_factor = 1.0
            else:
                self._cpu_factor = self._share.cpu
            _keep_ram_power(self._tracker)
            self._tracker.flush()
            self._deltas.clear()
            self._readers.begin()
            return self._describe()

    def _construct(self) -> Any:
        from codecarbon import OfflineEmissionsTracker
        from codecarbon.output_methods.base_output import BaseOutput

        deltas = self._deltas

        class Collector(BaseOutput):  # type: ignore[misc]  # CodeCarbon has no types
            def out(self, total: Any, delta: Any) -> None:
                deltas.append(delta)

        # No configuration is read, see _quick_detection: what is not given here has CodeCarbon's own default.
        arguments: dict[str, Any] = {
            "project_name": "greenlove",
            "measure_power_secs": _MEASURE_BY_ITSELF_S,
            "output_methods": [],
            "api_call_interval": -1,
            "log_level": _codecarbon_log.level,  # unchanged
            "gpu_ids": list(range(self._readers.device_count)) or None,
            "country_iso_code": self._country_iso3 or "USA",  # it needs one; see _name_no_country
            "force_carbon_intensity_g_co2e_kwh": self._intensity,
            "force_cpu_power": self._cpu_tdp_w,
            "force_ram_power": self._ram_w,
            "electricitymaps_api_token": "",
            "api_key": "",
            "experiment_id": "greenlove",
        }
        arguments.update(self._options)
        arguments["output_handlers"] = [Collector(), *self._options.get("output_handlers", ())]
        tracker = OfflineEmissionsTracker(**arguments)
        if not self._country_iso3 and "country_iso_code" not in self._options:
            _name_no_country(tracker)
        if isinstance(tracker.run_id, UUID):  # else its API gave the id
            tracker.run_id = f"{CODECARBON_PREFIX}{tracker.run_id}"  # so that its rows are recognised as this run's
        return tracker

    def read(self) -> Energy:
        """Return the energy since the last read.

        Raises:
            MeterError: if CodeCarbon's ``flush()`` failed: it hides its exceptions and returns None.
        """
        if self._tracker.flush() is None or not self._deltas:
            raise MeterError("CodeCarbon's flush failed")
        methods = self._methods()
        kwh = {c: _sum(getattr(delta, f"{c}_energy") for delta in self._deltas) for c in methods}
        self._deltas.clear()
        if self._readers.gpus:
            kwh["gpu"] = self._readers.take()
        factors = {"cpu": self._cpu_factor, "gpu": 1.0, "ram": self._share.ram}
        if methods.get("cpu") in MEASURED_METHODS:
            factors["cpu"] = 1.0
        found: dict[str, Any] = {}
        for component, value in kwh.items():
            if value is not None:
                found[f"{component}_kwh"] = value * factors[component]
                found[f"{component}_method"] = methods.get(component)
        return Energy(**found)

    def stop(self) -> None:
        """Stop CodeCarbon's threads; its own outputs write their last line."""
        try:
            if self._tracker is not None:
                self._tracker.stop()
        finally:
            self._running.discard(self)
            _codecarbon_log.disabled = bool(self._running)

    def _methods(self) -> dict[str, str]:
        """Return the present method of each measured component."""
        parts = [part for part in _hardware(self._tracker) if type(part).__name__ != "GPU"]
        methods: dict[str, str] = dict(map(_method, parts))
        of_gpus = joined_methods(self._readers.methods)
        if of_gpus is not None:
            methods["gpu"] = of_gpus
        return methods

    def _describe(self) -> MeterInfo:
        gpus = self._readers.gpus
        share = self._share
        found = self._tracker.get_detected_hardware()
        methods = self._methods()
        hardware = {type(part).__name__: part for part in _hardware(self._tracker)}
        measurable = ("cpu", "ram", "gpu") if gpus or self._driver_problem else ("cpu", "ram")
        gpu_count = len(gpus) or int(found["gpu_count"] or 0)
        models = ", ".join(f"{n} × {name}" for name, n in Counter(g.name or "unknown GPU" for g in gpus).items())
        values = {
            "meter": f"codecarbon {self._version}",
            "cpu_model": found["cpu_model"],
            "cpu_threads": found["cpu_count"],
            "cpu_method": methods.get("cpu"),
            "gpu_count": gpu_count,
            "gpu_models": models or (found["gpu_model"] if gpu_count else ""),
            "gpu_method": methods.get("gpu"),
            "gpu_doubt": self._doubt,
            "gpu_note": self._driver_problem,
            "ram_method": methods.get("ram"),
            "ram_gb": f"{(found['ram_total_size'] or 0.0) * share.ram:.1f}",
            "cpu_share": share.cpu,
            "ram_share": share.ram,
            "share_source": share.source,
            "unmeasured": " ".join(component for component in measurable if component not in methods),
        }
        if methods.get("cpu") is Method.COUNTER and not share.is_whole_machine:
            values["cpu_scope"] = "whole node"
        if methods.get("cpu") not in MEASURED_METHODS:
            values["meter_note"] = cpu_counter_state().value
        if self._options:
            values["codecarbon_run_id"] = self._tracker.run_id
        if "RAM" in hardware:
            values["ram_w"] = f"{hardware['RAM'].total_power().W * share.ram:.4g}"
        tdp_w = _rated_w(hardware.get("CPU"))
        if tdp_w:
            values["cpu_tdp_w"] = f"{tdp_w * self._cpu_factor:.4g}"
        limits_w = [g.power_limit_w for g in gpus if g.power_limit_w is not None]
        if limits_w:
            values["gpu_power_limit_w"] = f"{sum(limits_w):g}"
        memories_gb = {g.memory_gb for g in gpus}
        if len(memories_gb) == 1 and gpus[0].memory_gb is not None:  # else they differ
            values["gpu_memory_gb"] = f"{gpus[0].memory_gb:.4g}"
        fields = tuple(Field(name, str(value)) for name, value in values.items() if value not in (None, ""))
        return MeterInfo(fields, gpu_count, self._readers.energies)


def choose_meter(
    settings: Settings,
    ranks: Ranks,
    clock: Clock,
    carbon_intensity_gco2e_per_kwh: float,
    country_iso3: str,
    options: Mapping[str, Any] | None,
) -> Meter:
    """Return the meter of this process: none on further ranks of a node, given hardware, else CodeCarbon.

    Raises:
        UsageError: if the settings name a component that does not exist.
    """
    meter: Meter
    if not ranks.carries_meter:
        return NullMeter(f"local rank 0 measures this node; this is local rank {ranks.local_rank}")
    if settings.is_simulated:
        meter = SimulatedMeter(
            clock,
            cpu_tdp_w=settings.sim_cpu_tdp_w,
            cpu_util=settings.sim_cpu_util,
            gpu_w=settings.sim_gpu_w,
            gpu_util=settings.sim_gpu_util,
            gpu_count=settings.sim_gpu_count,
            ram_w=settings.ram_w,
        )
    else:
        meter = CodeCarbonMeter(
            os.environ,
            local_world_size=ranks.local_world_size,
            cpu_tdp_w=settings.cpu_tdp_w,
            ram_w=settings.ram_w,
            carbon_intensity_gco2e_per_kwh=carbon_intensity_gco2e_per_kwh,
            country_iso3=country_iso3,
            options=options,
        )
    if settings.components:
        return MeterOfSome(meter, settings.components)
    return meter


class _LastRecord(logging.Filter):
    """Keep CodeCarbon's last warning, and let no record pass."""

    quoted = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep it."""
        if record.levelno >= logging.WARNING:
            self.quoted = f": {record.getMessage()}"
        return False


@contextmanager
def _last_record() -> Iterator[_LastRecord]:
    """Keep CodeCarbon's last warning within the block; its log is silent within and after the block."""
    last = _LastRecord()
    _codecarbon_log.addFilter(last)
    try:
        yield last
    finally:
        _codecarbon_log.removeFilter(last)
        _codecarbon_log.disabled = True


def _sum(deltas: Iterable[float]) -> float | None:
    """Return the sum; None if a total fell, as when CodeCarbon's own threads disturb a reading."""
    values = list(deltas)
    return sum(values) if all(v >= 0 for v in values) else None


# -- All that we use of CodeCarbon's private parts, which tests/meter/test_private_parts.py holds against the version --

_CPU_METHODS = {
    "intel_rapl": Method.COUNTER,
    "windows_emi": Method.COUNTER,
    "intel_power_gadget": Method.SAMPLED_POWER,
    "cpu_load": Method.TDP_MODEL,
    "constant": Method.CONSTANT,
}


def _hardware(tracker: Any) -> list[Any]:
    """Return CodeCarbon's hardware objects: RAM, CPU and GPU, or chips of Apple or Raspberry."""
    return list(getattr(tracker, "_hardware", []))


def _method(part: Any) -> tuple[str, Method]:
    """Return the component of a hardware object and its present method. GPUs have readers of their own."""
    match type(part).__name__:
        case "CPU":
            return "cpu", _CPU_METHODS.get(part._mode, Method.TDP_MODEL)
        case "RAM":
            return "ram", Method.CONSTANT
    return part.chip_part.lower(), Method.SAMPLED_POWER


def _rated_w(cpu: Any) -> float | None:
    """Return the rated power of a modelled CPU."""
    return getattr(cpu, "_tdp", None)


def _model_share_alone(tracker: Any, share: Share) -> bool:
    """Let CodeCarbon model only our share of the CPUs, by its rated power and load; return True if it does.

    Its model is cubic in the load, so the load of the whole machine would charge a busy share as if it were idle.
    """
    if share.busy_s is None:
        return False
    cpus = [part for part in _hardware(tracker) if getattr(part, "_mode", "") == "cpu_load"]
    for cpu in cpus:
        cpu._cpu_load_meter = ShareLoad(share)
        cpu._tdp *= share.cpu
        cpu.start()  # drops samples of the whole machine
    return bool(cpus)


def _keep_ram_power(tracker: Any) -> None:
    """Fix the power of the memory, so that CodeCarbon does not ask for its size at each reading."""
    for part in _hardware(tracker):
        if type(part).__name__ == "RAM":
            part._force_ram_power = part.total_power().W


def _name_no_country(tracker: Any) -> None:
    """Keep CodeCarbon's outputs from naming a place that the user did not name."""
    tracker._country_iso_code = tracker._country_name = ""


def _import_without_slurm() -> str:
    """Import CodeCarbon without its calls of ``scontrol``; return its version."""
    warnings.filterwarnings("ignore", module="codecarbon")  # the user cannot mend them
    try:
        import codecarbon
        import codecarbon.core.util
        import codecarbon.external.ram
    except ImportError as error:
        raise MeterError(f"CodeCarbon cannot be imported ({error}): pip install codecarbon") from error
    # In a Slurm job it asks scontrol for the job's size: that burdens the cluster, and without scontrol it measures
    # nothing. We take our share from cgroups and SLURM_* instead, and leave the environment as it is.
    codecarbon.core.util.SLURM_JOB_ID = codecarbon.external.ram.SLURM_JOB_ID = None
    return str(codecarbon.__version__)


@contextmanager
def _quick_detection(readers: GpuReaders) -> Iterator[None]:
    """Let CodeCarbon find the hardware, with our GPUs, and without child processes and pandas.

    It asks py-cpuinfo for the CPU's name, which runs ten commands and a second Python, and loads pandas to look into
    two tables: together over 1 s of a core, beside a training that may take no longer. What is found is the same.
    A user's configuration of CodeCarbon is not read, neither its files nor CODECARBON_*.
    """
    import codecarbon.core.cpu
    import codecarbon.core.gpu
    import codecarbon.core.resource_tracker
    import codecarbon.emissions_tracker
    import codecarbon.external.hardware
    import codecarbon.input

    tables = codecarbon.input.DataSource
    name = _cpu_name()
    cpu_table = tables().cpu_power_path
    country_table = tables().global_energy_mix_data_path

    def rated_power_w(self: Any, model: str) -> float | None:
        with cpu_table.open(encoding="utf-8", newline="") as lines:
            powers_w = {row["Name"]: row["TDP"] for row in csv.DictReader(lines)}
        found = self._get_matching_cpu(model, {"Name": list(powers_w)})
        return float(powers_w[found]) if found else None

    def countries(self: Any) -> Any:
        return json.loads(country_table.read_text(encoding="utf-8"))

    core = codecarbon.core
    replaced = [
        (codecarbon.core.cpu.TDP, "_get_cpu_power_from_registry", rated_power_w),
        (tables, "get_global_energy_mix_data", countries),
        (codecarbon.emissions_tracker, "get_hierarchical_config", dict),
        (codecarbon.external.hardware, "AllGPUDevices", lambda: readers),
        (core.gpu, "is_nvidia_system", lambda: bool(readers.readers)),
        (core.gpu, "is_rocm_system", lambda: False),
    ]
    if name is not None:
        users = (core.util, core.cpu, core.resource_tracker, codecarbon.external.hardware)
        replaced += [(module, "detect_cpu_model", lambda: name) for module in users]
    before = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in replaced]
    try:
        for owner, attribute, function in replaced:
            setattr(owner, attribute, function)
        yield
    finally:
        for owner, attribute, function in before:
            setattr(owner, attribute, function)


def _cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """Return the name of the CPU as py-cpuinfo would on Linux with x86; None elsewhere, where py-cpuinfo is asked."""
    try:
        found = re.search(r"^model name\s*:\s*(\S.*)$", cpuinfo.read_text("utf-8", "replace"), re.MULTILINE)
    except OSError:
        return None
    return found[1].strip() if found else None
