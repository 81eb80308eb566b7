"""The GPUs that CodeCarbon reads for us, each on its own, so that a failing GPU is unknown alone.

CodeCarbon's own list of devices fails at the first error of any GPU, and takes CPU and memory with it. ``GpuReaders``
replaces the list. CodeCarbon's devices still measure: by the energy counter, or by power if there is none.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from greenlove_tracker.machine.devices import Gpu, visible_amd_gpus
from greenlove_tracker.machine.job import Environment
from greenlove_tracker.meter.base import GpuEnergy
from greenlove_tracker.vocabulary.records import Method

# NVML's counters move each 20 to 100 ms (Yang et al. 2024, arXiv:2312.02741): one that stands still longer is stuck.
_STILL_S = 0.2
_LIMIT_MARGIN = 1.5  # times the power limit, which a board keeps on average over about a second
_MOST_W = 2_000.0  # for a board of unknown limit; the highest in data/gpu_specs.csv is GB300's 1,400 W

Answers = list[dict[str, Any]]  # what CodeCarbon is told of each GPU
_Check = Callable[[float | None], float | None]


class GpuReader:
    """Read one GPU through CodeCarbon's device.

    Args:
        gpu: the GPU.
        make_device: makes CodeCarbon's device from a function that checks each reading of the counter (mJ).

    Attributes:
        device: CodeCarbon's device.
        is_read: True if the last reading was good.
        problem: why the latest failed reading failed; empty if none did.
        total_kwh: the energy so far; None before the first reading.
    """

    def __init__(self, gpu: Gpu, make_device: Callable[[_Check], Any]) -> None:
        self.gpu = gpu
        self.is_read = True
        self.problem = ""
        self.total_kwh: float | None = None
        self._most_mw = 1000 * _LIMIT_MARGIN * (gpu.power_limit_w or _MOST_W)
        self._counter_mj: float | None = None
        self._moved_s = time.perf_counter()
        self._untaken_kwh: float | None = 0.0
        self.device = make_device(self._checked)

    @property
    def method(self) -> Method:
        """How its energy is obtained right now."""
        if self.device._use_power_fallback:
            return Method.SAMPLED_POWER
        return Method.COUNTER

    def read(self, duration: Any) -> float:
        """Let CodeCarbon's device measure; return the energy in kWh, 0 if unknown."""
        problem = ""
        kwh = 0.0
        try:
            self.device.delta(duration)
            kwh = self.device.energy_delta.kWh
            if kwh == 0 and not self._may_be_zero():
                problem = self._reason()
        except Exception as error:  # of the driver or of CodeCarbon
            problem = str(error) or repr(error)
        self.is_read = not problem
        if problem:
            self.problem = problem
            self._untaken_kwh = None
            self._begin_anew()
            return 0.0
        self.total_kwh = (self.total_kwh or 0.0) + kwh
        if self._untaken_kwh is not None:
            self._untaken_kwh += kwh
        return kwh

    def take(self) -> float | None:
        """Return the energy since the last call, in kWh; None if some of it could not be read."""
        kwh = self._untaken_kwh
        self._untaken_kwh = 0.0
        return kwh if self.is_read else None

    def _checked(self, counter_mj: float | None) -> float | None:
        """Return a reading of the counter; None if it is impossible, or the counter stands still for too long.

        Without a reading CodeCarbon counts by power, and deducts that when the counter moves again.
        """
        if counter_mj is None or (counter_mj == 0 and self._counter_mj):
            return None
        passed_s = time.perf_counter() - self._moved_s
        if counter_mj == self._counter_mj:
            return counter_mj if passed_s < _STILL_S else None
        if self._counter_mj is not None and counter_mj - self._counter_mj > self._most_mw * (passed_s + _STILL_S):
            self._begin_anew()
        self._counter_mj = counter_mj
        self._moved_s += passed_s
        return counter_mj

    def _begin_anew(self) -> None:
        """Count by power until the counter's next reading, since its next step covers time that was not read."""
        self.device.last_energy = None
        self.device._use_power_fallback = True

    def _may_be_zero(self) -> bool:
        """Return True for the second chip of an AMD board, and for a counter that is about to move."""
        return self.method is Method.COUNTER or self.device._reports_zero_power_by_design()

    def _reason(self) -> str:
        """Return why no energy was read, in the driver's words if it gave any."""
        try:
            power_w = self.device._get_power_usage()
        except Exception as error:
            return str(error) or repr(error)
        return f"it says that it draws {power_w:g} W"


