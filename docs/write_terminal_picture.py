"""Write ``docs/images/terminal.svg``, the moving picture of README: a run's status lines, its end, and where to train.

``PYTHONPATH=tests python docs/write_terminal_picture.py``. The training is that of ``write_example_run.py``, 20 hours
on a simulated RTX 4090, replayed on its own clock through ``Tracker``: what is shown is what was printed.
"""

import contextlib
import io
import os
import random
import tempfile
import time
from pathlib import Path

from click.testing import CliRunner
from fakes import tick
from write_example_run import EPOCHS, STEPS, TOKENS, Clock

from greenlove_tracker import Tracker
from greenlove_tracker.cli import cli
from greenlove_tracker.meter import SimulatedMeter

TARGET = Path(__file__).parent / "images" / "terminal.svg"
SHOWN_EPOCHS = (1, 2, 3, 10, 19, 20)
COLUMNS, ROW_PX, LEFT_PX, CHARACTER_PX = 100, 18, 14, 7.85  # of the terminal; status lines are longer
TYPING_S, EPOCH_S, SCREEN_S, END_S = 1.2, 0.9, 2.0, 6.0
STYLE = (
    "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d7dde5;white-space:pre}"
    ".command{fill:#7ee0c3}.dim{fill:#8b96a5}"
    "@media(prefers-reduced-motion:reduce){text{animation:none!important}}"
)


def replayed(logs: str) -> str:
    """Replay the training, and return what it printed."""
    clock, times, said = Clock(), random.Random(0), io.StringIO()  # noqa: S311
    meter = SimulatedMeter(clock, cpu_tdp_w=105, cpu_util=0.2, gpu_w=450, gpu_util=0.82, ram_w=12)
    settings = {"workload": "language", "precision": "bf16", "country": "DE", "meter": meter, "clock": clock}
    with contextlib.redirect_stderr(said), Tracker(EPOCHS, log_dir=logs, project="llm", **settings) as tracker:
        for _ in range(EPOCHS):
            tracker.epoch_start()
            clock.now_s += times.gauss(3540.0, 15.0)
            tracker.step(n_tokens=STEPS * TOKENS, n_batches=STEPS, n_steps=STEPS)
            tracker.epoch_end()
            clock.now_s += 60.0
            tick()
    return said.getvalue()


def rows(logs: str) -> list[tuple[float, str, str]]:
    """Return the lines of the picture: when each appears, its class and its text."""
    printed = replayed(logs).replace(logs, "greenlove_logs").splitlines()
    shown = [line for n in SHOWN_EPOCHS for line in printed if f"epoch {n}/{EPOCHS} " in line]
    screen = printed[next(i for i, line in enumerate(printed) if "finished" in line) :]
    project = CliRunner().invoke(cli, ["project", logs, "--gpu", "RTX 4090"]).stdout.splitlines()
    found = [(0.0, "command", "$ greenlove run --country DE train.py")]
    at_s = TYPING_S
    for line in shown:
        found.append((at_s, "", line))
        at_s += EPOCH_S
    found += [(at_s, "" if "!" not in line and "~ " not in line else "dim", line) for line in screen]
    at_s += SCREEN_S
    found.append((at_s, "", ""))
    found.append((at_s, "command", '$ greenlove project --gpu "RTX 4090"'))
    verdict = project[: next(i for i, line in enumerate(project) if not line.strip() and i > 4)]
    return [*found, *((at_s + TYPING_S, "", line) for line in verdict)]


def svg(lines: list[tuple[float, str, str]]) -> str:
    """Return the picture: it shows all lines first; then each fades in at its time, again and again."""
    whole_s = lines[-1][0] + END_S
    height_px = ROW_PX * (len(lines) + 1)
    style, texts = STYLE, []
    for time_s in dict.fromkeys(at_s for at_s, _, _ in lines):
        begin = 100 * time_s / whole_s
        frames = "0%,100%{opacity:1}" if time_s == 0 else f"0%,{begin:.2f}%{{opacity:0}}{begin + 0.5:.2f}%{{opacity:1}}"
        name = f"t{round(10 * time_s)}"
        animation = f"{name} {whole_s:.1f}s linear {END_S - whole_s:.1f}s infinite"
        style += f"@keyframes {name}{{{frames}}}.{name}{{animation:{animation}}}"
    for number, (at_s, kind, line) in enumerate(lines):
        text = line.replace("&", "&amp;").replace("<", "&lt;")
        place = f'x="{LEFT_PX}" y="{ROW_PX * (number + 1)}" xml:space="preserve"'
        texts.append(f'<text class="{kind} t{round(10 * at_s)}" {place}>{text}</text>')
    width_px = round(2 * LEFT_PX + CHARACTER_PX * max(len(line) for _, _, line in lines))
    size = f'width="{width_px}" height="{height_px}" viewBox="0 0 {width_px} {height_px}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    title = "<title>A run's status lines, its end, and where to train</title>"
    rectangle = '<rect width="100%" height="100%" rx="8" fill="#12161c"/>'
    return "\n".join([head, title, f"<style>{style}</style>", rectangle, *texts, "</svg>", ""])


def main() -> None:
    """Write the picture."""
    os.environ.update(TZ="UTC", COLUMNS=str(COLUMNS))
    time.tzset()
    with tempfile.TemporaryDirectory() as logs:
        TARGET.write_text(svg(rows(logs)), encoding="utf-8")


if __name__ == "__main__":
    main()
