"""Explorations before a training, beside the original green-love and carbontracker: time spent, error, intervals.

    python benchmarks/compare_explorations.py --sitting 1 [--device cuda]    # about 12 minutes; then 2, then 3
    python benchmarks/compare_explorations.py --into benchmarks/tables/exploration.md    # again, from the records

Four training loops are sized so that a full run takes 25 s. In each sitting each is run plainly before and after the
tools have made their forecasts; loops and tools take turns in another order each time, and each run is a fresh process.
No training takes the same time twice: a forecast within [before, after] has no error, another one its distance from
the nearer end. Each loop is recorded when it is done; a sitting that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from exploration_task import Task
from exploration_tools import TOOLS, Answer, run_subject
from scoring import markdown, told

HERE = Path(__file__).parent
RECORD = HERE / "recorded" / "compare_explorations.jsonl"
BEGIN, END = "<!-- compare_explorations begins -->", "<!-- compare_explorations ends -->"
LOOPS = ("MLP", "CNN", "LSTM", "transformer")
PEERS = TOOLS[1:]
TIMEOUT_S = 240.0
MOST_OF_GREEN_LOVE = 1 / 3  # of its time, for our exploration
RESAMPLES = 10_000
HOW_TO_READ = (
    "Of each tool: its forecast in s (its 95% interval) · its error outside [before, after] · the time from its "
    "constructor to its forecast. carbontracker's time is the first epoch of the training itself; it gives no interval."
)


@dataclass(frozen=True)
class Pair:
    """One loop in one sitting: its times before and after, and the answer of each tool."""

    loop: str
    sitting: int
    device: str
    before_s: float
    after_s: float
    answers: Mapping[str, Answer]
    machine: str

    @classmethod
    def of(cls, record: Mapping[str, object]) -> Pair:
        """From a line of the record."""
        return cls(**{name: record[name] for name in cls.__dataclass_fields__})  # type: ignore[arg-type]

    @property
    def key(self) -> tuple[str, int, str]:
        return self.loop, self.sitting, self.device

    def error(self, tool: str) -> float | None:
        """Of its forecast; None where it made none."""
        point_s = self.answers[tool].get("point_s")
        return None if point_s is None else error_outside(point_s, self.before_s, self.after_s)

    def touches(self, tool: str) -> bool | None:
        """Whether its interval has a point in [before, after]; None where it gave none."""
        answer, ends_s = self.answers[tool], sorted((self.before_s, self.after_s))
        if "lower_s" not in answer:
            return None
        return answer["lower_s"] <= ends_s[1] and answer["upper_s"] >= ends_s[0]


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences of errors, ours less theirs, with its 95% interval."""

    mean: float
    lower: float
    upper: float

    @property
    def verdict(self) -> str:
        if self.lower > 0:
            return "worse"
        return "better" if self.upper <= 0 and self.lower < 0 else "no difference shown"


def error_outside(point: float, before: float, after: float) -> float:
    """Relative distance to the nearer end of [before, after], in whichever order; 0 inside."""
    low, high = sorted((before, after))
    return max((low - point) / low, (point - high) / high, 0.0)


def bootstrapped(differences: Sequence[float], seed: int = 0, resamples: int = RESAMPLES) -> Difference:
    """The mean, with the percentile interval of means over pairs drawn with replacement."""
    values = np.asarray(differences, dtype=float)
    drawn = np.random.default_rng(seed).integers(len(values), size=(resamples, len(values)))
    lower, upper = np.quantile(values[drawn].mean(axis=1), (0.025, 0.975))
    return Difference(float(values.mean()), float(lower), float(upper))


def turned(items: Sequence[str], by: int) -> list[str]:
    """Each in its turn the first."""
    return [*items[by % len(items) :], *items[: by % len(items)]]


def order_of(sitting: int, loop: str) -> list[str]:
    """The tools' order, another one in the next sitting, and for the next loop."""
    return turned(TOOLS, sitting - 1 + LOOPS.index(loop))


