"""Our GPUs and our share of the machine, CPU energy counters, and memory and synchronisation of GPUs."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from greenlove_tracker.machine.job import Environment
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.units import BYTES_PER_GB


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, as its driver shows it.

    Attributes:
        n_other_processes: processes of other jobs on this machine that compute on it.
        slices: UUIDs of its MIG instances.
        problem: why it does not answer, in the driver's words; empty if it answers.
    """

    index: int
    uuid: str
    name: str
    memory_gb: float | None
    power_limit_w: float | None
    n_other_processes: int = 0
    slices: tuple[str, ...] = ()
    problem: str = ""

    @property
    def label(self) -> str:
        """Its number and name."""
        return f"GPU {self.index} ({self.name})" if self.name else f"GPU {self.index}"


@dataclass(frozen=True, slots=True)
class GpuSelection:
    """The GPUs of the job on this node, and doubts about them."""

    gpus: tuple[Gpu, ...]
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """The share of the machine that this job may use, in 0..1.

    Attributes:
        cpu: the share of its CPUs.
        ram: the share of its memory.
        source: what limits the job.
        busy_s: returns the CPU seconds used on our share so far; None if nothing limits us.
        n_cpus: the number of CPUs that ``busy_s`` covers.
    """

    cpu: float
    ram: float
    source: str
    busy_s: Callable[[], float] | None = None
    n_cpus: float = 0.0

    @property
    def is_whole_machine(self) -> bool:
        """True if nothing limits us."""
        return self.cpu == 1.0 and self.ram == 1.0


class NvmlGpus(tuple[Gpu, ...]):
    """All GPUs that NVML shows.

    Attributes:
        problem: why NVML shows no GPU, in its own words; empty without an NVIDIA driver.
    """

    problem = ""


# NVML_ERROR_DRIVER_NOT_LOADED and NVML_ERROR_LIBRARY_NOT_FOUND: a machine without a GPU, as far as one can tell.
_ABSENT = (9, 12)


