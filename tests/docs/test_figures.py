"""Figures are hand-written SVG in one style, readable in light and dark, and each is shown."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from tests.docs.pages import ROOT, pages

FIGURES = sorted((ROOT / "docs" / "figures").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"
IMAGE = re.compile(r"!\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")


def test_every_figure_is_shown_with_a_text_and_every_image_exists():
    shown = set()
    for page in pages():
        for image in IMAGE.finditer(page.prose):
            path = (page.path.parent / image["target"]).resolve()
            assert path.is_file(), f"{page.name}: {image['target']}"
            shown.add(path)
    assert shown >= set(FIGURES)
    assert len(FIGURES) >= 4


def style_of(text: str) -> str:
    return text.partition("<style>")[2].partition("</style>")[0]


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_a_figure_has_the_common_style_a_title_and_nothing_from_elsewhere(path):
    text = path.read_text(encoding="utf-8")
    root = ET.fromstring(text)
    styles = {style_of(figure.read_text(encoding="utf-8")) for figure in FIGURES}
    assert len(styles) == 1
    style = styles.pop()
    assert "prefers-color-scheme: dark" in style
    classes = {name for element in root.iter() for name in element.get("class", "").split()}
    assert {name for name in classes if f".{name} " not in style} == set()
    assert root.findtext(f"{SVG}title")
    assert root.findtext(f"{SVG}desc")
    assert "href" not in text
    assert "script" not in text


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_everything_lies_inside_a_figure(path):
    root = ET.fromstring(path.read_text(encoding="utf-8"))
    _, _, width, height = (float(word) for word in root.get("viewBox", "").split())
    for element in root.iter(f"{SVG}rect"):
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        assert x + float(element.get("width", 0)) <= width
        assert y + float(element.get("height", 0)) <= height
