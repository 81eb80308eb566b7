import pytest
from conftest import epoch_row
from hypothesis import given
from hypothesis import strategies as st

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.sacct import job_coverage, read_jobs
from greenlove_tracker.logs.selection import Period

HEADER = "JobID|User|ElapsedRaw|AllocTRES|State|Start|End"
NOON = "2026-11-01T12:00:00"
HOUR = f"3600|billing=8,cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=64G,node=1|COMPLETED|{NOON}|2026-11-01T13:00:00"


@pytest.fixture
def listed(tmp_path):
    def write(*lines, header=HEADER):
        path = tmp_path / "jobs.txt"
        path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
        return path

    return write


def test_a_job_of_sacct(listed):
    (job,) = read_jobs(listed(f"81|ada|{HOUR}", "", f"81.batch||{HOUR}", "82|bob|0||PENDING|Unknown|Unknown"))
    assert (job.job_id, job.user, job.state, job.gpu_count) == ("81", "ada", "COMPLETED", 2)
    assert job.gpu_hours(Period()) == 2.0
    assert job.gpu_hours(Period.parse("2026-11-01T12:45", None)) == pytest.approx(0.5)
    assert job.gpu_hours(Period.parse(None, "2026-11-01T12:00")) is None


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("billing=8,cpu=8,mem=64G", 0),
        ("", 0),
        ("gres/gpu=4,gres/gpu:h100=4", 4),
        ("gres/gpu:h100=4,gres/gpu:a100=2", 6),
        ("gres/gpumem=40G,gres/gpuutil=90", 0),
    ],
)
def test_gpus_of_a_job(listed, tres, gpus):
    (job,) = read_jobs(listed(f"81|ada|60|{tres}|COMPLETED|{NOON}|2026-11-01T12:01:00"))
    assert job.gpu_count == gpus


def test_a_job_that_goes_on_has_run_so_far(listed):
    (job,) = read_jobs(listed(f"81|ada|7200|gres/gpu=1|RUNNING|{NOON}|Unknown"))
    assert job.gpu_hours(Period()) == 2.0 and job.ended_s - job.started_s == 7200.0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("81|ada|60", "line 2: 3 cells, where the header has 7: write the file with TZ=UTC sacct"),
        (f"eighty|ada|{HOUR}", "line 2: JobID 'eighty' is not a job's number"),
        (f"81|ada|01:00:00|gres/gpu=1|COMPLETED|{NOON}|Unknown", "line 2: ElapsedRaw '01:00:00' is not a number"),
        (f"81|ada|60|gres/gpu=x|COMPLETED|{NOON}|Unknown", "line 2: AllocTRES has 'gres/gpu=x'"),
        ("81|ada|60|gres/gpu=1|COMPLETED|noon|Unknown", "line 2: Start 'noon' is not a time such as"),
        (f"81|ada|60|gres/gpu=1|COMPLETED|{NOON}|2026-10-01T12:00:00", "line 2: job 81 ends before it starts"),
        ("81|ada|60|gres/gpu=1|COMPLETED|Unknown|Unknown", "line 2: job 81 ran for 60 s, and has no Start"),
    ],
)
def test_a_malformed_line_is_named(listed, line, message):
    with pytest.raises(UsageError) as caught:
        read_jobs(listed(line))
    assert message in str(caught.value) and "jobs.txt" in str(caught.value)


def test_a_file_that_is_none_of_sacct_is_told(listed, tmp_path):
    with pytest.raises(UsageError, match=r"jobs.txt, line 1: no column State: write the file with .* without -n"):
        read_jobs(listed(header="JobID|User|ElapsedRaw|AllocTRES|Start|End"))
    with pytest.raises(UsageError, match=r"nowhere cannot be read: No such file"):
        read_jobs(tmp_path / "nowhere")
    (tmp_path / "empty").write_text("")
    with pytest.raises(UsageError, match="line 1: no column JobID"):
        read_jobs(tmp_path / "empty")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        read_jobs(tmp_path / "binary")


cells = st.text("0123456789_.|+[]abc:=,-T \n", max_size=30)


@given(lines=st.lists(cells, max_size=4))
def test_whatever_stands_in_a_file_is_read_or_refused_by_its_line(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("sacct") / "jobs.txt"
    path.write_text("\n".join((HEADER, *lines)), encoding="utf-8")
    try:
        read_jobs(path)
    except UsageError as error:
        assert "jobs.txt, line " in str(error)


@pytest.fixture
def logs_dir(make_run):
    """Runs of job 81, of a task of array 90 and of no job, half an hour of a GPU each."""
    rows = [epoch_row(1, 0.1, 1800.0)]
    make_run("a", rows, {"job_id": "81", "user": "ada"})
    make_run("b", rows, {"job_id": "94", "array_job_id": "90", "array_task_id": "3", "user": "bob"})
    return make_run("c", rows).parent


def test_jobs_without_a_log_and_their_share_of_the_gpu_hours(logs_dir, listed):
    hours = [f"{job}|{user}|{HOUR}" for job, user in (("81", "ada"), ("90_3", "bob"), ("90_4", "bob"), ("99", "eve"))]
    short = f"98|eve|60|gres/gpu=1|COMPLETED|{NOON}|2026-11-01T12:01:00"
    found = job_coverage(read_jobs(listed(*hours, short)), aggregate(logs_dir))
    assert [job.job_id for job, _ in found.untracked] == ["90_4", "99", "98"]
    assert (found.n_jobs, found.gpu_hours) == (5, pytest.approx(8 + 1 / 60))
    assert found.untracked_gpu_hours == pytest.approx(4 + 1 / 60)
    assert found.tracked_share == pytest.approx(4 / (8 + 1 / 60))
    assert (found.logged_gpu_hours, found.n_unlisted) == (1.0, 0)


def test_the_number_in_the_environment_of_an_array_is_found_with_jobidraw(make_run, listed):
    logs_dir = make_run("old", fields={"job_id": "94", "array_task_id": "3"}).parent
    jobs = read_jobs(listed(f"90_3|94|bob|{HOUR}", header=HEADER.replace("JobID", "JobID|JobIDRaw")))
    assert job_coverage(jobs, aggregate(logs_dir)).untracked == ()


def test_only_what_was_chosen_counts(logs_dir, listed):
    jobs = read_jobs(
        listed(f"81|ada|{HOUR}", f"90_4|bob|{HOUR}", "70|ada|60|gres/gpu=1|FAILED|2026-10-01T12:00:00|Unknown")
    )
    of_ada = job_coverage(jobs, aggregate(logs_dir, user="ada", since="2026-11"))
    assert (of_ada.n_jobs, of_ada.untracked, of_ada.tracked_share) == (1, (), 1.0)
    of_job = job_coverage(jobs, aggregate(logs_dir, job="90_4"))
    assert [job.job_id for job, _ in of_job.untracked] == ["90_4"]
    assert job_coverage(jobs[:1], aggregate(logs_dir)).n_unlisted == 1
    with pytest.raises(UsageError, match="project is not in what sacct prints: leave it or sacct out"):
        job_coverage(jobs, aggregate(logs_dir, project="x"))


def test_the_share_is_unknown_where_no_job_had_a_gpu(logs_dir, listed):
    jobs = read_jobs(listed(f"81|ada|60|cpu=8|COMPLETED|{NOON}|2026-11-01T12:01:00"))
    assert job_coverage(jobs, aggregate(logs_dir)).tracked_share is None
