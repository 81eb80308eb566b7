from __future__ import annotations

import json
import os
import shutil
import time
from hashlib import sha256

import pytest
from click.testing import CliRunner
from conftest import epoch_row

from greenlove_tracker.cli import cli
from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs import seal as seal_module
from greenlove_tracker.logs.aggregate import aggregate
from greenlove_tracker.logs.directory import read_logs
from greenlove_tracker.logs.file_hashes import hash_file
from greenlove_tracker.logs.schema import SEAL_FILE
from greenlove_tracker.logs.seal import seal, verify_seal
from greenlove_tracker.logs.seal_manifest import Sealing

A, B, C = "20261101T120000-aaaaaaaaaa", "20261102T120000-bbbbbbbbbb", "20261103T120000-cccccccccc"


@pytest.fixture
def sealed(make_run):
    """Three runs, of which the first two were sealed together and the third by itself."""
    for n, name in enumerate((A, B)):
        log_dir = make_run(name, rows=[epoch_row(k) for k in range(1, 5 + n)], fields={"project": name[-3:]}).parent
    seal(log_dir)
    make_run(C, rows=[epoch_row(1)], fields={"project": "c"})
    seal(log_dir)
    assert verify_seal(log_dir).findings == []
    return log_dir


def edit(file, change):
    file.write_bytes(change(file.read_bytes()))


def lines_of(file):
    return file.read_bytes().splitlines(keepends=True)


def with_lines(file, change):
    file.write_bytes(b"".join(change(lines_of(file))))


def swap(a, b):
    a_data, b_data = a.read_bytes(), b.read_bytes()
    a.write_bytes(b_data), b.write_bytes(a_data)


def forged(line, **changes):
    """The line of a sealing with changes and the hash that it needs: by somebody who knows the format."""
    record = json.loads(line) | changes
    record.pop("sha256")
    text = json.dumps(record, separators=(",", ":"))[:-1]
    return f'{text},"sha256":"{sha256(text.encode()).hexdigest()}"}}\n'.encode()


def copied_run(d):
    shutil.copytree(d / A, d / "20261104T120000-dddddddddd")


def new_run(d):
    copied_run(d)
    edit(d / "20261104T120000-dddddddddd" / "epochs-0.csv", lambda data: data.replace(b"counter", b"sampled"))


def renamed_run(d):
    (d / B).rename(d / "20261105T120000-eeeeeeeeee")


def relinked_run(d):
    """The run lies elsewhere, changed, and a link has its name."""
    shutil.move(d / A, d.parent / "elsewhere")
    edit(d.parent / "elsewhere" / "run.csv", lambda data: data + b"project,x,\n")
    (d / A).symlink_to(d.parent / "elsewhere")


def swapped_runs(d):
    (d / A).rename(d / "x")
    (d / B).rename(d / A)
    (d / "x").rename(d / B)


def pushed(file):
    """Newer than it was: its time alone is no tampering, and hides none."""
    data = file.read_bytes()
    times = file.stat()
    file.write_bytes(data.replace(b"12:00", b"12:01", 1))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


