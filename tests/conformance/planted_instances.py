"""The frame of planted instance stores: how one is opened, and the sound one beside them."""

from __future__ import annotations

from types import ModuleType

from outlive.drivers.memory import MemoryFactory
from outlive.drivers.memory.instance_store import MemoryInstanceStore


class PlantedInstanceFactory(MemoryFactory):
    """Opens memory drivers whose instance store is the given one."""

    def __init__(self, defect):
        self._defect = defect

    async def open(self, location, context):
        driver = await super().open(location, context)
        instances = self._defect(driver.instances._space, context.host, driver.jobs.step)
        instances.store = driver._store
        instances.attach(driver)
        driver.instances = instances
        return driver


class Defective(MemoryInstanceStore):
    """A sound store still: the control of the experiment."""

    caught_by: tuple[str, ...] = ()

    def attach(self, driver):
        pass

    @property
    def table(self):
        return self._space.instances

    def row(self, id_):
        return self.table.rows.get(id_)


def defects_of(*modules: ModuleType) -> tuple[type[Defective], ...]:
    """The stores with a mistake that stand in these modules."""
    return tuple(
        one
        for one in Defective.__subclasses__()
        if one.__module__ in {module.__name__ for module in modules}
    )
