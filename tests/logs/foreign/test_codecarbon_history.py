"""CodeCarbon's files as people have them: of every version, backed up, renamed, saved by Excel."""

from __future__ import annotations

import pytest

from greenlove_tracker import aggregate, read_logs

COLUMNS_1 = [
    "timestamp",
    "experiment_id",
    "project_name",
    "duration",
    "emissions",
    "energy_consumed",
    "country_name",
    "country_iso_code",
    "region",
    "on_cloud",
    "cloud_provider",
    "cloud_region",
]
COLUMNS_2_0 = [
    "timestamp",
    "project_name",
    "run_id",
    "duration",
    "emissions",
    "emissions_rate",
    "cpu_power",
    "gpu_power",
    "ram_power",
    "cpu_energy",
    "gpu_energy",
    "ram_energy",
    "energy_consumed",
    "country_name",
    "country_iso_code",
    "region",
    "cloud_provider",
    "cloud_region",
    "os",
    "python_version",
    "cpu_count",
    "cpu_model",
    "gpu_count",
    "gpu_model",
    "longitude",
    "latitude",
    "ram_total_size",
    "tracking_mode",
    "on_cloud",
]


def with_column(columns, name, before):
    place = columns.index(before)
    return [*columns[:place], name, *columns[place:]]


COLUMNS_2_2 = with_column(COLUMNS_2_0, "codecarbon_version", "cpu_count")
COLUMNS_2_2_7 = [*COLUMNS_2_2, "pue"]
COLUMNS_2_7 = with_column(COLUMNS_2_2_7, "experiment_id", "duration")
COLUMNS_3_0_8 = [*with_column(COLUMNS_2_7, "water_consumed", "country_name"), "wue"]
COLUMNS_3_2_3 = COLUMNS_3_0_8
for name in ("cpu_utilization_percent", "gpu_utilization_percent", "ram_utilization_percent", "ram_used_gb"):
    COLUMNS_3_2_3 = with_column(COLUMNS_3_2_3, name, "on_cloud")
SETS = {
    "1.0": COLUMNS_1,
    "1.x without an id": [name for name in COLUMNS_1 if name != "experiment_id"],
    "2.0": COLUMNS_2_0,
    "2.2": COLUMNS_2_2,
    "2.2.7": COLUMNS_2_2_7,
    "2.7": COLUMNS_2_7,
    "3.0.8": COLUMNS_3_0_8,
    "3.2.3": COLUMNS_3_2_3,
}
VALUES = {
    "timestamp": "2025-03-01T10:00:00",
    "project_name": "bert",
    "run_id": "r1",
    "experiment_id": "e1",
    "duration": "3600.123456789",
    "emissions": "0.00123456789012345",
    "cpu_energy": "0.001",
    "gpu_energy": "0.002",
    "ram_energy": "0.0005",
    "energy_consumed": "0.0035",
    "country_name": "France",
    "country_iso_code": "FRA",
    "region": "île-de-france",
    "os": "Linux-6.1",
    "python_version": "3.11.9",
    "codecarbon_version": "3.2.3",
    "cpu_count": "16",
    "cpu_model": "Intel(R) Xeon(R)",
    "gpu_count": "1",
    "gpu_model": "1 x NVIDIA A40",
    "longitude": "2.35",
    "latitude": "48.85",
    "ram_total_size": "187.4",
    "tracking_mode": "machine",
    "on_cloud": "N",
    "pue": "1.0",
    "wue": "0.0",
}


def line(columns, delimiter=",", skip=(), **more):
    values = {**VALUES, **more}
    return delimiter.join(values.get(name, "") for name in columns if name not in skip)


def write(file, *lines, end="\n", encoding="utf-8"):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes("".join(f"{text}{end}" for text in lines).encode(encoding))


def figures(run):
    summary = run.summary
    return summary.energy_kwh, run.emissions_kgco2e, summary.duration_s, run.text("country"), run.text("location")


AS_IN_THE_FILE = (0.0035, 0.00123456789012345, 3600.123456789, "FRA", "île-de-france")


def problems(logs_dir):
    logs = read_logs(logs_dir)
    list(logs.readable())
    return [f"{p.path.name}: {p.message}" for p in logs.problems]


@pytest.mark.parametrize("version", SETS)
def test_every_column_set_since_1_0_is_read_to_the_last_digit(tmp_path, version):
    columns = SETS[version]
    write(tmp_path / "emissions.csv", ",".join(columns), line(columns))
    (run,) = read_logs(tmp_path).readable()
    assert figures(run) == AS_IN_THE_FILE and problems(tmp_path) == []
    assert run.summary.energy.gpu_kwh == (None if version.startswith("1") else 0.002)
    assert aggregate(tmp_path).total.energy_kwh == 0.0035