EPOCHS = "epochs-0.csv"
DIGIT = "was changed: it is as long as before, but holds something else"
MANIFEST = SEAL_FILE
TAMPERINGS = {
    # of the runs
    "edited cell": (lambda d: edit(d / A / EPOCHS, lambda b: b.replace(b"0.001", b"0.002", 1)), [A, EPOCHS, DIGIT]),
    "edited cell, its time put back": (lambda d: pushed(d / A / EPOCHS), [A, EPOCHS, DIGIT]),
    "deleted row": (lambda d: with_lines(d / A / EPOCHS, lambda x: x[:2] + x[3:]), [A, EPOCHS, "instead of"]),
    "truncated file": (lambda d: edit(d / A / EPOCHS, lambda b: b[:-20]), [A, EPOCHS, "instead of"]),
    "emptied file": (lambda d: edit(d / A / EPOCHS, lambda b: b""), [A, EPOCHS, "it holds 0 bytes instead of"]),
    "appended row": (lambda d: with_lines(d / A / EPOCHS, lambda x: [*x, x[-1]]), [A, EPOCHS, "bytes more at its end"]),
    "reordered rows": (lambda d: with_lines(d / A / EPOCHS, lambda x: [x[0], *x[:0:-1]]), [A, EPOCHS, DIGIT]),
    "other line ends": (lambda d: edit(d / A / EPOCHS, lambda b: b.replace(b"\n", b"\r\n")), [A, EPOCHS, "instead of"]),
    "edited summary": (
        lambda d: edit(d / A / "summary.csv", lambda b: b.replace(b"finished", b"stopped ")),
        [A, "summary.csv", DIGIT],
    ),
    "edited fields": (
        lambda d: edit(d / A / "run.csv", lambda b: b + b"pue,1.5,\n"),
        [A, "run.csv", "was added to: 9 bytes more at its end"],
    ),
    "deleted file": (lambda d: (d / A / EPOCHS).unlink(), [A, f"{EPOCHS} is missing"]),
    "deleted summary": (lambda d: (d / A / "summary.csv").unlink(), [A, "summary.csv is missing"]),
    "added file": (lambda d: (d / A / "spans-0.csv").write_text("name\n"), [A, "spans-0.csv was added"]),
    "added file in a directory": (
        lambda d: ((d / A / "more").mkdir(), (d / A / "more" / "x").write_text("")),
        [A, "more/x was added"],
    ),
    "renamed file": (
        lambda d: (d / A / EPOCHS).rename(d / A / "epochs-1.csv"),
        [A, "epochs-0.csv was renamed to epochs-1.csv"],
    ),
    "swapped files of a run": (
        lambda d: swap(d / A / EPOCHS, d / A / "run.csv"),
        [A, f"that was sealed as run.csv of run {A}", f"that was sealed as {EPOCHS} of run {A}"],
    ),
    "swapped files of two runs": (
        lambda d: swap(d / A / EPOCHS, d / B / EPOCHS),
        [f"that was sealed as {EPOCHS} of run {B}", f"that was sealed as {EPOCHS} of run {A}"],
    ),
    "deleted run": (lambda d: shutil.rmtree(d / B), [f"Run {B} is missing: sealing 1 of "]),
    "emptied run": (lambda d: [f.unlink() for f in (d / B).iterdir()], [f"Run {B} is missing"]),
    "renamed run": (renamed_run, [f"Run {B} was renamed to 20261105T120000-eeeeeeeeee"]),
    "swapped runs": (swapped_runs, [f"that was sealed as {f} of run {r}" for f in (EPOCHS, "run.csv") for r in (A, B)]),
    "run moved into a directory": (
        lambda d: ((d / "old").mkdir(), (d / A).rename(d / "old" / A)),
        [f"Run {A} was renamed to old/{A}"],
    ),
    "run behind a link": (relinked_run, [A, "run.csv was added to"]),
    "added run": (new_run, ["Run 20261104T120000-dddddddddd is not sealed: it was added, or is not sealed yet"]),
    "copied run": (
        copied_run,
        [f"Run 20261104T120000-dddddddddd is not sealed: it was added, as a copy of run {A}"],
    ),
    # of the manifest
    "manifest, time edited": (
        lambda d: edit(d / MANIFEST, lambda b: b.replace(b'"sealed_at":"20', b'"sealed_at":"19', 1)),
        ["line 1 was edited: it does not have the hash", "line 2 does not follow line 1 as that is now"],
    ),
    "manifest, last line edited": (
        lambda d: with_lines(d / MANIFEST, lambda x: [x[0], x[1].replace(b'"sealed_at":"20', b'"sealed_at":"19')]),
        ["line 2 was edited: it does not have the hash"],
    ),
    "manifest, line edited with its hash": (
        lambda d: with_lines(d / MANIFEST, lambda x: [forged(x[0], sealed_at="2020-01-01T00:00:00.000Z"), x[1]]),
        ["line 2 does not follow line 1 as that is now: it was edited or replaced"],
    ),
    "manifest, line deleted": (
        lambda d: with_lines(d / MANIFEST, lambda x: x[1:]),
        ["sealing 1 is missing before line 1", f"Run {A} is not sealed", f"Run {B} is not sealed"],
    ),
    "manifest, last line deleted": (
        lambda d: with_lines(d / MANIFEST, lambda x: x[:1]),
        [f"Run {C} is not sealed: it was added, or is not sealed yet"],
    ),
    "manifest, lines swapped": (
        lambda d: with_lines(d / MANIFEST, lambda x: x[::-1]),
        ["sealing 1 is missing before line 1", "line 2 holds sealing 1, behind sealing 2: it was moved or copied"],
    ),
    "manifest, cut off": (
        lambda d: edit(d / MANIFEST, lambda b: b[:-30]),
        ["line 2 was cut off", f"Run {C} is not sealed"],
    ),
    "manifest, last line end cut off": (lambda d: edit(d / MANIFEST, lambda b: b[:-1]), ["line 2 was cut off"]),
    "manifest, other line ends": (
        lambda d: edit(d / MANIFEST, lambda b: b.replace(b"\n", b"\r\n")),
        ["line 1 was edited", "line 2 was edited"],
    ),
    "manifest, text appended": (
        lambda d: edit(d / MANIFEST, lambda b: b + b"x\n"),
        ["line 3 was edited: it is no sealing"],
    ),
    "manifest, empty line put in": (
        lambda d: with_lines(d / MANIFEST, lambda x: [x[0], b"\n", x[1]]),
        ["line 2 was edited: it is no sealing"],
    ),
    "manifest, line appended again": (
        lambda d: with_lines(d / MANIFEST, lambda x: [*x, x[1]]),
        ["line 3 holds sealing 2, behind sealing 2: it was moved or copied"],
    ),
    "manifest, forged line appended": (
        lambda d: with_lines(d / MANIFEST, lambda x: [*x, forged(x[1], number=3, previous=sha256(x[1]).hexdigest())]),
        [f"sealing 3 holds run {C} anew, and gives no reason"],
    ),
    "manifest, run dropped by a forged line": (
        lambda d: with_lines(
            d / MANIFEST,
            lambda x: [*x, forged(x[1], number=3, previous=sha256(x[1]).hexdigest(), runs={}, removed=[B])],
        ),
        [f"sealing 3 drops run {B}, and gives no reason", f"Run {B} is not sealed"],
    ),
    "manifest, a path that leads out": (
        lambda d: with_lines(d / MANIFEST, lambda x: [x[0], forged(x[1], runs={"../x": {}})]),
        ["line 2 cannot be read: '../x' is no name of a run or a file"],
    ),
    "manifest emptied": (
        lambda d: edit(d / MANIFEST, lambda b: b""),
        [f"{MANIFEST} is empty", f"Run {A} is not sealed"],
    ),
    "manifest deleted": (
        lambda d: (d / MANIFEST).unlink(),
        [f"There is no {MANIFEST}: nothing was sealed, or it was deleted", f"Run {A} is not sealed"],
    ),
}
OF_MANIFEST = {name for name in TAMPERINGS if name.startswith("manifest")}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_named(sealed, name):
    tamper, says = TAMPERINGS[name]
    tamper(sealed)
    found = verify_seal(sealed).findings
    for text in says:
        assert any(text in finding for finding in found), (text, found)
    assert all(finding.endswith(".") for finding in found)
    told = CliRunner().invoke(cli, ["seal", str(sealed), "--verify"])
    assert told.exit_code == 1 and [f"! {finding}" for finding in found] == told.stdout.splitlines()[: len(found)]


