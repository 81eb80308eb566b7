"""Every relative link of the pages leads to a file, and its anchor to a heading there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")]
    + [page for folder in ("docs", "benchmarks") for page in (ROOT / folder).rglob("*.md")]
)
MOST_WORDS = 30_000  # of the pages that are neither made from code nor decisions
MADE_FROM_CODE = {"cli.md", "python.md", "settings.md", "log.md", "experiment.md"}


def without_code(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges and the site make them."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*?) *$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{target} of {page.name} leads nowhere"
        assert not anchor or anchor in anchors(file), f"{target} of {page.name}: no such heading"


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8")))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert named == pages


def test_pages_that_code_and_tests_name_are_there() -> None:
    files = [path for folder in ("greenlove_tracker", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    for file in files:
        for name in re.findall(r"\bdocs/[\w/-]+\.md\b", file.read_text("utf-8")):
            assert (ROOT / name).is_file(), f"{name}, which {file.relative_to(ROOT)} names"


def test_modules_that_the_architecture_names_are_there() -> None:
    package, text = ROOT / "greenlove_tracker", (ROOT / "docs" / "architecture.md").read_text("utf-8")
    for line in re.findall(r"^\|.*`.*$", text, re.MULTILINE):
        room = package / (found[1] if (found := re.match(r"\| `(\w+)/`", line)) else "")
        for name in re.findall(r"`([\w/]+\.py)`", line):
            assert (room / name).is_file(), f"{room.name}/{name}"


def test_the_pages_are_short() -> None:
    texts = [
        page.read_text("utf-8")
        for page in (ROOT / "docs").rglob("*.md")
        if page.parent.name != "decisions" and not (page.parent.name == "reference" and page.name in MADE_FROM_CODE)
    ]
    assert sum(len(text.split()) for text in texts) <= MOST_WORDS