def nvml_gpus() -> NvmlGpus:
    """Return all GPUs that NVML shows, even those that do not answer; none without an NVIDIA driver."""
    import pynvml

    none = NvmlGpus()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value not in _ABSENT:
            none.problem = str(error)
        return none
    try:
        return NvmlGpus(_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError as error:
        none.problem = str(error)
        return none
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    """Ask a GPU for its facts; what it does not answer is unknown."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return Gpu(index, "", "", None, None, problem=str(error))

    def ask(function: str) -> Any:
        try:
            return getattr(nvml, function)(handle)
        except (nvml.NVMLError, UnicodeDecodeError):  # some boards do not answer every question
            return None

    limit_mw = ask("nvmlDeviceGetEnforcedPowerLimit")
    memory = ask("nvmlDeviceGetMemoryInfo")
    computing = ask("nvmlDeviceGetComputeRunningProcesses") or ()
    name = ask("nvmlDeviceGetName") or ""
    return Gpu(
        index=index,
        uuid=ask("nvmlDeviceGetUUID") or "",
        name=name.encode("utf-8", "replace").decode(),  # a driver's name may not be UTF-8
        memory_gb=memory.total / BYTES_PER_GB if memory else None,
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
        n_other_processes=_n_of_other_jobs([process.pid for process in computing]),
        slices=tuple(_slices(nvml, handle)),
    )


def _slices(nvml: Any, handle: Any) -> Iterator[str]:
    """Yield the UUIDs of the MIG instances of a GPU."""
    try:
        is_cut, _ = nvml.nvmlDeviceGetMigMode(handle)
        n_most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if is_cut else 0
    except nvml.NVMLError:
        return
    for number in range(n_most):
        with suppress(nvml.NVMLError):  # there are fewer instances than possible
            yield nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))


_MOST_PID = 2**31 - 1  # a driver may give a value that is not a process id


def _n_of_other_jobs(pids: Sequence[int]) -> int:
    """Return how many of these processes belong to other jobs: not to our launcher, its ranks or our children.

    Ids without a process here are left out: within a container NVML may give ids of the host.
    """
    import psutil

    launcher = psutil.Process().parent() or psutil.Process()
    ours = {os.getpid(), launcher.pid, *(child.pid for child in launcher.children(recursive=True))}
    return sum(pid not in ours and pid <= _MOST_PID and psutil.pid_exists(pid) for pid in pids)


def power_limit_w(gpu_uuid: str) -> float:
    """Return the power limit of a GPU, in W.

    Raises:
        UsageError: if NVML does not tell it.
    """
    with _nvml_gpu(gpu_uuid) as (nvml, gpu):
        limit_mw: float = nvml.nvmlDeviceGetPowerManagementLimit(gpu)
        return limit_mw / 1000


def set_power_limit(gpu_uuid: str, limit_w: float) -> None:
    """Set the power limit of a GPU, unless it is set already.

    Raises:
        UsageError: if the limit is out of range, or NVML refuses it, mostly for lack of permission.
    """
    with _nvml_gpu(gpu_uuid) as (nvml, gpu):
        limit_mw = round(limit_w * 1000)
        if limit_mw == nvml.nvmlDeviceGetPowerManagementLimit(gpu):
            return
        with suppress(nvml.NVMLError):  # some boards do not tell their range
            least_mw, most_mw = nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu)
            if not least_mw <= limit_mw <= most_mw:
                least_w = least_mw / 1000
                most_w = most_mw / 1000
                raise UsageError(
                    f"a power limit of {limit_w:g} W cannot be: this GPU takes {least_w:g} to {most_w:g} W"
                )
        nvml.nvmlDeviceSetPowerManagementLimit(gpu, limit_mw)


@contextmanager
def _nvml_gpu(uuid: str) -> Iterator[tuple[Any, Any]]:
    """Yield NVML and its handle of a GPU; turn NVML's errors within the block into ``UsageError``."""
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            yield pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        needs = "to set it needs root, in a container also SYS_ADMIN"
        raise UsageError(f"NVML says of the GPU's power limit: {error} ({needs})") from error


def select_gpus(gpus: Sequence[Gpu], env: Environment, local_world_size: int = 1) -> GpuSelection:
    """Return the GPUs that the job uses on this node.

    ``CUDA_VISIBLE_DEVICES`` may hold indices, UUIDs, prefixes of UUIDs or MIG names; an empty value or -1 hides
    all. If a launcher gives each rank its own GPU, the local ranks use more GPUs than this process sees.
    """
    if not gpus:  # the names may be of AMD GPUs
        return GpuSelection(())
    chosen, doubt = _visible(gpus, env.get("CUDA_VISIBLE_DEVICES"), "CUDA_VISIBLE_DEVICES")
    doubts = [doubt]
    if chosen and len(chosen) < local_world_size:
        chosen, _ = _visible(gpus, env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS") or "", "Slurm")
        doubts = []
        if len(chosen) < local_world_size:
            chosen = list(gpus)
            doubts = [f"{local_world_size} local ranks see one GPU each: all GPUs of the node counted"]
    elif _is_by_other_numbers(gpus, chosen, env):
        doubts.append(
            "CUDA counts GPUs from the fastest and NVML by their slot: others may be counted than those that train; "
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    shared = ", ".join(f"{gpu.n_other_processes} on GPU {gpu.index}" for gpu in chosen if gpu.n_other_processes)
    if shared:
        doubts.append(f"processes of other users run on our GPUs ({shared}): all of each GPU's energy is counted")
    return GpuSelection(tuple(chosen), "; ".join(filter(None, doubts)))


def visible_amd_gpus(gpus: Sequence[Gpu], env: Environment, local_world_size: int = 1) -> list[Gpu]:
    """Return the AMD GPUs that the job uses on this node; all if each rank has its own.

    ``HIP_VISIBLE_DEVICES``, else ``CUDA_VISIBLE_DEVICES``, numbers the GPUs that ``ROCR_VISIBLE_DEVICES`` leaves.
    """
    left, _ = _visible(gpus, env.get("ROCR_VISIBLE_DEVICES"), "ROCR_VISIBLE_DEVICES")
    listed = env.get("HIP_VISIBLE_DEVICES", env.get("CUDA_VISIBLE_DEVICES"))
    chosen, _ = _visible(left, listed, "HIP_VISIBLE_DEVICES")
    if chosen and len(chosen) < local_world_size:
        return list(gpus)
    return chosen


def _is_by_other_numbers(gpus: Sequence[Gpu], chosen: Sequence[Gpu], env: Environment) -> bool:
    """Return True if CUDA may number GPUs in another order than NVML."""
    is_by_number = any(name.strip().isdigit() for name in env.get("CUDA_VISIBLE_DEVICES", "").split(","))
    is_mixed = len({gpu.name for gpu in gpus}) > 1
    return is_by_number and is_mixed and len(chosen) < len(gpus) and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def _visible(gpus: Sequence[Gpu], listed: str | None, variable: str) -> tuple[list[Gpu], str]:
    """Return the GPUs that a launcher's list names, and doubts about them."""
    if listed is None:
        return list(gpus), ""
    chosen: list[Gpu] = []
    doubt = ""
    for name in (part.strip() for part in listed.split(",")):
        found = _named(gpus, name)
        if found is None:
            # like CUDA, stop at the first unknown name
            if name not in ("", "-1"):
                doubt = f"{variable} names {name!r}, which the driver does not know"
            return chosen, doubt
        if name.startswith("MIG-"):
            doubt = f"{name} is a slice: the whole GPU is counted"
        if found not in chosen:
            chosen.append(found)
    return chosen, doubt


def _named(gpus: Sequence[Gpu], name: str) -> Gpu | None:
    """Return the GPU with this index, UUID, prefix of a UUID, or MIG instance; None if there is none."""
    if name.isdigit():
        return gpus[int(name)] if int(name) < len(gpus) else None
    of_slice = [gpu for gpu in gpus if name in gpu.slices]
    if of_slice:
        return of_slice[0]
    prefix = name.removeprefix("MIG-").split("/")[0]
    matching = [g for g in gpus if prefix and (g.uuid.startswith(prefix) or g.uuid.startswith(f"GPU-{prefix}"))]
    return matching[0] if len(matching) == 1 else None


def machine_share(env: Environment, local_world_size: int = 1, *, root: Path = Path("/")) -> Share:
    """Return the share of CPUs and memory that cgroups (v2), CPU affinity or Slurm leave to this job.

    Args:
        env: the environment, for ``SLURM_*``.
        local_world_size: processes of the job on this node, which a launcher may bind to CPUs of their own.
        root: the directory of ``proc`` and ``sys``; tests pass their own.
    """
    import psutil

    ours = frozenset[int]()
    if hasattr(os, "sched_getaffinity"):
        ours = frozenset(os.sched_getaffinity(0))
    n_cpus = psutil.cpu_count() or 1
    cgroup_cpus, cgroup = _cgroup_cpus(root)
    slurm_cpus = _number(env, "SLURM_CPUS_ON_NODE")
    # What limits the CPUs of the job, and which CPUs' busy time then counts. Bound ranks are assumed to be alike. If
    # nothing confines a Slurm job, the busy time of all CPUs is an upper bound.
    limits: list[tuple[Any, str, Any, Any]] = [
        (n_cpus, "", None, 0.0),
        (cgroup_cpus, "cgroup", partial(_cgroup_busy_s, cgroup), cgroup_cpus),
        (len(ours) * local_world_size, "affinity", partial(_busy_s, ours), len(ours)),
        (slurm_cpus, "Slurm", partial(_busy_s, ours), slurm_cpus),
    ]
    cpus, cpu_source, busy_s, n_busy = min((one for one in limits if one[0]), key=lambda one: one[0])
    whole_bytes = psutil.virtual_memory().total
    sizes = [(whole_bytes, ""), (_cgroup_bytes(root), "cgroup"), (_slurm_bytes(env), "Slurm")]
    ram_bytes, ram_source = min(((size, source) for size, source in sizes if size), key=lambda one: one[0])
    source = " and ".join(sorted(filter(None, {cpu_source, ram_source}))) or "whole machine"
    return Share(cpus / n_cpus, ram_bytes / whole_bytes, source, busy_s, n_busy)


def _number(env: Environment, name: str) -> float | None:
    text = env.get(name, "")
    return float(text) if text.isdigit() else None


def _slurm_bytes(env: Environment) -> float | None:
    """Return the memory of the job on this node, in bytes. Slurm counts in MB, and 0 means all of it."""
    per_node = _number(env, "SLURM_MEM_PER_NODE")
    per_cpu = _number(env, "SLURM_MEM_PER_CPU")
    cpus = _number(env, "SLURM_CPUS_ON_NODE")
    if per_node:
        return per_node * 1024**2
    if per_cpu and cpus:
        return per_cpu * cpus * 1024**2
    return None


def _cgroup_dirs(root: Path) -> list[Path]:
    """Return the cgroup directories that limit this process, innermost first."""
    base = root / "sys/fs/cgroup"
    found = [line for line in _read(root / "proc/self/cgroup").splitlines() if line.startswith("0::")]
    if found:
        inner = base / found[0].removeprefix("0::").lstrip("/")
    else:
        inner = base
    return [directory for directory in (inner, *inner.parents) if directory == base or base in directory.parents]


def _cgroup_cpus(root: Path) -> tuple[float | None, Path]:
    """Return the tightest limit in CPUs, and the directory that sets it."""
    limits = []
    for directory in _cgroup_dirs(root):
        found = re.match(r"(\d+) (\d+)", _read(directory / "cpu.max"))
        if found and int(found[2]):
            limits.append((int(found[1]) / int(found[2]), directory))
    return min(limits, default=(None, root))


def _cgroup_busy_s(directory: Path) -> float:
    """Return the CPU seconds that all processes of a cgroup have spent."""
    fields = dict(line.split() for line in _read(directory / "cpu.stat").splitlines())
    return int(fields["usage_usec"]) / 1e6


def _busy_s(cpus: frozenset[int]) -> float:
    """Return the busy CPU seconds of these CPUs since the machine started; of all CPUs if none are given."""
    import psutil

    each = psutil.cpu_times(percpu=True)
    chosen = [times._asdict() for number, times in enumerate(each) if not cpus or number in cpus]
    return float(sum(value for times in chosen for name, value in times.items() if name not in _NOT_BUSY))


_NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # user and nice include guests


class ShareLoad:
    """Measure the load of our share of the CPUs between two readings.

    CodeCarbon's own meter covers the whole machine: 4 busy CPUs of 64 are a load of 6%.

    Args:
        share: our share of the machine, with its busy time.
    """

    def __init__(self, share: Share) -> None:
        self._share = share
        self._last_percent = 0.0
        self.reset()

    def reset(self) -> None:
        """Start again: the next reading covers the time from now on."""
        self._last_s = time.perf_counter()
        self._last_busy_s = self._busy_s()

    def percent(self) -> float:
        """Return the mean load since the last reading, 0 to 100."""
        now_s = time.perf_counter()
        busy_s = self._busy_s()
        available_s = (now_s - self._last_s) * self._share.n_cpus
        if busy_s is not None and self._last_busy_s is not None and available_s > 0:
            self._last_percent = min(100.0, max(0.0, 100.0 * (busy_s - self._last_busy_s) / available_s))
        self._last_s = now_s
        self._last_busy_s = busy_s
        return self._last_percent

    def _busy_s(self) -> float | None:
        try:
            if self._share.busy_s is None:
                return None
            return self._share.busy_s()
        except (OSError, KeyError):  # the cgroup is gone, as at the end of a job: keep the last load
            return None


def _cgroup_bytes(root: Path) -> float | None:
    limits = (_read(directory / "memory.max") for directory in _cgroup_dirs(root))
    return min((float(text) for text in limits if text.isdigit()), default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


class CounterState(StrEnum):
    """The state of the CPU's energy counter, with a text for people as its value."""

    READABLE = "an energy counter"
    LOCKED = "RAPL is there, readable by root only"
    VIRTUAL = "a virtual machine without counters"
    MACOS = "macOS gives its counters to root only"
    ABSENT = "no energy counter of the CPU was found"


RAPL_DIR = Path("/sys/class/powercap")


def cpu_counter_state(*, rapl_dir: Path = RAPL_DIR, root: Path = Path("/")) -> CounterState:
    """Return the state of the CPU's energy counter: readable, or the reason why not."""
    counters = sorted(rapl_dir.glob("intel-rapl:*/energy_uj"))
    if any(os.access(counter, os.R_OK) for counter in counters):
        return CounterState.READABLE
    if counters:
        return CounterState.LOCKED
    if sys.platform == "darwin":
        return CounterState.MACOS
    is_virtual = "hypervisor" in _read(root / "proc/cpuinfo").split()
    if is_virtual:
        return CounterState.VIRTUAL
    return CounterState.ABSENT


def synchronise() -> None:
    """Wait until CUDA has finished torch's work; do nothing if torch or CUDA is not in use.

    torch is never imported here: a program that has not imported it has nothing to wait for.
    """
    cuda = _started_cuda()
    if cuda is not None:
        cuda.synchronize()


def has_cuda_started() -> bool:
    """Return True once torch has a CUDA context. Later changes of the environment do not change its GPUs."""
    return _started_cuda() is not None


def _started_cuda() -> Any:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and getattr(cuda, "is_initialized", bool)():
        return cuda
    return None


def peak_gpu_memory_gb() -> float | None:
    """Return the peak memory of torch's tensors on one GPU, in GiB; None if torch or CUDA is not in use."""
    cuda = _started_cuda()
    if cuda is None:
        return None
    return max((cuda.max_memory_allocated(i) for i in range(cuda.device_count())), default=0) / BYTES_PER_GB


def reset_peak_gpu_memory() -> None:
    """Reset the peak of GPU memory; do nothing if torch or CUDA is not in use."""
    cuda = _started_cuda()
    if cuda is not None:
        for i in range(cuda.device_count()):
            cuda.reset_peak_memory_stats(i)


def peak_memory_gb() -> float | None:
    """Return the peak memory of a training, in GiB: on one GPU, else of this process."""
    on_gpu_gb = peak_gpu_memory_gb()
    if on_gpu_gb:
        return on_gpu_gb
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit_bytes = 1 if sys.platform == "darwin" else 1024  # getrusage(2) of each
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes / BYTES_PER_GB
