"""carbontracker's command line: ``python -m greenlove_tracker.compat.carbontracker.cli python script.py``."""

from __future__ import annotations

import ast
import os
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from greenlove_tracker.compat.carbontracker import parser
from greenlove_tracker.compat.carbontracker.arguments import hardware, key_warning
from greenlove_tracker.compat.carbontracker.report import generate_report_from_log
from greenlove_tracker.config import Settings, load_settings
from greenlove_tracker.errors import GreenloveError, UsageError


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--log_dir", default="./logs", show_default=True, help="where the run is written")
@click.option("--api_keys", help='keys of services, such as \'{"electricitymaps": "KEY"}\'; none is asked yet')
@click.option("--parse", "parsed", help="add up the logs of this directory instead")
@click.option("--report", "reported", help="write a PDF on this log instead")
@click.option("--output", default="carbon_report.pdf", show_default=True, help="the PDF")
@click.option("--sim-cpu", help="name of a simulated CPU")
@click.option("--sim-cpu-tdp", type=float, help="its rated power, W")
@click.option("--sim-cpu-util", type=float, help="its load, 0 to 1; default 0.5")
@click.option("--sim-gpu", help="name of a simulated GPU")
@click.option("--sim-gpu-watts", type=float, help="its power, W")
@click.option("--sim-gpu-util", type=float, help="its load, 0 to 1; default 0.5")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def main(
    log_dir: str,
    api_keys: str | None,
    parsed: str | None,
    reported: str | None,
    output: str,
    command: tuple[str, ...],
    **simulated: Any,
) -> None:
    """Run any command and measure it; options after the command are its own."""
    try:
        if parsed:
            parser.print_aggregate(parsed)
        elif reported:
            generate_report_from_log(reported, output)
            click.echo(f"wrote {output}", err=True)
        elif command:
            _warn_of_keys(api_keys)
            sys.exit(_run(command, _settings(log_dir, **simulated)))
        else:
            raise UsageError("nothing to run: give a command, --parse DIRECTORY or --report LOG")
    except GreenloveError as error:
        raise click.ClickException(str(error)) from error


def _settings(
    log_dir: str,
    sim_cpu: str | None,
    sim_cpu_tdp: float | None,
    sim_cpu_util: float | None,
    sim_gpu: str | None,
    sim_gpu_watts: float | None,
    sim_gpu_util: float | None,
) -> Settings:
    asked = hardware("all", sim_cpu, sim_cpu_tdp, sim_cpu_util, sim_gpu, sim_gpu_watts, sim_gpu_util)
    simulated: dict[str, float] = {}
    if asked.cpu is not None:
        simulated |= {"sim_cpu_tdp_w": asked.cpu_w, "sim_cpu_util": 1.0}
    if asked.gpu is not None:
        simulated |= {"sim_gpu_w": asked.gpu_w, "sim_gpu_util": 1.0}
    return load_settings({"log_dir": log_dir, **simulated})


def _run(command: Sequence[str], settings: Settings) -> int | str | None:
    """Run it, and return its exit code."""
    from greenlove_tracker import runner

    outcome = runner.run_command(_as_command(command), settings)
    if settings.verbose > 0:
        code = outcome.exit_code
        outcome.session.show_final_screen(exit_code=code if isinstance(code, int) else None)
    return outcome.exit_code


def _as_command(command: Sequence[str]) -> list[str]:
    """Return the command; a Python file that is no program by itself is run with this Python."""
    first = command[0]
    is_script = first.endswith(".py") and Path(first).is_file()
    if is_script and not (os.access(first, os.X_OK) and shutil.which(first)):
        return [sys.executable, *command]
    return list(command)


def _warn_of_keys(text: str | None) -> None:
    if not text:
        return
    try:
        keys = ast.literal_eval(text)  # reads constants only, and runs nothing
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise UsageError('--api_keys must be such as \'{"electricitymaps": "KEY"}\'') from error
    if not isinstance(keys, dict):
        raise UsageError('--api_keys must be such as \'{"electricitymaps": "KEY"}\'')
    warnings.warn(key_warning(keys), UserWarning, stacklevel=2)


if __name__ == "__main__":
    main()