def test_an_energy_of_all_components_is_one_whole_and_has_no_range(tmp_path):
    write(tmp_path / "emissions.csv", ",".join(COLUMNS_1), line(COLUMNS_1, timestamp="2025-03-01T00:30:00"))
    added_up = aggregate(tmp_path)
    assert [total.energy_kwh for total in added_up.by("day").values()] == [0.0035]
    assert aggregate(tmp_path, since="2025-03-01").total.energy_kwh == 0.0035  # it ended there
    assert added_up.total.n_unknown_error == 1


@pytest.mark.parametrize(
    "save",
    [
        pytest.param({"encoding": "utf-8-sig", "end": "\r\n"}, id="Excel's UTF-8"),
        pytest.param({"encoding": "utf-16"}, id="UTF-16"),
        pytest.param({"delimiter": ";", "comma": ",", "end": "\r\n"}, id="a German Excel's"),
        pytest.param({"delimiter": "\t", "encoding": "utf-16"}, id="Excel's Unicode text"),
    ],
)
def test_files_as_excel_saves_them(tmp_path, save):
    comma = save.pop("comma", ".")
    delimiter = save.pop("delimiter", ",")
    numbers = {n: v.replace(".", comma) for n, v in VALUES.items() if n.endswith(("energy", "consumed", "emissions"))}
    numbers["duration"] = VALUES["duration"].replace(".", comma)
    row = line(COLUMNS_3_2_3, delimiter, **numbers)
    write(tmp_path / "emissions.csv", delimiter.join(COLUMNS_3_2_3), row, delimiter * 37, "", **save)
    (run,) = read_logs(tmp_path).readable()
    assert figures(run) == AS_IN_THE_FILE and problems(tmp_path) == []


def test_windows_1252_is_read_and_said(tmp_path):
    write(tmp_path / "emissions.csv", ",".join(COLUMNS_2_7), line(COLUMNS_2_7), encoding="cp1252")
    (run,) = read_logs(tmp_path).readable()
    assert figures(run) == AS_IN_THE_FILE
    assert problems(tmp_path) == ["emissions.csv: is not UTF-8: read as Windows-1252"]


def test_numbers_that_excel_rounded_are_read_as_they_are(tmp_path):
    rounded = {"cpu_energy": "1,23E-05", "gpu_energy": "2,35E-05", "ram_energy": "0", "energy_consumed": "3,57E-05"}
    more = {"timestamp": "01.03.2025 10:00", "duration": "3600", "emissions": "1,2E-05"}
    row = line(COLUMNS_2_7, ";", **rounded, **more)
    dates = line(COLUMNS_2_7, ";", run_id="r2", duration="01. Mai")
    write(tmp_path / "emissions.csv", ";".join(COLUMNS_2_7), row, dates)
    (run,) = read_logs(tmp_path).readable()
    assert figures(run)[:3] == (3.57e-05, 1.2e-05, 3600.0) and run.started_at == "2025-03-01T09:00:00.000"
    assert problems(tmp_path) == ["emissions.csv: 1 line left out: line 3: '01. Mai' is not an amount"]


def test_backups_of_every_number_and_renamed_files_are_read_once(tmp_path):
    names = ("emissions.csv", "emissions.csv.bak", "emissions.csv_0.bak", "emissions.csv_12.bak", "old/Thesis RUNS.CSV")
    for n, (name, columns) in enumerate(zip(names, list(SETS.values())[2:], strict=False)):
        write(tmp_path / name, ",".join(columns), line(columns, run_id=f"r{n}"), line(columns, run_id="in all"))
    write(tmp_path / "metrics.csv", "epoch,loss,emissions", "1,0.5,3")
    write(tmp_path / "old" / "metrics.csv", "epoch,loss", "1,0.5")
    assert len(list(read_logs(tmp_path).readable())) == 6 and problems(tmp_path) == []


def test_headers_with_blanks_in_another_order_and_twice(tmp_path):
    backwards = COLUMNS_2_0[::-1]
    write(
        tmp_path / "emissions.csv",
        " , ".join(COLUMNS_3_2_3),
        line(COLUMNS_3_2_3, "  ,"),
        ",".join(backwards),
        line(backwards, run_id="r2", project_name='"a, b"'),
    )
    runs = list(read_logs(tmp_path).readable())
    assert [figures(run) for run in runs] == [AS_IN_THE_FILE] * 2 and problems(tmp_path) == []
    assert {run.text("project") for run in runs} == {"bert", "a, b"}


