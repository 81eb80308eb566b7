"""Write ``docs/reference/cli.md`` from the options of the verbs.

python docs/write_cli_reference.py
"""

from __future__ import annotations

import inspect
from pathlib import Path

import click

from greenlove_tracker.cli import cli

PAGE = Path(__file__).parent / "reference" / "cli.md"
HEAD = """# The command line

`greenlove --help` and `greenlove VERB --help` show what is used most; `--help-all` shows everything. A first word
that is no verb is a script: `greenlove train.py` and `python -m greenlove_tracker train.py` mean `greenlove run
train.py`.

**Logs** are a log directory, one run by its path or its id, `last` for the latest run, or a log of carbontracker or
CodeCarbon; a directory called `last` is `./last`. Without it the setting `log_dir` counts, by default
`greenlove_logs`; `report` then takes the latest run.

**Exit codes**: 0; 1 for an error, which stderr explains; 2 for an unknown option or a bad choice. `run` and `plan
--threshold` end as the command ends. `config check` gives 1 where it finds something, `checkpoints` where none is
whole, `doctor` where nothing can be measured. `experiment` gives 1 if a training failed, 2 for a mistake, 3 if the
budget is used. Ctrl-C gives 130.

Settings without an option are variables `GREENLOVE_<NAME>` or lines in `greenlove.toml`: [all of them](settings.md).
What is wrong in a file or a variable is told by where it stands; what is found only later, such as a place that there
is none of, is told by the option that it has, wherever it was set.
"""


def cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def section(name: str, verb: click.Command) -> list[str]:
    """Return the usage of a verb, its help, and its options."""
    context = click.Context(verb, info_name=name)
    lines = [f"`greenlove {name} {' '.join(verb.collect_usage_pieces(context))}`", ""]
    for paragraph in inspect.cleandoc(verb.help or "").split("\n\n"):
        lines += ["```", paragraph.removeprefix("\b\n"), "```", ""] if paragraph.startswith("\b") else [paragraph, ""]
    options = [p for p in verb.params if isinstance(p, click.Option)]
    records = [record for p in options if (record := p.get_help_record(context)) is not None]
    if records:
        lines += [
            "| option | means |",
            "|---|---|",
            *(f"| `{cell(names)}` | {cell(text)} |" for names, text in records),
        ]
    return [*lines, ""] if records else lines


def cli_reference() -> str:
    """Return the page."""
    lines = [HEAD]
    for name in cli.list_commands(click.Context(cli)):
        verb = cli.commands[name]
        lines += [f"## {name}", ""]
        if isinstance(verb, click.Group):
            lines += [inspect.cleandoc(verb.help or "").split("\n\n")[0], ""]
            for part, command in verb.commands.items():
                lines += section(f"{name} {part}", command)
        else:
            lines += section(name, verb)
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(cli_reference(), encoding="utf-8")
