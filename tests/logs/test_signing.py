from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys

import pytest

from greenlove_tracker.errors import UsageError
from greenlove_tracker.logs import seal_manifest, signing
from greenlove_tracker.logs.schema import SEAL_FILE, SEAL_PREFIX
from greenlove_tracker.logs.seal import seal, verify_seal
from greenlove_tracker.logs.signing import Signer

needs_gpg = pytest.mark.skipif(shutil.which("gpg") is None, reason="gpg is not installed")
needs_minisign = pytest.mark.skipif(shutil.which("minisign") is None, reason="minisign is not installed")


@pytest.fixture(scope="module")
def gpg_home(tmp_path_factory):
    """A key ring with two keys without passphrases; its path is short, for gpg's agent listens on a socket in it."""
    home = tmp_path_factory.getbasetemp().parent / f"g{tmp_path_factory.getbasetemp().name[-4:]}"
    home.mkdir(mode=0o700)
    for who in ("Ada <ada@example.org>", "Bob <bob@example.org>"):
        command = [
            "gpg",
            "--homedir",
            str(home),
            "--batch",
            "--passphrase",
            "",
            "--quick-gen-key",
            who,
            "ed25519",
            "sign",
        ]
        subprocess.run(command, check=True, capture_output=True)
    yield home
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
    shutil.rmtree(home)


@pytest.fixture
def gpg(gpg_home, monkeypatch):
    monkeypatch.setenv("GNUPGHOME", str(gpg_home))
    return Signer("gpg", "ada@example.org")


@pytest.fixture
def runs(make_run):
    return make_run("20261101T120000-aaaaaaaaaa").parent


@needs_gpg
def test_a_signature_of_gpg_is_good_for_what_was_signed_alone(gpg):
    signature = gpg.sign(b"data")
    assert signature.startswith(b"-----BEGIN PGP SIGNATURE")
    who, problem = gpg.problem(b"data", signature)
    assert who.startswith("Ada <ada@example.org>, key ") and problem == ""
    assert "BAD signature" in gpg.problem(b"Data", signature)[1]
    assert gpg.problem(b"data", b"no signature")[0] == ""
    assert "not of bob@example.org" in Signer("gpg", "bob@example.org").problem(b"data", signature)[1]
    assert Signer("gpg").problem(b"data", signature) == (who, "")
    fingerprint = who.rpartition(" ")[2]
    assert Signer("gpg", fingerprint).problem(b"data", signature) == (who, "")
    assert "not of eve@example.org" in Signer("gpg", "eve@example.org").problem(b"data", signature)[1]


@needs_gpg
def test_a_signature_of_a_key_that_has_expired_is_none(gpg_home, gpg, tmp_path):
    at_the_time = ["gpg", "--batch", "--faked-system-time", "20250101T000000", "--passphrase", ""]
    subprocess.run([*at_the_time, "--quick-gen-key", "old@example.org", "ed25519", "sign", "1d"], check=True)
    (tmp_path / "data").write_bytes(b"data")
    command = [*at_the_time, "-u", "old@example.org", "-o", "-", "--detach-sign", str(tmp_path / "data")]
    signature = subprocess.run(command, check=True, capture_output=True).stdout
    assert Signer("gpg").problem(b"data", signature) == ("", "its key has expired")


@needs_gpg
def test_a_disk_that_does_not_take_the_manifest_keeps_no_signature_either(gpg, runs, monkeypatch):
    write = seal_manifest.write_atomically

    def full(path, data):
        if path.name == SEAL_FILE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, data)

    monkeypatch.setattr(seal_manifest, "write_atomically", full)
    with pytest.raises(UsageError, match="No space left on device"):
        seal(runs, signer=gpg)
    assert not list(runs.glob(f"{SEAL_PREFIX}*"))


@needs_gpg
def test_a_key_that_is_not_there_signs_nothing_and_nothing_is_written(gpg, runs):
    with pytest.raises(UsageError, match="gpg did not sign: exit code 2; it says why above"):
        seal(runs, signer=Signer("gpg", "eve@example.org"))
    assert not list(runs.glob(f"{SEAL_PREFIX}*"))


@pytest.fixture
def signed(runs, gpg, make_run):
    seal(runs, signer=gpg)
    make_run("20261102T120000-bbbbbbbbbb")
    seal(runs, signer=gpg)
    return runs


@needs_gpg
def test_a_signed_manifest_is_verified_with_every_signature(signed, gpg, make_run):
    found = verify_seal(signed)
    assert found.findings == [] and verify_seal(signed, signer=gpg).findings == []
    assert [note[:66] for note in found.notes] == [
        f"{SEAL_PREFIX}{n}.asc is a good signature of all up to sealing {n}, by Ada"[:66] for n in (1, 2)
    ]
    make_run("20261103T120000-cccccccccc")
    seal(signed)
    says = "There is no good signature{} of what was sealed after sealing 2."
    assert verify_seal(signed).findings == [] and verify_seal(signed).notes[-1] == says.format("")
    assert verify_seal(signed, signer=gpg).findings == [says.format(" by gpg")]
    assert seal(signed, signer=gpg).sealing.signature == f"{SEAL_PREFIX}4.asc"
    assert verify_seal(signed, signer=gpg).findings == [] and seal(signed, signer=gpg).sealing is None


