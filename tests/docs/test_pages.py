"""Every block that a reader could copy is run: Python, shell, SQL and TOML."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, SERVICES, Block, Page, guides, pages, read
from tests.process.nursery import Nursery, Program

RUN = frozenset({"python", "console", "sh", "sql", "toml"})
# Shown, never run: output, file listings, diagrams, and settings of other programs.
SHOWN = frozenset({"csharp", "text", "ini", "promql", "yaml", "json"})

# A page that has closed its output has nothing left to do.
END_LIMIT_S = 20.0

GUIDES = {page.name: page for page in guides() if any(b.language in RUN for b in page.blocks)}


def pages_with(service: str) -> list[str]:
    return [name for name, page in GUIDES.items() if any(service in b.marks for b in page.blocks)]


@pytest.fixture
def run_page(nursery: Nursery, tmp_path: Path) -> Callable[..., Counter[str]]:
    """Runs a page in the folder of the test; what it says is compared with what happens."""

    def run(page: Page, **urls: str) -> Counter[str]:
        # The driver that the page on drivers writes is the example that the conformance tests run.
        driver = "from tests.conformance.example_driver import FileFactory as FileFactory\n"
        (tmp_path / "outlive_file.py").write_text(driver)
        program = Program(
            module="tests.docs.run_page",
            arguments=[str(page.path), *(f"{service}={url}" for service, url in urls.items())],
            folder=tmp_path,
            env=environ(),
        )
        code, printed, errors = run_to_its_end(nursery, program)
        if code:
            pytest.fail(f"{page.name}\n{printed[-2000:]}\n{errors[-4000:]}", pytrace=False)
        return Counter(json.loads(printed.splitlines()[-1]))

    return run


def environ() -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if not name.startswith("OUTLIVE_")}
    found["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{found.get('PATH', '')}"
    return found | {"PYTHONPATH": str(ROOT)}


def run_to_its_end(nursery: Nursery, program: Program) -> tuple[int, str, str]:
    """The exit code of ``program``, what it printed, and what it said of errors."""
    with tempfile.TemporaryFile("w+") as errors:
        process = nursery.start(program, errors.fileno())
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            with process.stdout as stdout:
                printed = stdout.read()
            code = process.wait(END_LIMIT_S)
        finally:
            process.kill()
        errors.seek(0)
        return code, printed, errors.read()


@pytest.mark.parametrize("name", sorted(GUIDES))
def test_every_block_of_the_page_runs(name, run_page):
    page = GUIDES[name]
    ran = run_page(page)
    assert sum(ran[language] for language in RUN) == count_wanted(page)


def count_wanted(page: Page, *services: str) -> int:
    """How many blocks run where only ``services`` are there."""
    wanted = [b for b in page.blocks if b.language in RUN and b.marks & SERVICES <= {*services}]
    return len(wanted)


@pytest.mark.service
@pytest.mark.parametrize("name", pages_with("postgres"))
def test_every_block_for_postgres_runs(name, run_page, postgres_url):
    page = GUIDES[name]
    ran = run_page(page, postgres=postgres_url)
    assert sum(ran[language] for language in RUN) == count_wanted(page, "postgres")


@pytest.mark.service
@pytest.mark.parametrize("name", pages_with("redis"))
def test_every_block_for_redis_runs(name, run_page, redis_url):
    page = GUIDES[name]
    ran = run_page(page, redis=redis_url)
    assert sum(ran[language] for language in RUN) == count_wanted(page, "redis")


@pytest.mark.service
@pytest.mark.parametrize("name", pages_with("azblob"))
def test_every_block_for_azure_blob_storage_runs(name, run_page, azurite_server):
    page = GUIDES[name]
    ran = run_page(page, azblob=azurite_server.url_of("documented"))
    assert sum(ran[language] for language in RUN) == count_wanted(page, "azblob")


@pytest.mark.service
@pytest.mark.parametrize("name", pages_with("cosmos"))
def test_every_block_for_azure_cosmos_db_runs(name, run_page, cosmos_emulator):
    page = GUIDES[name]
    ran = run_page(page, cosmos=cosmos_emulator.new_url())
    assert sum(ran[language] for language in RUN) == count_wanted(page, "cosmos")


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
    assert len(pages_with("postgres")) >= 2
    assert len(pages_with("redis")) >= 1
    assert len(pages_with("azblob")) >= 1
    assert len(pages_with("cosmos")) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "```python\nraise ValueError\n```\n",
        "```python\nimport asyncio\nawait asyncio.sleep(0)\nraise ValueError\n```\n",
        "```python\nprint(1)  # prints 2\n```\n",
        "```console\n$ outlive lease show never --url sqlite:///a.db\n```\n",
        "```console\n$ outlive --version\nsomething else\n```\n",
        "```console\n$ outlive --version\n$ echo $?\n3\n```\n",
        "```console\n$ make coffee\n```\n",
        "```console\n$ pip install outlive[coffee]\n```\n",
        "```console\n$ rm -r x\n```\n",
        "```sql\nSELEKT 1\n```\n",
        "```toml\nx = \n```\n",
        "<!-- test: until-stopped -->\n```python\nprint(1)\n```\n",
        "<!-- test: until-stopped -->\n```console\n$ outlive --version\n```\n",
        '```python title="x.py"\nx = \n```\n',
    ],
)
def test_a_page_that_lies_is_found(text, tmp_path, run_page):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(pytest.fail.Exception):
        run_page(read(page))


def test_a_page_that_tells_the_truth_passes(tmp_path, run_page):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 1\n```\n\n```python\nimport asyncio\nawait asyncio.sleep(0)\n"
        "print(x)  # prints 1\n```\n\n```console\n$ outlive migrate --url sqlite:///a.db\n"
        "$ outlive lease show x --url sqlite:///a.db\n"
        "outlive: no lease\n$ echo $?\n66\n$ make demo\n```\n"
    )
    ran = run_page(read(page))
    assert (ran["python"], ran["prints"], ran["console"], ran["command"]) == (2, 1, 1, 4)


def test_blocks_of_one_title_are_one_file(tmp_path, run_page):
    page = tmp_path / "page.md"
    page.write_text(
        '```python title="shop.py"\nx = 1\n```\n\n```python title="shop.py"\ny = x + 1\n```\n\n'
        "```python\nfrom shop import y\nprint(y)  # prints 2\n```\n"
    )
    assert run_page(read(page))["prints"] == 1


def test_a_block_that_is_never_closed_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n")
    with pytest.raises(ValueError, match="never closed"):
        read(page)
