from click.testing import CliRunner
from report_samples import epoch_row, write_run

from greenlove_tracker.cli import cli
from greenlove_tracker.vocabulary.records import Energy, Method

GPU = {"gpu_models": "8 × NVIDIA H100 80GB HBM3", "gpu_count": "8", "host": "node1"}


def invoke(*arguments: str):
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


def gpu_run(log_dir, run_id="20261121T034044-7f3a"):
    energy = Energy(gpu_kwh=0.02, gpu_method=Method.COUNTER)
    return write_run(log_dir, [epoch_row(1, 25.0, energy)], run_id, fields=GPU)


def test_a_run_is_calibrated_and_every_report_says_so(tmp_path) -> None:
    run = gpu_run(tmp_path)
    gpu_run(tmp_path, "20261122T034044-7f3b")
    done = invoke("calibrate", str(run.path), "--wall-kwh", "0.025", "--note", "PDU 7")
    assert (
        done.exit_code == 0 and "are now calibrated: energy ×1.25 (±10%), from 1 run with a wall meter" in done.output
    )
    assert "calibrated with a wall meter" in invoke("report", str(tmp_path), "--text").output
    for target in ("md", "html"):
        path = tmp_path / f"report.{target}"
        assert invoke("report", str(tmp_path / "20261122T034044-7f3b"), "-o", str(path)).exit_code == 0
        text = path.read_text().replace("\u00a0", " ")
        assert "calibrated: energy ×1.25" in text and "PDU 7" in text and "22.5 Wh" in text


def test_what_is_missing_is_named(tmp_path) -> None:
    assert "--wall-kwh" in invoke("calibrate", str(gpu_run(tmp_path).path)).output
    done = invoke("calibrate", str(tmp_path), "--wall-kwh", "1")
    assert done.exit_code == 1 and "is not one run" in done.output
