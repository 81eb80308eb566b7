"""What several tests of the log directory start from: one run, written as the tracker writes it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from fakes import FakeClock
from hypothesis import HealthCheck, settings

from greenlove_tracker.logs.run_fields import factor_fields
from greenlove_tracker.logs.totals import Ending, summarise
from greenlove_tracker.logs.writer import RunWriter
from greenlove_tracker.tracker.shutdown import guard
from greenlove_tracker.vocabulary.pricing import RunFactors
from greenlove_tracker.vocabulary.records import (
    UNKNOWN_ENERGY,
    Counts,
    Energy,
    Factor,
    Field,
    Method,
    Row,
    RowKind,
    RunStatus,
)

INTENSITY = Factor("carbon_intensity", 400.0, "gCO2e/kWh", "a test", "2025", "location-based, lifecycle")


def epoch_row(
    number: int, kwh: float | None = 0.001, duration_s: float = 10.0, kind: RowKind = RowKind.EPOCH, *flags: str
) -> Row:
    energy = UNKNOWN_ENERGY if kwh is None else Energy(gpu_kwh=kwh, gpu_method=Method.COUNTER)
    counts = Counts(5, 5, 320, None)
    emissions = None if kwh is None else kwh * INTENSITY.value
    started = f"2026-11-01T12:00:{number % 60:02d}.000Z"
    return Row(kind, number, started, 0.0, UNKNOWN_ENERGY, duration_s, counts, energy, emissions, frozenset(flags))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden-update", action="store_true", help="write the golden files anew: see tests/golden")


def pytest_configure() -> None:
    """Let processes that tests start be interrupted: a shell ignores Ctrl-C for what it runs in the background.

    Screens are as wide as without a terminal, whatever the terminal of the tests is.
    """
    os.environ.pop("COLUMNS", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # No example fails because the machine is slow.
    settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any speed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all cases but the first of a test with ``slow_cases`` as slow."""
    seen = set()
    for item in items:
        if item.get_closest_marker("slow_cases"):
            name = item.nodeid.partition("[")[0]
            if name in seen:
                item.add_marker("slow")
            seen.add(name)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


RunMaker = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> RunMaker:
    """Writes ``logs/<run_id>`` with these rows, and a summary unless the run is to look interrupted."""

    def make(
        run_id: str = "20261101T120000-aaaaaaaa",
        rows: Sequence[Row] = (epoch_row(1), epoch_row(2)),
        fields: Mapping[str, str] | None = None,
        *,
        is_closed: bool = True,
        rank: int | str = 0,
        electricity_price: Factor | None = None,
        ended_at: str = "2026-11-01T12:10:00.000Z",
    ) -> Path:
        run_dir = tmp_path / "logs" / run_id
        run_dir.mkdir(parents=True, exist_ok=True)
        known = {"schema_version": "1", "started_at": "2026-11-01T12:00:00.000Z", "gpu_count": "1", **(fields or {})}
        price = factor_fields(electricity_price) if electricity_price else []
        lines = [*(Field(n, v) for n, v in known.items()), *factor_fields(INTENSITY), *price]
        writer = RunWriter(run_dir, rank, lines, on_error=pytest.fail)
        for row in rows:
            writer.write_row(row)
        terms = RunFactors(
            run_id, known.get("project", ""), known["started_at"], None, INTENSITY, 1.0, electricity_price
        )
        ending = Ending("finished", 0, ended_at)
        summary = summarise(terms, {0: rows}, ending, gpu_count=int(known["gpu_count"])) if is_closed else None
        assert writer.close(summary)
        return run_dir

    return make


@pytest.fixture
def no_settings(tmp_path: Path, monkeypatch) -> None:
    """Runs a test without the settings of its machine, in an empty directory."""
    for name in list(os.environ):
        is_rank = name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")
        if is_rank or name.startswith(("GREENLOVE_", "SLURM_", "OMPI_", "PMI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def bare_environment(no_settings) -> Iterator[None]:
    """Does so, and closes the run that the test leaves open."""
    yield
    if guard.current is not None:
        guard.current.finish(RunStatus.SUPERSEDED)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Names a log directory that is not there yet."""
    return tmp_path / "logs"
