"""Logs as carbontracker and CodeCarbon write them."""

from __future__ import annotations

FOUND = "The following components were found: "
HEAD = ["carbontracker version 2.4.7", "Only actual ones are multiplied by a PUE coefficient of 1.58 (Bizo, 2023)."]
END = ["Average carbon intensity during training was 445.00 gCO2eq/kWh. ", "Monitoring thread ended."]
COLUMNS = "timestamp,project_name,run_id,duration,emissions,cpu_energy,gpu_energy,ram_energy,energy_consumed"


def write_log(directory, found, epochs, end=END, name="7.1_2026-11-21T025543Z", head=HEAD):
    """A standard log; each epoch is a duration and lines on its power."""
    lines = [*head, f"{FOUND}{found}", "Monitoring thread started."]
    for number, (duration, *powers) in enumerate(epochs, 1):
        lines += [f"Epoch {number}:", f"Duration: {duration}", *(f"Average power usage (W) for {p}" for p in powers)]
    file = directory / f"{name}_carbontracker.log"
    file.write_text("".join(f"2026-11-21 02:55:4{i % 10} - {line}\n" for i, line in enumerate([*lines, *end])))
    return file


def write_rows(directory, *rows, columns=COLUMNS, name="emissions.csv"):
    file = directory / name
    file.write_text("".join(f"{line}\n" for line in (columns, *rows)))
    return file


def write_consumption(log, which, time, energy, grams):
    """Add a consumption to the output log beside a standard log."""
    with log.with_name(f"{log.stem}_output.log").open("a") as file:
        file.write(f"2026-11-21 02:55:49 - CarbonTracker: \n{which}:\n")
        file.write(f"\tTime:\t{time}\n\tEnergy:\t{energy} kWh\n\tCO2eq:\t{grams} g\n")
