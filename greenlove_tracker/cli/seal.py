"""``seal``: the hashes of all runs into a chained manifest, and whether the runs are still as they were sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from greenlove_tracker.cli.base import cli, show_screen
from greenlove_tracker.config import load_settings
from greenlove_tracker.errors import UsageError
from greenlove_tracker.format import plural

if TYPE_CHECKING:
    from greenlove_tracker.logs.seal import SealResult, Verification


@cli.command(short_help="Seal logged runs against changes, or verify the seal.")
@click.argument("log_dir", required=False)
@click.option("--verify", is_flag=True, help="list what was changed, added or removed; write nothing")
@click.option(
    "--sign",
    "program",
    type=click.Choice(["gpg", "minisign"]),
    help="sign the manifest with this program; with --verify: require its signature on the last line",
)
@click.option(
    "--key",
    help="gpg: name or fingerprint of the key; minisign: key file, with --verify the public one",
)
@click.option(
    "--allow-changed",
    "reason",
    metavar="REASON",
    help="seal although runs changed or are gone; the reason goes into the manifest",
)
@click.option(
    "--head", metavar="SHA256", help="with --verify: hash of a line that the manifest must hold, kept elsewhere"
)
@click.pass_context
def seal(
    ctx: click.Context,
    log_dir: str | None,
    verify: bool,
    program: str | None,
    key: str | None,
    reason: str | None,
    head: str | None,
) -> None:
    """Add the hashes of all new runs to a chained manifest, greenlove_seal.jsonl, or verify it.

    \b
    greenlove seal greenlove_logs --sign gpg
    greenlove seal greenlove_logs --verify

    Running trainings are left for the next time. With --verify the exit code is 1 if anything differs from what was
    sealed.
    """  # noqa: D301  # click wants the backspace itself
    from greenlove_tracker.logs.seal import seal as seal_directory
    from greenlove_tracker.logs.seal import verify_seal
    from greenlove_tracker.logs.signing import Signer

    if key is not None and program is None:
        raise UsageError("--key is a key of the program that --sign names: say --sign too")
    if head is not None and not verify:
        raise UsageError("--head is compared with the manifest: say --verify too")
    if reason is not None and (verify or not reason.strip()):
        raise UsageError("--allow-changed takes the reason for sealing changed runs, and goes without --verify")
    directory = load_settings().log_dir if log_dir is None else log_dir
    signer = Signer(program, key or "") if program else None
    if not verify:
        show_screen(_sealed_screen(seal_directory(directory, signer=signer, reason=reason or "")))
        return
    found = verify_seal(directory, signer=signer, head=(head or "").lower())
    show_screen(_verified_screen(found))
    ctx.exit(1 if found.findings else 0)


def _sealed_screen(result: SealResult) -> str:
    """Return what was sealed, what was not, and the hash to keep."""
    lines = []
    if result.sealing is None:
        lines.append(f"Nothing is new: {plural(result.n_sealed, 'run')} sealed.")
    else:
        done = f"Sealing {result.sealing.number}: {plural(len(result.sealing.runs), 'run')} added"
        done += f", {plural(len(result.sealing.removed), 'run')} dropped" if result.sealing.removed else ""
        signed = f", signed in {result.sealing.signature}" if result.sealing.signature else ""
        lines.append(f"{done}, {result.n_sealed:,} sealed in all{signed}.")
    lines += [f"Run {name} is still running: it was left for the next time." for name in result.running]
    lines += [f"Run {name} was not sealed at its end: its hashes are of now." for name in result.unsealed_at_end]
    return "\n".join([*lines, *_head_lines(result.head)])


def _verified_screen(found: Verification) -> str:
    """Return all that is not as it was sealed, a sentence a line; then what else is to be known."""
    seen = f"{plural(found.n_runs, 'run')} with {plural(found.n_files, 'file')}, {plural(found.n_sealings, 'sealing')}"
    verdict = f"{plural(len(found.findings), 'finding')}: not all is as it was sealed." if found.findings else ""
    lines = [f"! {finding}" for finding in found.findings] + list(found.notes)
    head = [] if found.findings else _head_lines(found.head)
    return "\n".join([*lines, f"{verdict or 'Everything is as it was sealed.'} Verified: {seen}.", *head])


def _head_lines(head: str) -> list[str]:
    """Return the hash of the last line, with what it is for."""
    return (
        [f"head    {head}", "Keep this hash elsewhere: --verify --head HASH checks that the manifest still holds it."]
        if head
        else []
    )
