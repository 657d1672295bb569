"""``python -m outlive.demo``: shows the main job end to end, on a file that is removed after."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from outlive.demo.story import tell_story


def main() -> int:
    """Run the demonstration in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="outlive-demo-") as folder:
        return asyncio.run(tell_story(Path(folder) / "demo.db"))


if __name__ == "__main__":
    sys.exit(main())