class GpuReaders:
    """Our GPUs, in place of CodeCarbon's ``AllGPUDevices``.

    Args:
        readers: readers of the GPUs that answer.
        silent: the GPUs that do not answer, with the reason.

    Attributes:
        gpus: all our GPUs.
        devices: CodeCarbon's devices.
        device_count: the number of devices.
    """

    def __init__(self, readers: Sequence[GpuReader], silent: Sequence[GpuEnergy] = ()) -> None:
        self.readers = tuple(readers)
        self._silent = tuple(silent)
        self.gpus = [one.gpu for one in self.energies()]
        self.devices = [reader.device for reader in readers]
        self.device_count = len(self.devices)
        self._is_watching = threading.Lock()

    @property
    def methods(self) -> frozenset[Method]:
        """How the energy of the GPUs that are read is obtained right now."""
        return frozenset(reader.method for reader in self.readers if reader.is_read)

    def energies(self) -> tuple[GpuEnergy, ...]:
        """Return the energy of each GPU so far."""
        read = [GpuEnergy(one.gpu, one.total_kwh, one.is_read, one.problem, one.method) for one in self.readers]
        return (*read, *self._silent)

    def begin(self) -> None:
        """Drop the energy that was read so far."""
        for reader in self.readers:
            reader.take()
            reader.total_kwh = None
            reader.problem = ""

    def take(self) -> float | None:
        """Return the energy of the GPUs that were read since the last call, in kWh; None if none was."""
        taken = [reader.take() for reader in self.readers]
        known = [kwh for kwh in taken if kwh is not None]
        return math.fsum(known) if known else None

    # -- what CodeCarbon asks of its devices

    def start(self) -> None:
        """Begin to measure."""
        for device in self.devices:
            device.start()

    def get_gpu_static_info(self) -> Answers:
        """Return the constant facts of each GPU."""
        return [device.get_static_details() for device in self.devices]

    get_gpu_details = get_gpu_static_info  # used for names only

    def get_delta(self, last_duration: Any) -> Answers:
        """Return energy and power of each GPU since the last call; zero if unknown."""
        from codecarbon.core.units import Energy, Power

        found = []
        for position, reader in enumerate(self.readers):
            kwh = reader.read(last_duration)
            power = reader.device.power if reader.is_read else Power(0)
            found.append({"gpu_index": position, "delta_energy_consumption": Energy(kwh), "power_usage": power})
        return found

    def sample_power(self, gpu_ids: object = None) -> None:
        """Sample the power of GPUs without a counter. CodeCarbon calls this each second, on a new thread."""
        with self._idle_devices() as devices:
            for device in devices:
                device.sample_power()

    def get_gpu_utilization_list(self) -> Answers:
        """Return the load of each GPU for CodeCarbon's own outputs. Called each second, on a new thread."""
        with self._idle_devices() as devices, suppress(Exception):  # not every board tells it
            return [device.get_gpu_utilization_lightweight() for device in devices]
        return []

    @contextmanager
    def _idle_devices(self) -> Iterator[list[Any]]:
        """Yield the devices; none while another thread uses them, so that a hanging driver blocks only one thread."""
        if not self._is_watching.acquire(blocking=False):
            yield []
            return
        try:
            yield self.devices
        finally:
            self._is_watching.release()


def gpu_readers(gpus: Sequence[Gpu], env: Environment, local_world_size: int) -> GpuReaders:
    """Return readers of these NVIDIA GPUs, and of the AMD GPUs that the ranks of this node use."""
    makers: list[tuple[Gpu, Callable[..., Any]]] = [(gpu, _nvidia_device) for gpu in gpus]
    makers += [(gpu, partial(_amd_device, handle)) for gpu, handle in _amd_gpus(env, local_world_size)]
    readers: list[GpuReader] = []
    silent: list[GpuEnergy] = []
    for gpu, make in makers:
        problem = gpu.problem
        try:
            if not problem:
                readers.append(GpuReader(gpu, partial(make, gpu, len(readers))))
        except Exception as error:  # of the driver or of CodeCarbon
            problem = str(error) or repr(error)
        if problem:
            silent.append(GpuEnergy(gpu, None, is_read=False, problem=problem))
    return GpuReaders(readers, silent)


def _nvidia_device(gpu: Gpu, position: int, check: _Check) -> Any:
    """Return CodeCarbon's device for a GPU, without asking again for its name, power limit and memory."""
    from codecarbon.core import gpu_nvidia

    class CheckedNvidiaDevice(gpu_nvidia.NvidiaGPUDevice):  # type: ignore[misc]  # CodeCarbon has no types
        def _init_static_details(self) -> None:
            self._gpu_name = gpu.name
            self._uuid = gpu.uuid
            self._power_limit = gpu.power_limit_w
            self._total_memory = gpu.memory_gb

        def _get_total_energy_consumption(self) -> float | None:
            return check(super()._get_total_energy_consumption())

    return CheckedNvidiaDevice(handle=gpu_nvidia.pynvml.nvmlDeviceGetHandleByIndex(gpu.index), gpu_index=position)


def _amd_gpus(env: Environment, local_world_size: int) -> list[tuple[Gpu, Any]]:
    """Return our AMD GPUs with their handles; none without AMD's library. Not tried on an AMD GPU."""
    from codecarbon.core import gpu_amd

    if not gpu_amd.AMDSMI_AVAILABLE:
        return []
    amdsmi = gpu_amd.amdsmi
    try:
        amdsmi.amdsmi_init()
        handles = amdsmi.amdsmi_get_processor_handles()
        uuids = [str(amdsmi.amdsmi_get_gpu_device_uuid(handle)) for handle in handles]
    except amdsmi.AmdSmiException:
        return []
    gpus = [Gpu(index, uuid, "AMD GPU", None, None) for index, uuid in enumerate(uuids)]
    return [(gpu, handles[gpu.index]) for gpu in visible_amd_gpus(gpus, env, local_world_size)]


def _amd_device(handle: Any, gpu: Gpu, _position: int, check: _Check) -> Any:
    """Return CodeCarbon's device for a GPU, by its number, which tells the chips of a board apart."""
    from codecarbon.core import gpu_amd

    class CheckedAmdDevice(gpu_amd.AMDGPUDevice):  # type: ignore[misc]
        def _get_total_energy_consumption(self) -> float | None:
            return check(super()._get_total_energy_consumption())

    return CheckedAmdDevice(handle=handle, gpu_index=gpu.index)
