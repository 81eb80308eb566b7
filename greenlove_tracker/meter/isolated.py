"""CodeCarbon in a process of its own, for a script beside which a file hides one of its libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from greenlove_tracker.errors import MeterError
from greenlove_tracker.meter.base import MeterInfo
from greenlove_tracker.records import Energy, Field
from greenlove_tracker.shadowing import script_directories

_CHILD = (
    "import json, sys\n"
    "given = json.loads(sys.stdin.readline())\n"
    "sys.path[:] = given['path']\n"
    "from greenlove_tracker.meter.isolated import serve\n"
    "serve(given['env'], given['arguments'])\n"
)


_READ = "read"  # what the process is asked; any other line is an environment, as JSON


class IsolatedMeter:
    """Measures this node with CodeCarbon in ``python -I``, which never looks beside the script.

    Args:
        hidden: the files that hide a library, by its name.
        env: the environment.
        arguments: of ``CodeCarbonMeter``.
    """

    starts_at_once = False
    resolution_s = 0.1

    def __init__(self, hidden: Mapping[str, str], env: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
        self._hidden, self._env, self._arguments = hidden, env, arguments
        self._child: subprocess.Popen[str] | None = None

    def start(self) -> MeterInfo:
        """Start the process, and CodeCarbon in it.

        Raises:
            MeterError: where it cannot start, or is given options that cannot be handed to another process.
        """
        files = ", ".join(self._hidden.values())
        scripts = script_directories()
        path = [entry for entry in map(os.path.abspath, filter(None, sys.path)) if entry not in scripts]
        path.append(str(Path(__file__).parents[2]))  # last: where it is the script's, the libraries are found before
        try:
            given = json.dumps({"path": path, "env": dict(self._env), "arguments": dict(self._arguments)})
        except TypeError as error:
            raise MeterError(f"{files} hides a library, and codecarbon_options cannot go to another process") from error
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-c", _CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # Ctrl-C on the terminal is the script's
            )
        except OSError as error:
            raise MeterError(f"{files} hides a library, and a process of its own cannot start: {error}") from error
        return self._info_in(self._ask(given))

    def _info_in(self, answer: Mapping[str, Any]) -> MeterInfo:
        fields = [Field(*field) for field in answer["fields"]]
        hiding = Field("meter_isolated_from", ", ".join(self._hidden.values()))
        return MeterInfo((*fields, hiding), answer["gpu_count"])

    def read(self) -> Energy:
        """Return the energy since the last read.

        Raises:
            MeterError: where it could not be read, or the process has ended.
        """
        return Energy(*self._ask(_READ)["energy"])

    def reselect_gpus(self, env: Mapping[str, str]) -> MeterInfo | None:
        """Measure the GPUs that this environment names: the process has its own, and sees no change of the script's.

        Raises:
            MeterError: where the process has ended.
        """
        answer = self._ask(json.dumps(dict(env)))
        return self._info_in(answer) if answer else None

    def stop(self) -> None:
        """End the process; its own outputs write their last line."""
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()

    def _ask(self, line: str) -> Any:
        child = self._child
        if child is None or child.stdin is None or child.stdout is None:
            raise MeterError("the meter's process was not started")
        try:
            child.stdin.write(line + "\n")
            child.stdin.flush()
            answer = json.loads(child.stdout.readline() or "null")
        except (OSError, ValueError) as error:
            raise MeterError(f"the meter's process does not answer: {error}") from error
        if answer is None:
            raise MeterError(f"the meter's process has ended ({child.wait(1.0)})")
        if "error" in answer:
            raise MeterError(answer["error"])
        return answer


def serve(env: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
    """Answer an ``IsolatedMeter`` on stdin and stdout, until it closes them; in the process that it started."""
    from greenlove_tracker.meter.codecarbon import CodeCarbonMeter

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what libraries print is no answer

    def answer(value: Mapping[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    meter = CodeCarbonMeter(env, **arguments)
    try:
        info = meter.start()
    except MeterError as error:
        answer({"error": str(error)})
        return
    answer(_told(info))
    for line in sys.stdin:
        try:
            if line.strip() == _READ:
                e = meter.read()
                answer({"energy": [e.cpu_kwh, e.gpu_kwh, e.ram_kwh, e.cpu_method, e.gpu_method, e.ram_method]})
            else:
                found = meter.reselect_gpus(json.loads(line))
                answer(_told(found) if found else {})
        except MeterError as error:
            answer({"error": str(error)})
    meter.stop()


def _told(info: MeterInfo) -> dict[str, Any]:
    return {"fields": [[f.name, f.value, f.unit] for f in info.fields], "gpu_count": info.gpu_count}
