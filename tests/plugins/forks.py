"""Keeps gRPC from crashing the servers and programs that tests start.

Tests import it themselves, before the driver can do so without its handlers of a fork. Owns the
variable by which a process, and all that it starts, is spared them.
"""

from __future__ import annotations

import os

# At the import of this module: gRPC looks once, while it is imported, which the first test may do.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