@pytest.mark.parametrize("name", sorted(TAMPERINGS.keys() - OF_MANIFEST - {"added run", "copied run"}))
def test_nothing_is_sealed_over_a_change_without_a_reason(sealed, name):
    before = (sealed / SEAL_FILE).read_bytes()
    TAMPERINGS[name][0](sealed)
    with pytest.raises(UsageError, match=r"nothing was sealed[\s\S]*seal it as it is with reason=, followed by why"):
        seal(sealed)
    assert (sealed / SEAL_FILE).read_bytes() == before
    result = seal(sealed, reason="the disk of node 7 was restored")
    assert result.sealing.number == 3 and result.sealing.reason == "the disk of node 7 was restored"
    found = verify_seal(sealed)
    assert found.findings == [] and any("because: the disk of node 7" in note for note in found.notes)


@pytest.mark.parametrize("name", sorted(OF_MANIFEST - {"manifest deleted", "manifest, last line deleted"}))
def test_nothing_is_sealed_behind_a_damaged_manifest(sealed, name):
    TAMPERINGS[name][0](sealed)
    before = (sealed / SEAL_FILE).read_bytes()
    with pytest.raises(UsageError, match="Nothing was sealed; greenlove seal --verify names all"):
        seal(sealed, reason="x")
    assert (sealed / SEAL_FILE).read_bytes() == before


