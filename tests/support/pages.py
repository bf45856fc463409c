"""The project's pages as tests read them: code blocks, tables, headings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "airflow_provider_backfill"
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(r"^(`{3,}|:{3,})(?P<info>[^\n]*)\n(?P<body>.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


def blocks(page: Path, *languages: str) -> list[str]:
    """The code blocks of a page in any of the languages."""
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [match["body"] for match in found if match["info"].strip() in languages]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def section(page: Path, heading: str) -> str:
    """What stands under a heading, up to the next of the same depth."""
    text = prose(page)
    depth = heading.partition(" ")[0]
    start = text.index(f"{heading}\n") + len(heading)
    end = re.search(rf"^{depth} ", text[start:], re.MULTILINE)
    return text[start : start + end.start()] if end else text[start:]


def table(text: str, first: str) -> list[list[str]]:
    """The rows of the table whose first column is called so, without its two heading lines."""
    lines = text[text.index(f"| {first} |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def code(cell: str) -> str:
    """What stands between the first pair of backticks."""
    match = CODE.search(cell)
    assert match, cell
    return match[1]


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = HEADING.findall(prose(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def fences(page: Path, heading: str) -> list[tuple[str, str]]:
    """Language and body of the code blocks under a heading of the second level, in order."""
    text = page.read_text(encoding="utf-8")
    start = text.index(f"\n## {heading}\n")
    end = text.find("\n## ", start + 1)
    return [
        (match["info"].strip(), match["body"])
        for match in FENCE.finditer(text[start : end if end >= 0 else len(text)])
    ]
