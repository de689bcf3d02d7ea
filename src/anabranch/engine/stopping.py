"""Stopping: a request to everything that runs now, never a state of the session."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Stop(threading.Event):
    """Set it to end everything that runs or follows now. It does not affect what begins later.

    Each of those holds an event of its own, so one that ends, or begins, changes nothing for the others. The flag
    itself is up while something that was told to stop is still under way.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._under_way: list[threading.Event] = []

    def set(self) -> None:
        # A signal handler calls this too, and may have interrupted the lock's holder in the same thread.
        for each in list(self._under_way):
            each.set()
            super().set()

    @contextlib.contextmanager
    def watch(self, own: threading.Event | None = None) -> Iterator[threading.Event]:
        """The event that stops the code inside the block."""
        own = own or threading.Event()
        with self._lock:
            self._under_way.append(own)
        try:
            yield own
        finally:
            with self._lock:
                self._under_way.remove(own)
                if not any(each.is_set() for each in self._under_way):
                    self.clear()