@needs_gpg
def test_tampering_with_a_signed_manifest_is_named(signed, gpg):
    manifest, second = signed / SEAL_FILE, signed / f"{SEAL_PREFIX}2.asc"
    data, signature = manifest.read_bytes(), second.read_bytes()

    def findings():
        return "\n".join(verify_seal(signed).findings)

    manifest.unlink()
    assert f"{SEAL_FILE} was deleted: there is a signature of it, {SEAL_PREFIX}1.asc, {SEAL_PREFIX}2.asc." in findings()
    with pytest.raises(UsageError, match="was deleted"):
        seal(signed)
    manifest.write_bytes(data.splitlines(keepends=True)[0])
    assert f"{second.name} is of a sealing that {SEAL_FILE} does not hold" in findings()
    manifest.write_bytes(data.replace(b'"sealed_at":"20', b'"sealed_at":"19', 1))
    assert f"{SEAL_PREFIX}1.asc does not vouch for sealing 1: gpg: BAD signature" in findings()
    assert f"{second.name} does not vouch for sealing 2: gpg: BAD signature" in findings()
    manifest.write_bytes(data)
    second.unlink()
    assert f"{second.name} is missing: sealing 2 was signed." in findings()
    second.write_bytes((signed / f"{SEAL_PREFIX}1.asc").read_bytes())
    assert f"{second.name} does not vouch for sealing 2" in findings()
    second.write_bytes(signature)
    assert findings() == ""


@needs_gpg
def test_a_chain_written_anew_and_signed_by_another_is_named_where_the_signer_is_required(signed, gpg):
    for file in signed.glob(f"{SEAL_PREFIX}*"):
        file.unlink()
    seal(signed, signer=Signer("gpg", "bob@example.org"))
    assert verify_seal(signed).findings == []
    found = "\n".join(verify_seal(signed, signer=gpg).findings)
    assert "is of Bob <bob@example.org>, key " in found and "There is no good signature by gpg" in found
    (signed / f"{SEAL_PREFIX}1.asc").unlink()
    (signed / SEAL_FILE).unlink()
    seal(signed)
    assert verify_seal(signed).findings == [] and verify_seal(signed, signer=Signer("gpg")).findings != []


@needs_minisign
def test_minisign_signs_and_checks(tmp_path, runs):
    public, secret = tmp_path / "public", tmp_path / "secret"
    subprocess.run(["minisign", "-G", "-W", "-p", str(public), "-s", str(secret)], check=True, capture_output=True)
    seal(runs, signer=Signer("minisign", str(secret)))
    required = Signer("minisign", str(public))
    assert verify_seal(runs, signer=required).findings == []
    (runs / SEAL_FILE).write_bytes((runs / SEAL_FILE).read_bytes().replace(b'"sealed_at":"20', b'"sealed_at":"19'))
    assert "does not vouch for sealing 1" in "\n".join(verify_seal(runs, signer=required).findings)


def program(directory, monkeypatch, name, code):
    """Put a program of this name before all others."""
    file = directory / name
    file.write_text(f"#!{sys.executable}\n{code}\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))


@pytest.mark.skipif(sys.platform == "win32", reason="its programs are started otherwise")
@pytest.mark.parametrize("name", ["gpg", "minisign"])
def test_a_program_that_is_missing_or_hangs_is_a_clear_error(tmp_path, runs, monkeypatch, name):
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UsageError, match=f"there is no program {name} on this machine: install it"):
        seal(runs, signer=Signer(name))
    monkeypatch.setattr(signing, "_SIGN_TIMEOUT_S", 0.3)
    program(tmp_path / "bin", monkeypatch, name, "import signal; signal.pause()")
    with pytest.raises(UsageError, match=f"{name} did not answer within 0.3 s"):
        seal(runs, signer=Signer(name))
    program(tmp_path / "bin", monkeypatch, name, "raise SystemExit(3)")
    with pytest.raises(UsageError, match=f"{name} did not sign: exit code 3"):
        seal(runs, signer=Signer(name))
    assert not list(runs.glob(f"{SEAL_PREFIX}*"))


def test_a_signature_that_nobody_here_can_check_is_a_finding(tmp_path, runs, monkeypatch):
    monkeypatch.setattr(Signer, "sign", lambda self, data: b"untrusted comment: x\n")
    seal(runs, signer=Signer("minisign"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (finding,) = verify_seal(runs).findings
    assert finding == (
        f"{SEAL_PREFIX}1.minisig does not vouch for sealing 1: "
        "there is no program minisign on this machine: install it."
    )
    monkeypatch.undo()
    assert any("it is not by gpg" in finding for finding in verify_seal(runs, signer=Signer("gpg")).findings)