def compare(loop: str, sitting: int, device: str, threads: int, target_s: float) -> dict[str, object]:
    """Size a loop, run it, let each tool forecast it, and run it again: a line of the record."""
    began_utc_s = time.time()
    sizing = Task(loop, 1, device, threads, seed=sitting)
    sized = _needed(run_subject("size", sizing, TIMEOUT_S), "batch_s")
    batches = max(1, round(target_s / (sized["epochs"] * sized["batch_s"])))
    task, order = Task(loop, batches, device, threads, seed=sitting), order_of(sitting, loop)
    before_s = _needed(run_subject("truth", task, 20 * target_s), "truth_s")["truth_s"]
    answers = {tool: run_subject(tool, task, TIMEOUT_S) for tool in order}
    after_s = _needed(run_subject("truth", task, 20 * target_s), "truth_s")["truth_s"]
    return {
        "loop": loop,
        "sitting": sitting,
        "device": device,
        "before_s": before_s,
        "after_s": after_s,
        "answers": answers,
        "machine": machine(sized, threads),
        "order": order,
        "target_s": target_s,
        "plan": {"epochs": sized["epochs"], "batches": batches, "batch": sized["batch"]},
        "seed": sitting,
        "began_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began_utc_s)),
        "commit": commit(),
    }


def _needed(answer: Answer, name: str) -> Answer:
    if name not in answer:
        raise SystemExit(f"without its own run there is nothing to compare: {answer['problem']}")
    return answer


def machine(sized: Answer, threads: int) -> str:
    """What all ran on, without its name."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    gpu = f"{sized['gpu']} · " if sized["gpu"] else ""
    cpu = f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    return f"{gpu}{cpu}, torch on {threads} · torch {sized['torch']} · Python {platform.python_version()}"


def commit() -> str:
    """Of this checkout, ``+`` where it is changed; empty outside one."""
    said = subprocess.run(["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True, cwd=HERE)
    return said.stdout.strip()


def read(record: Path) -> list[Pair]:
    """What is recorded, loops in their order."""
    if not record.exists():
        return []
    pairs = [Pair.of(json.loads(line)) for line in record.read_text("utf-8").splitlines() if line.strip()]
    return sorted(pairs, key=lambda p: (p.device, LOOPS.index(p.loop), p.sitting))


def sit(sitting: int, loops: Sequence[str], device: str, threads: int, target_s: float, record: Path) -> None:
    """Compare on every loop that is not recorded yet; a pair is never run again for a better one."""
    known = {p.key for p in read(record)}
    record.parent.mkdir(parents=True, exist_ok=True)
    for loop in turned(loops, sitting - 1):
        if (loop, sitting, device) in known:
            print(f"{loop}, sitting {sitting}, {device}: already in {record}", flush=True)
            continue
        line = compare(loop, sitting, device, threads, target_s)
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        pair = Pair.of(line)
        said = " · ".join(f"{tool} {cell(pair, tool)}" for tool in TOOLS)
        print(f"{loop}, sitting {sitting}: {pair.before_s:.1f} / {pair.after_s:.1f} s · {said}", flush=True)


def cell(pair: Pair, tool: str) -> str:
    """A tool's forecast, error and time."""
    answer, error = pair.answers[tool], pair.error(tool)
    if error is None:
        return answer["problem"]
    interval = f" ({answer['lower_s']:.1f}–{answer['upper_s']:.1f})" if "lower_s" in answer else ""
    return f"{answer['point_s']:.1f}{interval} · {error:.1%} · {answer['spent_s']:.1f} s"


def detail(pairs: Iterable[Pair]) -> str:
    """A row of each pair."""
    rows = [
        [p.loop, str(p.sitting), f"{p.before_s:.1f} / {p.after_s:.1f}", *(cell(p, tool) for tool in TOOLS)]
        for p in pairs
    ]
    return markdown(["loop", "sitting", "full run before / after (s)", *TOOLS], rows)


def summary(pairs: Sequence[Pair]) -> str:
    """A row of each tool."""
    rows = []
    for tool in TOOLS:
        errors = [e for p in pairs if (e := p.error(tool)) is not None]
        touches = [t for p in pairs if (t := p.touches(tool)) is not None]
        spent_s = [p.answers[tool]["spent_s"] for p in pairs if "spent_s" in p.answers[tool]]
        figures = (np.median, np.mean, np.max)
        error = [f"{figure(errors):.1%}" if errors else "none" for figure in figures]
        time_s = [f"{np.median(spent_s):.1f} s", f"{max(spent_s):.1f} s"] if spent_s else ["none", "none"]
        hits = f"{sum(touches)} of {len(touches)}" if touches else "none given"
        rows.append([tool, f"{len(errors)} of {len(pairs)}", *error, hits, *time_s])
    heads = ["tool", "forecasts", "median error", "mean", "largest", "95% intervals that touch", "time", "longest"]
    return markdown(heads, rows)


