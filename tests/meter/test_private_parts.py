"""CodeCarbon's private parts that the meter goes by, in the version that is installed: each is there and does that."""

import os

import pytest

from greenlove_tracker.machine.devices import Gpu
from greenlove_tracker.meter import codecarbon as module
from greenlove_tracker.meter.codecarbon import CodeCarbonMeter
from greenlove_tracker.meter.gpus import GpuReader
from greenlove_tracker.vocabulary.records import Method


@pytest.fixture(scope="module")
def tracker():
    meter = CodeCarbonMeter(os.environ, carbon_intensity_gco2e_per_kwh=458.0, cpu_tdp_w=280.0)
    meter.start()
    yield meter._tracker
    meter.stop()


def part_named(tracker, name):
    return next(part for part in tracker._hardware if type(part).__name__ == name)


def test_hardware_holds_the_parts_by_their_classes(tracker, monkeypatch):
    from codecarbon.external import hardware, ram

    assert {"CPU", "RAM"} <= {type(part).__name__ for part in tracker._hardware}
    assert (hardware.GPU.__name__, hardware.CPU.__name__, ram.RAM.__name__) == ("GPU", "CPU", "RAM")
    monkeypatch.setattr(hardware, "ApplePowermetrics", lambda directory: None)
    chip = hardware.AppleSiliconChip("", "Apple M3", "GPU")
    assert module._method(chip) == ("gpu", Method.SAMPLED_POWER)


def test_a_cpu_has_a_mode_and_a_rated_power(tracker):
    cpu = part_named(tracker, "CPU")
    assert (cpu._mode, cpu._tdp) == ("cpu_load", 280.0) and module._method(cpu) == ("cpu", Method.TDP_MODEL)


def test_the_power_of_memory_is_kept_once_it_is_known(tracker, monkeypatch):
    ram = part_named(tracker, "RAM")
    kept_w = ram.total_power().W
    assert kept_w > 0
    monkeypatch.setattr(type(ram), "machine_memory_GB", property(lambda ram: 1 / 0))
    again_w = ram.total_power().W
    assert again_w == kept_w  # it is not asked for the size again
    monkeypatch.undo()
    monkeypatch.setattr(ram, "_force_ram_power", None)
    unkept_w = ram.total_power().W
    assert unkept_w == pytest.approx(kept_w)


@pytest.mark.parametrize(("millijoules", "method"), [(5000, Method.COUNTER), (None, Method.SAMPLED_POWER)])
def test_a_gpu_without_a_counter_says_so(millijoules, method):
    from codecarbon.core.gpu_device import GPUDevice

    class Device(GPUDevice):
        def _init_static_details(self):
            pass

        def _get_total_energy_consumption(self):
            return millijoules

    gpu = Gpu(0, "GPU-0", "H200", 140.0, 700.0)
    assert GpuReader(gpu, lambda check: Device(handle=None, gpu_index=0)).method is method


def test_slurms_job_is_looked_for_in_two_modules():
    import codecarbon.core.util as util
    import codecarbon.external.ram as ram

    assert util.SLURM_JOB_ID is ram.SLURM_JOB_ID is None  # as the meter has set them
    assert "SLURM_JOB_ID" in util.count_cpus.__code__.co_names
