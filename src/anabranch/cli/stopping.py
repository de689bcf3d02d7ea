"""Ctrl-C: the first one requests a stop between runs, the second one aborts. Other signals end the process cleanly.

Knows signals and an event, not the work to stop.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from anabranch.cli.console import Console


class Interrupts:
    """While entered, Ctrl-C sets `stop`; without `graceful`, or the second time, it raises as usual.

    It then calls `cancel` too, from another thread: this one may be waiting for the work.
    """

    def __init__(self, console: Console, stop: threading.Event, cancel: Callable[[], None], *, graceful: bool) -> None:
        self._console = console
        self._stop = stop
        self._cancel = cancel
        self._previous: Any = None
        self.graceful = graceful
        self.requested = False
        self._raised = False

    def __enter__(self) -> Interrupts:
        if _in_main_thread():
            self._previous = signal.getsignal(signal.SIGINT)
        self.install()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if _in_main_thread() and self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
        if self._raised and isinstance(error, Exception):
            # The cancelled work raised another error; the cause is the interrupt.
            raise KeyboardInterrupt from error

    def install(self) -> None:
        """Install the handler of Ctrl-C. A starting SparkContext replaces it: call this again after that."""
        if _in_main_thread():
            signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested or not self.graceful:
            self._raised = True
            threading.Thread(target=self._cancel, daemon=True).start()
            raise KeyboardInterrupt
        self.requested = True
        self._stop.set()
        # The signal may arrive during a write to the same stream, which refuses a nested one.
        with contextlib.suppress(RuntimeError):
            self._console.message("stopping after this run")


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise SystemExit, so that homes are closed and temporary ones removed."""
    if not _in_main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        for each in before:  # ignore a second one during the exit
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    found = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    before = {each: handler for each, handler in found.items() if handler not in (signal.SIG_IGN, None)}  # as by nohup
    for each in before:
        signal.signal(each, end)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
