"""Ctrl-C: the first one asks for a stop between runs, the second one aborts. Other signals end the process in order.

Knows signals and an event, not what is being stopped.
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

    `cancel` is then called too, from another thread: this one may be waiting for what is to be cancelled.
    """

    def __init__(self, console: Console, stop: threading.Event, cancel: Callable[[], None], *, graceful: bool) -> None:
        self._console = console
        self._stop = stop
        self._cancel = cancel
        self._previous: Any = None
        self.graceful = graceful
        self.asked = False
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
            # What was cancelled failed in some way of its own; the reason is the interrupt.
            raise KeyboardInterrupt from error

    def install(self) -> None:
        """Take Ctrl-C. A starting SparkContext puts its own handler in place: call this again after it."""
        if _in_main_thread():
            signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self.graceful:
            self._raised = True
            threading.Thread(target=self._cancel, daemon=True).start()
            raise KeyboardInterrupt
        self.asked = True
        self._stop.set()
        # The signal may have come in the middle of a write to the same stream, which refuses a second one.
        with contextlib.suppress(RuntimeError):
            self._console.message("stopping after this run")


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise SystemExit: on the way out homes are closed, and temporary ones removed."""
    if not _in_main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        for each in before:  # a second one while this one is dealt with changes nothing
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