def test_a_column_that_lost_its_name_is_told_and_one_that_excel_added_is_not(tmp_path):
    heading = f"{','.join(COLUMNS_2_7).replace('emissions_rate,', ',')},,"
    row = line(COLUMNS_2_7)
    write(tmp_path / "emissions.csv", heading, f"{row},,", row, f"{row},,a remark")
    (run,) = read_logs(tmp_path).readable()
    assert figures(run) == AS_IN_THE_FILE
    assert problems(tmp_path) == [
        "emissions.csv: columns that are not known, left out: one without a name",
        "emissions.csv: 1 line with cells behind the last column that has a name: those are left out: line 4",
    ]


def test_a_cell_that_became_two_is_not_taken_for_a_line_that_was_filled_up(tmp_path):
    columns = COLUMNS_1
    row = line(columns, cloud_provider="", cloud_region="", energy_consumed="8.4,531e-06")
    write(tmp_path / "emissions.csv", ",".join(columns), line(columns), row)
    (run,) = read_logs(tmp_path).readable()
    assert figures(run) == AS_IN_THE_FILE
    assert problems(tmp_path) == ["emissions.csv: 1 line left out: line 3: more cells than columns"]


def test_rows_without_a_run_id_are_runs_of_their_own_or_readings_of_one(tmp_path):
    first = [("10:44:29", "98.5", "0.3"), ("10:46:00", "23.4", "0.1"), ("10:46:00", "23.4", "0.2")]
    flushed = [("11:00:10", "10.2", "0.01"), ("11:00:20", "20.1", "0.02"), ("11:00:31", "30.9", "0.03")]
    columns = COLUMNS_2_2_7

    def row(time, duration, kwh):
        parts = {"cpu_energy": kwh, "gpu_energy": "0.0", "ram_energy": "", "energy_consumed": kwh}
        return line(columns, run_id="", timestamp=f"2024-05-31T{time}", duration=duration, **parts)

    rows = [row(*each) for each in (*first, *flushed)]
    write(tmp_path / "emissions.csv", ",".join(columns), *rows)
    ids = [run.run_id for run in read_logs(tmp_path).runs]
    write(tmp_path / "old" / "emissions.csv.bak", ",".join(columns), *rows[::-1])
    logs = read_logs(tmp_path)
    assert sorted(run.summary.energy_kwh for run in logs.readable()) == [0.03, 0.1, 0.2, 0.3]
    assert [run.run_id for run in logs.runs] == ids and logs.problems == []


@pytest.mark.parametrize("skip", [("gpu_count", "gpu_model"), ("region",), ("region", "longitude", "latitude")])
def test_rows_appended_without_the_cells_that_were_none(tmp_path, skip):
    columns = COLUMNS_3_2_3
    rows = [line(columns), line(columns, skip=skip, run_id="r2")]
    write(tmp_path / "emissions.csv", ",".join(columns), *rows)
    _, run = read_logs(tmp_path).readable()
    assert figures(run)[:4] == AS_IN_THE_FILE[:4]
    (problem,) = problems(tmp_path)
    assert "1 line without some of the cells from the region on" in problem and problem.endswith("line 3")


def test_what_cannot_be_read_is_named_once_a_file_wherever_it_lies(tmp_path):
    columns = [name for name in COLUMNS_2_7 if name != "duration"]
    write(tmp_path / "emissions.csv", ",".join(COLUMNS_2_7), line(COLUMNS_2_7))
    for n in range(12):
        write(tmp_path / f"b{n:02}" / "deep" / "run.csv.bak", ",".join(columns), *[line(columns)] * 30)
    write(tmp_path / "a" / "emissions_old.csv", "Model,CO2", "a,1")
    assert problems(tmp_path) == [
        "emissions_old.csv: is not a run: it has no header of CodeCarbon's",
        *["run.csv.bak: left out: no column duration"] * 12,
    ]


def test_a_last_line_without_an_end_is_read_and_said(tmp_path):
    write(tmp_path / "emissions.csv", ",".join(COLUMNS_2_7), line(COLUMNS_2_7))
    file = tmp_path / "emissions.csv"
    file.write_bytes(file.read_bytes().rstrip())
    assert len(list(read_logs(tmp_path).readable())) == 1
    assert problems(tmp_path) == ["emissions.csv: last line was cut off, and is read as it is"]


def test_no_more_of_a_run_is_held_than_its_last_reading(tmp_path):
    import tracemalloc

    rows = [
        line(COLUMNS_2_0, run_id=f"r{n % 3}", duration=f"{n}.5", cpu_energy=f"{n}", energy_consumed=f"{n}.0025")
        for n in range(20_000)
    ]
    write(tmp_path / "emissions.csv", ",".join(COLUMNS_2_0), *rows)
    tracemalloc.start()
    logs = read_logs(tmp_path)
    n_runs = len(logs.runs)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_runs == 3 and peak_bytes < 2_000_000  # the file has over 5 MB
