"""Schedules without ``await``; see ``outlive.blocking``."""

from __future__ import annotations

from typing import Any

from outlive.blocking.calls import awaited
from outlive.blocking.work import Job
from outlive.runtime.portal import Portal
from outlive.work import schedules as schedules_module


class Schedules:
    """The schedules of one namespace; see ``outlive.Schedules``."""

    def __init__(self, schedules: schedules_module.Schedules, portal: Portal) -> None:
        self._twin = schedules
        self._portal = portal

    create = awaited(schedules_module.Schedules.create)
    get = awaited(schedules_module.Schedules.get)
    list = awaited(schedules_module.Schedules.list)
    pause = awaited(schedules_module.Schedules.pause)
    resume = awaited(schedules_module.Schedules.resume)

    def run_now(self, name: str) -> Job[Any]:
        """Enqueue a job of a schedule now."""
        return Job(self._portal.run(self._twin.run_now(name)), self._portal)

    delete = awaited(schedules_module.Schedules.delete)
