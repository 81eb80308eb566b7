"""CodeCarbon in a process of its own, for a script beside which a file hides one of its libraries."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

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
_STOP_S = 3.0  # CodeCarbon is stopped, and its process ends, in a fraction of a second
_request_files: set[int] = set()  # what the processes of this one are asked through; they end once it is closed


def _leave_to_parent() -> None:
    """Let go of the parent's meters in a forked child, which would keep them alive when the parent is killed."""
    files = list(_request_files)
    _request_files.clear()
    for file in files:
        with contextlib.suppress(OSError):  # the program has closed it
            os.close(file)
            if (nothing := os.open(os.devnull, os.O_WRONLY)) != file:  # the number stays taken: its owner closes it
                os.dup2(nothing, file, inheritable=False)
                os.close(nothing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


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
        self._requests: TextIO | None = None
        self.longest_hole_s = 0.0

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
        reading, writing = os.pipe()
        _request_files.add(writing)  # before there is a process that a fork of the training's could keep alive
        self._requests = os.fdopen(writing, "w", encoding="utf-8")
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-c", _CHILD],
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # Ctrl-C on the terminal is the script's
            )
        except OSError as error:
            self._close_requests()
            raise MeterError(f"{files} hides a library, and a process of its own cannot start: {error}") from error
        finally:
            os.close(reading)
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
        answer = self._ask(_READ)
        self.longest_hole_s = answer["longest_hole_s"]
        return Energy(*answer["energy"])

    def reselect_gpus(self, env: Mapping[str, str]) -> MeterInfo | None:
        """Measure the GPUs that this environment names: the process has its own, and sees no change of the script's.

        Raises:
            MeterError: where the process has ended.
        """
        answer = self._ask(json.dumps(dict(env)))
        return self._info_in(answer) if answer else None

    def stop(self) -> None:
        """End the process, and wait until it has; its own outputs write their last line."""
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(OSError):  # it has ended already
            self._request("stop")
        self._close_requests()
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # a driver holds it
                child.wait(1.0)
        if child.stdout is not None:
            child.stdout.close()

    def _request(self, line: str) -> None:
        if self._requests is not None:
            self._requests.write(line + "\n")
            self._requests.flush()

    def _close_requests(self) -> None:
        requests, self._requests = self._requests, None
        if requests is not None:
            _request_files.discard(requests.fileno())
            with contextlib.suppress(OSError):  # what was not written is of no use any more
                requests.close()

    def _ask(self, line: str) -> Any:
        child = self._child
        if child is None or child.stdout is None:
            raise MeterError("the meter's process was not started")
        try:
            self._request(line)
            answer = json.loads(child.stdout.readline() or "null")
        except (OSError, ValueError) as error:
            raise MeterError(f"the meter's process does not answer: {error}") from error
        if answer is None:
            raise MeterError(f"the meter's process has ended ({child.wait(1.0)})")
        if "error" in answer:
            raise MeterError(answer["error"])
        return answer


def serve(env: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
    """Answer an ``IsolatedMeter``, until it says stop or is there no more; in the process that it started."""
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
        if line == "stop\n":
            break
        try:
            if line.strip() == _READ:
                e = meter.read()
                energy = [e.cpu_kwh, e.gpu_kwh, e.ram_kwh, e.cpu_method, e.gpu_method, e.ram_method]
                answer({"energy": energy, "longest_hole_s": meter.longest_hole_s})
            else:
                found = meter.reselect_gpus(json.loads(line))
                answer(_told(found) if found else {})
        except MeterError as error:
            answer({"error": str(error)})
    meter.stop()


def _told(info: MeterInfo) -> dict[str, Any]:
    return {"fields": [[f.name, f.value, f.unit] for f in info.fields], "gpu_count": info.gpu_count}