def test_a_chain_that_was_wholly_rewritten_is_found_by_the_head_alone(sealed):
    head = verify_seal(sealed).head
    assert verify_seal(sealed, head=head).findings == []
    edit(sealed / A / EPOCHS, lambda b: b.replace(b"0.001", b"0.002", 1))
    edit(sealed / A / "summary.csv", lambda b: b.replace(b"file.", b"kept."))
    (sealed / SEAL_FILE).unlink()
    seal(sealed)
    assert verify_seal(sealed).findings == []  # whoever can write all can write all anew
    (finding,) = verify_seal(sealed, head=head).findings
    assert finding == f"{SEAL_FILE} holds no line {head}: lines were deleted, or all of it was written anew."


def test_an_older_head_is_still_in_the_chain(sealed, make_run):
    head = verify_seal(sealed).head
    assert head == sha256(lines_of(sealed / SEAL_FILE)[-1]).hexdigest()  # as ``tail -n 1 | sha256sum`` has it
    make_run("20261106T120000-ffffffffff")
    assert seal(sealed).head != head and verify_seal(sealed, head=head).findings == []


def test_only_what_is_new_is_sealed(sealed, make_run):
    before = (sealed / SEAL_FILE).read_bytes()
    result = seal(sealed)
    assert result.sealing is None and result.n_sealed == 3 and (sealed / SEAL_FILE).read_bytes() == before
    make_run("20261106T120000-ffffffffff", rows=(epoch_row(9),))
    result = seal(sealed)
    after = (sealed / SEAL_FILE).read_bytes()
    assert after.startswith(before) and list(result.sealing.runs) == ["20261106T120000-ffffffffff"]
    assert (result.n_sealed, result.sealing.number) == (4, 3)
    run_csv = result.sealing.runs["20261106T120000-ffffffffff"]["run.csv"]
    assert run_csv == hash_file(sealed / "20261106T120000-ffffffffff" / "run.csv")


def test_a_line_reads_back_as_it_was_written(sealed):
    for line in lines_of(sealed / SEAL_FILE):
        text = line.decode().rpartition(',"sha256":')[0] + "}"
        assert Sealing.from_text(text).line == line
    with pytest.raises(ValueError, match="its format is 2"):
        Sealing.from_text(text.replace('"format":1', '"format":2'))


def test_a_run_that_goes_on_is_left_for_the_next_time(sealed, make_run, monkeypatch):
    here = {"host": os.uname().nodename, "pid": str(os.getpid())}
    running = make_run("20261106T120000-ffffffffff", is_closed=False, fields=here)
    result = seal(sealed)
    assert result.sealing is None and result.running == [running.name]
    found = verify_seal(sealed)
    assert found.findings == []
    assert f"Run {running.name} is still running: it is not sealed yet, and was not verified." in found.notes


