"""One instance of the inventory service: ``python examples/inventory``."""

from __future__ import annotations

import logging
import os
import sys

import uvicorn
from service import make_app
from settings import load

from outlive import JsonFormatter


def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    settings = load(os.environ)
    uvicorn.run(make_app(settings), host=settings.host, port=settings.port, log_config=None)


if __name__ == "__main__":
    main()
