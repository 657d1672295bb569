"""The golden payload files: which there are, and the command that writes them anew.

    python -m tests.golden.payloads write

Run it after a deliberate change of the stored JSON, and review the difference: the former texts
must still be read, because stores hold them. A run of the tests never writes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tests.golden.cases import (
    attrs_classes,
    builtin_types,
    calls,
    dataclass_classes,
    msgspec_structs,
    pydantic_dataclasses,
    pydantic_models,
)
from tests.golden.cases.calls import Call
from tests.golden.cases.case import Case, Entry

FOLDER = Path(__file__).parent / "payloads"

GROUPS: Mapping[str, Sequence[Case] | Sequence[Call]] = {
    "attrs": attrs_classes.ATTRS,
    "builtin_containers": builtin_types.CONTAINERS,
    "builtin_scalars": builtin_types.SCALARS,
    "calls": calls.CALLS,
    "dataclasses": dataclass_classes.DATACLASSES,
    "msgspec": msgspec_structs.STRUCTS,
    "pydantic_aliases": pydantic_models.ALIASES,
    "pydantic_dataclasses": pydantic_dataclasses.DATACLASSES,
    "pydantic_fields": pydantic_models.FIELDS,
    "pydantic_generics": pydantic_models.GENERICS,
    "pydantic_nesting": pydantic_models.NESTING,
    "pydantic_rules": pydantic_models.RULES,
    "pydantic_unions": pydantic_models.UNIONS,
}


def read(name: str) -> dict[str, Entry]:
    """The golden file of a group, by case, with the texts as they stand in it."""
    found = msgspec.json.decode(
        (FOLDER / f"{name}.json").read_bytes(), type=dict[str, dict[str, msgspec.Raw]]
    )
    return {
        case: {key: bytes(raw).decode() for key, raw in entry.items()}
        for case, entry in found.items()
    }


def write(name: str, entries: Mapping[str, Entry]) -> None:
    """Write the golden file of a group. Texts stand in it as they are stored, not quoted."""
    cases = [f"  {_quoted(case)}: {_object(entry)}" for case, entry in entries.items()]
    text = "{\n" + ",\n".join(cases) + "\n}\n"
    (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


def _object(entry: Entry) -> str:
    lines = [f"    {_quoted(key)}: {text}" for key, text in entry.items()]
    return "{\n" + ",\n".join(lines) + "\n  }"


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def main() -> None:
    """Write the file of each group, and remove all other files."""
    if sys.argv[1:] != ["write"]:
        sys.exit(__doc__)
    for path in FOLDER.glob("*.json"):
        path.unlink()
    for name, cases in GROUPS.items():
        write(name, {case.name: case.entry() for case in cases})


if __name__ == "__main__":
    main()
