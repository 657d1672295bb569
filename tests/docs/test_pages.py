"""Every block that a reader could copy is run: Python, shell, SQL and TOML."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, Page, guides, pages, read

RUN = frozenset({"python", "console", "sh", "sql", "toml"})
# Shown, never run: output, file listings, diagrams, and settings of other programs.
SHOWN = frozenset({"text", "ini", "promql", "yaml", "json"})

GUIDES = {page.name: page for page in guides() if any(b.language in RUN for b in page.blocks)}
WITH_POSTGRES = [
    name for name, page in GUIDES.items() if any("postgres" in b.marks for b in page.blocks)
]


def run_page(page: Page, folder: Path, postgres_url: str | None = None) -> Counter[str]:
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")
    }
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', '')}"
    environ["PYTHONPATH"] = str(ROOT)
    # The driver that the page on drivers writes is the example that the conformance tests run.
    driver = "from tests.conformance.example_driver import FileFactory as FileFactory\n"
    (folder / "holdfast_file.py").write_text(driver)
    done = subprocess.run(
        [
            *(sys.executable, "-W", "error", "-m", "tests.docs.run_page", str(page.path)),
            *([] if postgres_url is None else [postgres_url]),
        ],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{page.name}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}", pytrace=False)
    return Counter(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", sorted(GUIDES))
def test_every_block_of_the_page_runs(name, tmp_path):
    page = GUIDES[name]
    ran = run_page(page, tmp_path)
    wanted = [b for b in page.blocks if b.language in RUN and "postgres" not in b.marks]
    assert sum(ran[language] for language in RUN) == len(wanted)


@pytest.mark.service
@pytest.mark.parametrize("name", WITH_POSTGRES)
def test_every_block_for_postgres_runs(name, tmp_path, postgres_url):
    page = GUIDES[name]
    ran = run_page(page, tmp_path, postgres_url)
    wanted = [block for block in page.blocks if block.language in RUN]
    assert sum(ran[language] for language in RUN) == len(wanted)


def test_every_block_has_a_language_that_is_run_or_only_shown():
    strange = {
        f"{page.name}:{block.line} {block.language!r}"
        for page in pages()
        for block in page.blocks
        if block.language not in RUN | SHOWN and not is_a_synopsis(block)
    }
    assert strange == set()


def is_a_synopsis(block: Block) -> bool:
    """Whether a block without a language shows how to call something, and nothing to copy."""
    return not block.language and "import " not in block.text and "$ " not in block.text


def test_there_is_something_to_run():
    found = Counter(block.language for page in GUIDES.values() for block in page.blocks)
    assert found["python"] >= 45
    assert found["console"] + found["sh"] >= 14
    assert found["sql"] >= 3
    assert found["toml"] >= 2
    assert len(GUIDES) >= 16
    assert len(WITH_POSTGRES) >= 2


@pytest.mark.parametrize(
    "text",
    [
        "```python\nraise ValueError\n```\n",
        "```python\nimport asyncio\nawait asyncio.sleep(0)\nraise ValueError\n```\n",
        "```python\nprint(1)  # prints 2\n```\n",
        "```console\n$ holdfast lease show never --url sqlite:///a.db\n```\n",
        "```console\n$ holdfast --version\nsomething else\n```\n",
        "```console\n$ holdfast --version\n$ echo $?\n3\n```\n",
        "```console\n$ make coffee\n```\n",
        "```console\n$ pip install holdfast[coffee]\n```\n",
        "```console\n$ rm -r x\n```\n",
        "```sql\nSELEKT 1\n```\n",
        "```toml\nx = \n```\n",
        "<!-- test: until-stopped -->\n```python\nprint(1)\n```\n",
    ],
)
def test_a_page_that_lies_is_found(text, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(pytest.fail.Exception):
        run_page(read(page), tmp_path)


def test_a_page_that_tells_the_truth_passes(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 1\n```\n\n```python\nimport asyncio\nawait asyncio.sleep(0)\n"
        "print(x)  # prints 1\n```\n\n```console\n$ holdfast migrate --url sqlite:///a.db\n"
        "$ holdfast lease show x --url sqlite:///a.db\n"
        "holdfast: no lease\n$ echo $?\n66\n$ make demo\n```\n"
    )
    ran = run_page(read(page), tmp_path)
    assert (ran["python"], ran["prints"], ran["console"], ran["command"]) == (2, 1, 1, 4)


def test_a_block_that_is_never_closed_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n")
    with pytest.raises(ValueError, match="never closed"):
        read(page)
