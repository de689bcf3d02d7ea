"""An open home with all its components, each created on first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from anabranch.engine.core import Core

if TYPE_CHECKING:
    from anabranch.engine.driver_changes import DriverChanges
    from anabranch.engine.functions import Functions
    from anabranch.engine.hot import Hot
    from anabranch.engine.kernels import Kernels
    from anabranch.engine.numbering import Arrivals
    from anabranch.engine.sinks import Sinks
    from anabranch.engine.table_cache import TableCache
    from anabranch.engine.trigger import Timers


class Home(Core):
    @cached_property
    def timers(self) -> Timers:
        from anabranch.engine.trigger import Timers

        return Timers(self)

    @cached_property
    def table_cache(self) -> TableCache:
        from anabranch.engine.table_cache import TableCache

        return TableCache(self)

    @cached_property
    def hot(self) -> Hot:
        from anabranch.engine.hot import Hot

        return Hot(self)

    @cached_property
    def arrivals(self) -> Arrivals:
        from anabranch.engine.numbering import Arrivals

        return Arrivals(self.ledger)

    @cached_property
    def driver_changes(self) -> DriverChanges:
        from anabranch.engine.driver_changes import DriverChanges

        return DriverChanges()

    @cached_property
    def kernels(self) -> Kernels:
        from anabranch.engine.kernels import Kernels

        return Kernels(self)

    @cached_property
    def functions(self) -> Functions:
        from anabranch.engine.functions import Functions

        return Functions(self)

    @cached_property
    def sinks(self) -> Sinks:
        from anabranch.engine.sinks import Sinks

        return Sinks(self)

    def close(self) -> None:
        for name in ("hot", "table_cache", "timers"):
            if name in self.__dict__:  # it was created
                getattr(self, name).close()
        super().close()
