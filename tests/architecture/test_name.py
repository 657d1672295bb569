"""The project has one name. The one it had before belongs to another, living package.

The words are built from parts, so that this file does not contain them.
"""

from __future__ import annotations

import re

from tests.architecture.sources import ROOT, tracked_files

# The package, the short name of a connected host, and the beginning of a bearer token.
FORMER = re.compile("|".join((r"hold" + r"fast", r"\bh" + r"f\b", r"\bh" + r"ft_")), re.IGNORECASE)


def test_no_file_speaks_of_the_former_name():
    found = []
    for path in tracked_files():
        name = path.relative_to(ROOT).as_posix()
        if FORMER.search(name):
            found.append(name)
        text = path.read_bytes().decode(errors="replace")
        lines = enumerate(text.splitlines(), 1)
        found += [
            f"{name}:{number} {line.strip()[:80]}" for number, line in lines if FORMER.search(line)
        ]
    assert found == []


def test_the_search_finds_what_it_looks_for():
    for text in ("import hold" + "fast", "Hold" + "fastError", "await h" + "f.run()", "h" + "ft_x"):
        assert FORMER.search(text)
    for text in ("outlive", "half", "shift_"):
        assert not FORMER.search(text)
