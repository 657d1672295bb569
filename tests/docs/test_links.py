"""Every link inside the repository leads somewhere, to the heading it names."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import ROOT, Page, pages, read

LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (?P<text>.+)$", re.MULTILINE)


def anchors(page: Page) -> set[str]:
    """The names under which a heading can be linked to."""
    found: set[str] = set()
    for heading in HEADING.finditer(page.prose):
        text = re.sub(r"[^\w\- ]", "", heading["text"].strip().lower())
        found.add(text.replace(" ", "-"))
    return found


def links(page: Page) -> list[str]:
    return [match["target"] for match in LINK.finditer(page.prose)]


def broken(page: Page) -> list[str]:
    found: list[str] = []
    for target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        path_text, _, anchor = target.partition("#")
        path = (page.path.parent / path_text).resolve() if path_text else page.path
        if not path.exists() or not path.is_relative_to(ROOT):
            found.append(f"{page.name}: {target} does not exist")
        elif anchor and (path.suffix != ".md" or anchor not in anchors(read(path))):
            found.append(f"{page.name}: {target} has no such heading")
    return found


def test_every_link_leads_somewhere():
    documents = pages()
    assert sum(len(links(page)) for page in documents) > 100
    assert [problem for page in documents for problem in broken(page)] == []


def test_every_page_can_be_reached_from_the_readme():
    start = ROOT / "README.md"
    reached: set[Path] = set()
    waiting = [start]
    while waiting:
        path = waiting.pop()
        if path in reached or path.suffix != ".md" or not path.is_file():
            continue
        reached.add(path)
        waiting += [
            (path.parent / target.partition("#")[0]).resolve()
            for target in links(read(path))
            if not re.match(r"[a-z]+:", target)
        ]
    lonely = [page.name for page in pages() if page.path not in reached]
    assert lonely == []


def test_the_search_finds_a_broken_link():
    page = read(ROOT / "README.md")
    for target in ("docs/no-such-page.md", "docs/index.md#no-such-heading", "#no-such-heading"):
        liar = Page(path=page.path, text="", prose=f"[x]({target})", blocks=())
        assert len(broken(liar)) == 1
