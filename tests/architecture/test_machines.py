"""No file speaks of the machine it was written on, or of where packages are fetched from.

The patterns bracket one letter of each word, so that this file does not contain the words.
"""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT, tracked_files

# The usual places of a developer's files. A path inside the repository may end the same way.
PLACES = ("work", "root", r"home/[a-z]\w*", r"Users/[A-Za-z]\w*", "private/var")
HOSTS = (
    r"py[p]i\.org",
    r"python[h]osted\.org",
    r"npm[j]s\.(?:org|com)",
    r"deb\.[d]ebian\.org",
    r"archive\.[u]buntu\.com",
    r"art[i]factory",
    r"registry\.[a-z0-9-]+\.[a-z]{2,}",
)
OPTIONS = ("index-[u]rl", "find-[l]inks", "trusted-[h]ost")

MACHINE_PATH = re.compile(rf"(?<![\w./~$}}*-])/(?:{'|'.join(PLACES)})(?![\w-])")
DOWNLOAD = re.compile("|".join((*HOSTS, *(f"--(?:extra-)?{option}" for option in OPTIONS))))


def text_files():
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            yield path.relative_to(ROOT).as_posix(), data.decode(errors="replace")


def found(pattern):
    return [
        f"{name}:{number} {line.strip()[:80]}"
        for name, text in text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_path_of_one_machine():
    assert found(MACHINE_PATH) == []


def test_no_file_names_a_download_host():
    assert found(DOWNLOAD) == []


def test_the_search_finds_what_it_looks_for():
    slash = "/"
    for path in (f"{slash}work/main/a.py", f'"{slash}root/x"', f"={slash}home/ann/x"):
        assert MACHINE_PATH.search(path)
    for path in (
        "src/outlive/work/queue.py",
        "/worker/next",
        "./root/x",
        f"~{slash}work/x",
        "/rooted",
    ):
        assert not MACHINE_PATH.search(path)
    dot, dashes = ".", "--"
    assert DOWNLOAD.search(f"https://pypi{dot}org/simple")
    assert DOWNLOAD.search(f"pip install {dashes}index-url x")
