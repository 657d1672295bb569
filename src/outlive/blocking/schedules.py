"""Schedules without ``await``; see ``outlive.blocking``."""

from __future__ import annotations

from datetime import tzinfo
from typing import Any, Unpack

from outlive.blocking.work import Job
from outlive.model.options import Duration
from outlive.model.schedule import CATCH_UP_LIMIT, CatchUp
from outlive.runtime.portal import Portal
from outlive.work import schedules as schedules_module
from outlive.work.definition import CronTick
from outlive.work.drafting import JobOptions
from outlive.work.handler import Handler
from outlive.work.schedules import ScheduleInfo


class Schedules:
    """The schedules of one namespace; see ``outlive.Schedules``."""

    def __init__(self, schedules: schedules_module.Schedules, portal: Portal) -> None:
        self._schedules = schedules
        self._portal = portal

    def create(  # noqa: PLR0913 - the options are the public promise
        self,
        name: str,
        target: Handler[Any, Any] | str,
        payload: object = CronTick,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | tzinfo = "UTC",
        catch_up: CatchUp | str = CatchUp.SKIP,
        catch_up_limit: int = CATCH_UP_LIMIT,
        **options: Unpack[JobOptions],
    ) -> ScheduleInfo:
        """Keep a schedule under ``name``: at each tick, one job for the whole fleet."""
        return self._portal.run(
            self._schedules.create(
                name,
                target,
                payload,
                cron=cron,
                every=every,
                tz=tz,
                catch_up=catch_up,
                catch_up_limit=catch_up_limit,
                **options,
            )
        )

    def get(self, name: str) -> ScheduleInfo:
        """What is known of one."""
        return self._portal.run(self._schedules.get(name))

    def list(self, *, after: str | None = None, limit: int = 100) -> list[ScheduleInfo]:
        """A page of schedules by name."""
        return self._portal.run(self._schedules.list(after=after, limit=limit))

    def pause(self, name: str) -> ScheduleInfo:
        """Let it not fire until it is resumed."""
        return self._portal.run(self._schedules.pause(name))

    def resume(self, name: str) -> ScheduleInfo:
        """Let it fire again, from its next tick on."""
        return self._portal.run(self._schedules.resume(name))

    def run_now(self, name: str) -> Job[Any]:
        """Enqueue a job of a schedule now."""
        return Job(self._portal.run(self._schedules.run_now(name)), self._portal)

    def delete(self, name: str) -> None:
        """Remove it."""
        self._portal.run(self._schedules.delete(name))