def verdicts(pairs: Sequence[Pair]) -> list[str]:
    """What is asked of our exploration, and what came out."""
    return [_time_verdict(pairs), *(_error_verdict(pairs, peer) for peer in PEERS), _interval_verdict(pairs)]


def _time_verdict(pairs: Sequence[Pair]) -> str:
    both = [(p.answers["ours"], p.answers["green-love"]) for p in pairs]
    shares = [a["spent_s"] / b["spent_s"] for a, b in both if "spent_s" in a and "spent_s" in b]
    if not shares:
        return "time: nothing to compare"
    within = sum(share <= MOST_OF_GREEN_LOVE for share in shares)
    met = "met" if within == len(pairs) else "not met"
    return (
        f"time: our exploration took {np.median(shares):.3f} of green-love's (median; at most {max(shares):.3f}); "
        f"at most 1/3 is asked, and {met}: in {within} of {len(pairs)} pairs"
    )


def _error_verdict(pairs: Sequence[Pair], peer: str) -> str:
    both = [(p.error("ours"), p.error(peer)) for p in pairs]
    differences = [a - b for a, b in both if a is not None and b is not None]
    if not differences:
        return f"error beside {peer}'s: nothing to compare"
    d, n_silent = bootstrapped(differences), sum(a is None and b is not None for a, b in both)
    verdict = f"worse: ours made no forecast in {n_silent}" if n_silent else d.verdict
    return (
        f"error beside {peer}'s: ours less theirs is {d.mean * 100:+.1f} points of per cent on average, 95% interval "
        f"{d.lower * 100:+.1f} to {d.upper * 100:+.1f} (paired bootstrap over {len(differences)} of {len(pairs)} "
        f"pairs): {verdict}"
    )


def _interval_verdict(pairs: Sequence[Pair]) -> str:
    missed = [p for p in pairs if p.touches("green-love") is False]
    ours, theirs = ([p for p in pairs if p.touches(tool)] for tool in ("ours", "green-love"))
    return (
        f"95% intervals: ours touch [before, after] in {len(ours)} of {len(pairs)} pairs, green-love's in "
        f"{len(theirs)}; of the {len(missed)} that theirs miss, ours touch {sum(p in ours for p in missed)}"
    )


def report(pairs: Sequence[Pair]) -> str:
    """All as Markdown, each device for itself."""
    parts = []
    for device in sorted({p.device for p in pairs}):
        here = [p for p in pairs if p.device == device]
        runs_s = [s for p in here for s in (p.before_s, p.after_s)]
        apart = [abs(p.after_s / p.before_s - 1) for p in here]
        parts += [
            f"### {device}: {'; '.join(sorted({p.machine for p in here}))}",
            f"{len(here)} pairs of full runs of {min(runs_s):.1f} to {max(runs_s):.1f} s; the two of a pair differ by "
            f"{np.median(apart):.1%} (median), at most {max(apart):.1%}. {HOW_TO_READ}",
            detail(here),
            summary(here),
            "\n".join(f"- {line}" for line in verdicts(here)),
        ]
    return "\n\n".join(parts) or "nothing is recorded yet"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sitting", type=int, help="run it; without, only the tables are made")
    parser.add_argument("--loops", nargs="+", choices=LOOPS, default=LOOPS)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default cuda where there is one")
    parser.add_argument("--threads", type=int, default=1, help="of torch; one leaves a core to what else runs")
    parser.add_argument("--seconds", type=float, default=25.0, help="that a full run is to take")
    parser.add_argument("--record", type=Path, default=RECORD, help="JSON lines, added to")
    parser.add_argument("--into", type=Path, help="a page whose lines between the two marks are replaced")
    a = parser.parse_args()
    if a.sitting is not None:
        import torch

        device = a.device or ("cuda" if torch.cuda.is_available() else "cpu")
        sit(a.sitting, a.loops, device, a.threads, a.seconds, a.record)
    text = report(read(a.record))
    told(text, a.into, BEGIN, END)


if __name__ == "__main__":
    main()
