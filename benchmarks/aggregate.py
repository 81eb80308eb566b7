"""Adding up a directory of runs: ours, in one process and in several, and carbontracker's parser on the same epochs.

    python benchmarks/aggregate.py [--runs 10000] [--epochs 100] [--rounds 3] [--gpus 1] [--json FILE]

Writes the logs itself into a temporary directory: ours by our writer, a few runs that are then copied under other
names; carbontracker's in its own format, with the durations and powers of the same epochs. All is read from the page
cache, in interleaved rounds, and the best round counts. What is timed:

- ours: the rows of `aggregate(directory)` by project and month, as `greenlove report` has them; finished runs from
  their summaries;
- the same in one process: by default one a core reads, and their start is in the time;
- carbontracker: `parser.parse_all_logs`, which gives the epochs, and `parser.aggregate_consumption`, which gives only
  a sum, from the totals in its logs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from greenlove_tracker.logs.run_fields import factor_fields
from greenlove_tracker.logs.schema import RUN_FILE, SUMMARY_FILE, epochs_file
from greenlove_tracker.logs.totals import Ending, summarise
from greenlove_tracker.logs.writer import RunWriter, timestamp
from greenlove_tracker.vocabulary.pricing import RunFactors
from greenlove_tracker.vocabulary.records import UNKNOWN_ENERGY, Counts, Energy, Factor, Field, Method, Row, RowKind
from greenlove_tracker.vocabulary.units import kwh_from_w_s

ASKED = 8.0  # times carbontracker's parser
N_TEMPLATES = 24
BEGAN_S = 1.79e9
CPU_W, GPU_W = 60.0, 250.0
INTENSITY = Factor(
    "carbon_intensity", 445.0, "gCO2e/kWh", "a benchmark", "2025", "location-based, lifecycle", "ab" * 32
)
PRICE = Factor("electricity_price", 0.3, "USD/kWh", "a benchmark", "2025", "household", "cd" * 32)


def durations_s(template: int, n_epochs: int) -> list[float]:
    """To a hundredth, which is all that carbontracker writes."""
    return [round(30 + template + (7 * epoch + template) % 13 / 10, 2) for epoch in range(n_epochs)]


def write_template(run_dir: Path, template: int, n_epochs: int, n_gpus: int) -> None:
    """One run, by our writer."""
    began_s = BEGAN_S + template * 30 * 86400
    facts = {
        "schema_version": "1",
        "greenlove_version": "0.1.0",
        "run_id": run_dir.name,
        "project": f"p{template % 8}",
        "command": "train.py --lr 3e-4",
        "host": f"node{template}",
        "user": "ada",
        "account": f"lab{template % 3}",
        "started_at": timestamp(began_s),
        "python": "3.11.7",
        "os": "Linux 6.8 x86_64",
        "git_commit": "4f1c2d9e7b",
        "rank": "0",
        "world_size": "1",
        "epochs_planned": str(n_epochs),
        "pue": "1.2",
        "country": "DE",
        "meter": "codecarbon 3.3.2",
        "cpu_model": "AMD EPYC",
        "gpu_models": "A100" * bool(n_gpus),
        "cpu_threads": "64",
        "gpu_count": str(n_gpus),
        "ram_gb": "512",
        "ram_w": "40",
        "cpu_tdp_w": "225",
        "meter_ready_s": "1.2",
    }
    fields = [*(Field(n, v) for n, v in facts.items() if v), *factor_fields(INTENSITY), *factor_fields(PRICE)]
    rows = []
    for epoch, duration_s in enumerate(durations_s(template, n_epochs), 1):
        gpu_kwh = kwh_from_w_s(GPU_W, duration_s) if n_gpus else None
        gpu_method = Method.COUNTER if n_gpus else None
        energy = Energy(
            kwh_from_w_s(CPU_W, duration_s),
            gpu_kwh,
            kwh_from_w_s(40, duration_s),
            Method.COUNTER,
            gpu_method,
            "constant",
        )
        emissions_g = (energy.total_kwh or 0.0) * 1.2 * INTENSITY.value
        counts = Counts(391, 391, 50_000, None)
        started_at = timestamp(began_s + epoch * 40)
        rows.append(Row(RowKind.EPOCH, epoch, started_at, 0.0, UNKNOWN_ENERGY, duration_s, counts, energy, emissions_g))
    run_dir.mkdir()
    writer = RunWriter(run_dir, 0, fields, on_error=_raise)
    for row in rows:
        writer.write_row(row)
    terms = RunFactors(run_dir.name, facts["project"], facts["started_at"], n_epochs, INTENSITY, 1.2, PRICE)
    writer.close(summarise(terms, {0: rows}, Ending("finished", 0, timestamp(began_s + 4000)), gpu_count=n_gpus))


def _raise(error: OSError) -> None:
    raise error


def write_ours(directory: Path, n_runs: int, n_epochs: int, n_gpus: int) -> None:
    """Runs under names of their own, each a copy of one of the templates."""
    templates = directory.with_name("templates")
    templates.mkdir()
    files: list[dict[str, bytes]] = []
    for template in range(min(N_TEMPLATES, n_runs)):
        run_dir = templates / f"template-{template:04d}-xxxxxxxxxx"
        write_template(run_dir, template, n_epochs, n_gpus)
        files.append({n: (run_dir / n).read_bytes() for n in (RUN_FILE, SUMMARY_FILE, epochs_file(0))})
    directory.mkdir()
    for i in range(n_runs):
        name = f"20261101T{i:06d}-{i:010x}"
        run_dir = directory / name
        run_dir.mkdir()
        old = f"template-{i % len(files):04d}-xxxxxxxxxx".encode()
        for file, data in files[i % len(files)].items():
            (run_dir / file).write_bytes(data if file == epochs_file(0) else data.replace(old, name.encode()))


def write_carbontrackers(directory: Path, n_runs: int, n_epochs: int, n_gpus: int) -> None:
    """The standard and the output log of each run, as carbontracker 2.4.7 writes them."""
    directory.mkdir()
    texts = [_carbontracker_logs(t, n_epochs, n_gpus) for t in range(min(N_TEMPLATES, n_runs))]
    for i in range(n_runs):
        stem = f"{1000 + i}.ab12_2026-11-21T025543Z_carbontracker"
        standard, output = texts[i % len(texts)]
        (directory / f"{stem}.log").write_text(standard)
        (directory / f"{stem}_output.log").write_text(output)


def _carbontracker_logs(template: int, n_epochs: int, n_gpus: int) -> tuple[str, str]:
    stamp = "2026-11-21 02:55:43 - "
    found = ("GPU with device(s) A100. " if n_gpus else "") + "CPU with device(s) AMD EPYC."
    head = [
        "carbontracker version 2.4.7",
        "Only predicted and actual consumptions are multiplied by a PUE coefficient of 1.58 (Daniel Bizo, 2023, Uptime "
        "Institute Global Data Center Survey).",
        f"The following components were found: {found}",
        "Monitoring thread started.",
    ]
    epochs = []
    for epoch, duration_s in enumerate(durations_s(template, n_epochs), 1):
        epochs += [f"Epoch {epoch}:", f"Duration: 0:00:{duration_s:05.2f}"]
        epochs += [f"Average power usage (W) for gpu: [{GPU_W}]"] * bool(n_gpus)
        epochs.append(f"Average power usage (W) for cpu: {CPU_W}")
    tail = [
        "Carbon intensities (gCO2eq/kWh) fetched every 900 s at detected location: Unknown: [445.0]",
        "Average carbon intensity during training was 445.00 gCO2eq/kWh. ",
        "Monitoring thread ended.",
    ]
    standard = "".join(f"{stamp}{line}\n" for line in (*head, *epochs, *tail))
    total = f"\n{{}} consumption for {n_epochs} epoch(s):\n\tTime:\t1:02:03\n\tEnergy:\t0.812345678901 kWh\n"
    total += "\tCO2eq:\t361.493827 g\n\tThis is equivalent to:\n\t3.384768 km travelled by car\n"
    output = f"{stamp}CarbonTracker: The following components were found: {found}\n"
    output += "".join(f"{stamp}CarbonTracker: {total.format(what)}" for what in ("Predicted", "Actual"))
    return standard, f"{output}{stamp}CarbonTracker: Finished monitoring.\n"


OURS = "from greenlove_tracker.logs.aggregate import aggregate"
THEIRS = "from carbontracker import parser"
CONTESTANTS = {  # what is imported, and what is timed, in a process that does nothing else
    "greenlove_tracker": (OURS, "aggregate(sys.argv[1]).rows('project', 'month')"),
    "greenlove_tracker, in one process": (OURS, "aggregate(sys.argv[1], processes=1).rows('project', 'month')"),
    "carbontracker parse_all_logs": (THEIRS, "parser.parse_all_logs(sys.argv[2])"),
    "carbontracker aggregate_consumption": (THEIRS, "parser.aggregate_consumption(sys.argv[2])"),
}


def best_of(rounds: int, ours: Path, theirs: Path) -> dict[str, float]:
    """Seconds of each at its best of three in a process, without imports; in turn, so that noise is alike."""
    best = dict.fromkeys(CONTESTANTS, float("inf"))
    for _ in range(rounds):
        for name, (imports, action) in CONTESTANTS.items():
            timed = f"min(timeit.repeat(lambda: {action}, gc.enable, number=1, repeat=3))"
            code = f"import gc, sys, timeit\n{imports}\nprint('took', {timed})"
            command = [sys.executable, "-c", code, str(ours), str(theirs)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            best[name] = min(best[name], float(done.stdout.rpartition("took ")[2]))
    return best


def in_fresh_process(code: str, *arguments: str) -> tuple[float, float]:
    """Seconds, and the peak memory in MiB (of Linux; ``ru_maxrss`` would begin with our own)."""
    peak = "int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) / 1024"
    probe = f"import re, sys\n{code}\nprint({peak})"
    began = time.perf_counter()
    command = [sys.executable, "-c", probe, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return time.perf_counter() - began, float(done.stdout.split()[-1])


SUMMARY = (
    "from greenlove_tracker.cli import cli\n"
    "cli.main(['report', sys.argv[1], '--text', '--processes', '1'], standalone_mode=False)"
)
NOTHING = "from greenlove_tracker import aggregate, cli\naggregate(sys.argv[1]).rows('project')"
REPORT = "from greenlove_tracker import write_pdf\nwrite_pdf(sys.argv[1], sys.argv[2])"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--gpus", type=int, choices=[0, 1], default=1, help="a run; without, carbontracker has a line less an epoch"
    )
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        ours, theirs = Path(directory, "ours"), Path(directory, "theirs")
        Path(directory, "none").mkdir()
        write_ours(ours, arguments.runs, arguments.epochs, arguments.gpus)
        write_carbontrackers(theirs, arguments.runs, arguments.epochs, arguments.gpus)
        best = best_of(arguments.rounds, ours, theirs)
        whole = {
            "a directory without runs": in_fresh_process(NOTHING, str(Path(directory, "none"))),
            "greenlove report": in_fresh_process(SUMMARY, str(ours)),
            "greenlove report -o report.pdf": in_fresh_process(REPORT, str(ours), str(Path(directory, "report.pdf"))),
        }
        report(best, whole, arguments)


def report(best: dict[str, float], whole: dict[str, tuple[float, float]], arguments: argparse.Namespace) -> None:
    n_epochs = arguments.runs * arguments.epochs
    base_s = best["carbontracker parse_all_logs"]
    print(f"{arguments.runs:,} runs of {arguments.epochs} epochs, {arguments.gpus} GPUs, {os.cpu_count()} cores\n")
    print(f"{'':<40}{'time':>10}{'runs/s':>10}{'epochs/s':>12}{'× parser':>10}")
    for name, seconds in sorted(best.items(), key=lambda item: item[1]):
        rates = f"{arguments.runs / seconds:>10,.0f}{n_epochs / seconds:>12,.0f}"
        print(f"{name:<40}{seconds:>8.2f} s{rates}{base_s / seconds:>10.1f}")
    print(f"\n{'a whole process':<40}{'time':>10}{'memory':>12}")
    for name, (seconds, memory_mb) in whole.items():
        print(f"{name:<40}{seconds:>8.2f} s{memory_mb:>8.0f} MiB")
    times, alone = base_s / best["greenlove_tracker"], base_s / best["greenlove_tracker, in one process"]
    (_, nothing_mb), (_, rows_mb) = whole["a directory without runs"], whole["greenlove report"]
    print(f"\na run takes {(rows_mb - nothing_mb) * 1024 / arguments.runs:.1f} KiB of memory")
    print(f"\nwe add up {times:.1f} times as fast as carbontracker parses (at least {ASKED:.0f} is asked)")
    print(f"in one process {alone:.1f} times")
    if arguments.json:
        arguments.json.write_text(json.dumps({"best_s": best, "whole": whole, "times": times}, indent=2))
    sys.exit(0 if times >= ASKED else 1)


if __name__ == "__main__":
    main()
