"""Which clock the boot-time clock is: one boot of one kernel, seen from one time namespace.

Owns the name of that clock. Two instants may be compared only if their domains are equal; a
different domain never means that something has expired.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

from outlive.errors import ConfigurationError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIME_NAMESPACE = Path("/proc/self/ns/time")


# Read once per process: some sandboxes invent a new boot id at every read, and the drivers of one
# process must agree with each other.
@cache
def clock_domain() -> str:
    """The domain of this process's boot-time clock.

    Raises:
        ConfigurationError: The system does not say which boot this is.
    """
    try:
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        boot = _boot_session()
    if not boot:
        raise ConfigurationError(
            "this system has no boot id (/proc/sys/kernel/random/boot_id), so the SQLite driver "
            "cannot detect a reboot; use another backend"
        )
    try:
        namespace = str(_TIME_NAMESPACE.readlink())
    except OSError:
        # Kernels before 5.6, and systems that are not Linux, have one time namespace only.
        namespace = "time"
    return f"{boot}/{namespace}"


def _boot_session() -> str:
    """The boot session of macOS, or nothing."""
    try:
        ask = ctypes.CDLL(None).sysctlbyname
    except (AttributeError, OSError):
        return ""
    buffer = ctypes.create_string_buffer(128)
    size = ctypes.c_size_t(len(buffer))
    if ask(b"kern.bootsessionuuid", buffer, ctypes.byref(size), None, 0) != 0:
        return ""
    return buffer.value.decode("ascii", "replace")