def test_a_run_that_crashed_is_sealed_and_that_its_end_is_missing_is_told(sealed, make_run):
    dead = make_run(
        "20261106T120000-ffffffffff", is_closed=False, fields={"host": os.uname().nodename, "pid": "4194305"}
    )
    assert seal(sealed).unsealed_at_end == [dead.name]
    found = verify_seal(sealed)
    assert found.findings == []
    says = f"Without hashes from their end, so nothing shows what they held then: 1 run ({dead.name})."
    assert says in found.notes


def test_a_change_between_the_end_and_the_first_sealing_is_told(make_run):
    run_dir = make_run(A)
    edit(run_dir / EPOCHS, lambda b: b.replace(b"0.001", b"0.002", 1))
    with pytest.raises(UsageError, match=f"run {A}: since its end {EPOCHS} was changed"):
        seal(run_dir.parent)
    found = verify_seal(run_dir.parent).findings
    assert f"Run {A}: since its end {EPOCHS} {DIGIT}." in found
    assert seal(run_dir.parent, reason="corrected by hand").sealing.changed == [A]


def test_a_manifest_is_no_run_and_no_problem_of_the_directory(sealed):
    logs = read_logs(sealed)
    assert [run.run_id for run in logs.runs] == [A, B, C] and logs.problems == []
    found = aggregate(read_logs(sealed), verify=True)
    assert found.problems == [] and found.verified.n_agreeing == 3


def test_two_sealings_at_once_are_kept_apart(sealed, make_run):
    make_run("20261106T120000-ffffffffff")
    with seal_module._alone(sealed), pytest.raises(UsageError, match="another greenlove seal is at work"):
        seal(sealed)
    assert seal(sealed).sealing.number == 3


def test_links_in_a_circle_end_and_a_link_to_a_run_is_no_second_one(sealed):
    (sealed / "again").symlink_to(sealed / A)
    (sealed / "circle").symlink_to(sealed)
    assert verify_seal(sealed).findings == [] and seal(sealed).sealing is None


def test_a_file_that_cannot_be_read_is_named(sealed):
    (sealed / A / EPOCHS).unlink()
    (sealed / A / EPOCHS).symlink_to(sealed / A / EPOCHS)
    (finding,) = verify_seal(sealed).findings
    assert f"Run {A}: {EPOCHS} cannot be read" in finding
    with pytest.raises(UsageError, match="cannot be sealed"):
        seal(sealed, reason="x")


def test_what_is_given_must_be_a_directory_of_runs(sealed):
    with pytest.raises(UsageError, match="there is no directory"):
        seal(sealed / "nowhere")
    with pytest.raises(UsageError, match="is a single run: give the directory that it lies in"):
        verify_seal(sealed / A)


def test_a_store_is_verified_and_not_written(sealed):
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.put(str(sealed), "/seal-test", recursive=True)
    try:
        address = "memory://seal-test"
        found = verify_seal(address)
        assert found.findings == [] and (found.n_runs, found.n_files) == (3, 9)
        with pytest.raises(UsageError, match="is a store, which is only read"):
            seal(address)
        store.pipe(f"/seal-test/{A}/{EPOCHS}", b"x")
        assert [f"Run {A}: {EPOCHS} was changed" in finding for finding in verify_seal(address).findings] == [True]
    finally:
        store.rm("/seal-test", recursive=True)


def test_many_runs_take_little_time(make_run):
    first = make_run(A)
    for n in range(300):
        shutil.copytree(first, first.with_name(f"20261201T{n:06}-aaaaaaaaaa"))
    begun_s = time.perf_counter()
    assert seal(first.parent).n_sealed == 301 and verify_seal(first.parent).findings == []
    assert time.perf_counter() - begun_s < 10
