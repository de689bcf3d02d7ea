"""The console: everything the command line prints goes through one of these.

Results go to stdout, everything else to stderr. Colours only on a terminal and only if NO_COLOR is not set.
It must not know what a result or a run is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import IO

from anabranch.cli.tables import clean, cut, pad, width
from anabranch.errors import UsageError

#: What takes no longer needs no word.
SECONDS_UNNOTICED = 0.5
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


class Console:
    """Where text goes, and how it may look there."""

    def __init__(self, out: IO[str] | None = None, err: IO[str] | None = None) -> None:
        self._out = out
        self._err = err
        self.quiet = False
        self.debug = False
        self._status_width = 0

    # The streams are looked up at each use: test runners and redirections replace them.
    @property
    def out(self) -> IO[str]:
        return sys.stdout if self._out is None else self._out

    @property
    def err(self) -> IO[str]:
        return sys.stderr if self._err is None else self._err

    @property
    def out_is_terminal(self) -> bool:
        return _is_terminal(self.out)

    @property
    def err_is_terminal(self) -> bool:
        return _is_terminal(self.err)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal."""
        columns, rows = shutil.get_terminal_size((100, 30))
        return max(columns, 20), max(rows, 8)

    def write(self, text: str) -> None:
        """Part of a result, as it is."""
        self.out.write(text)

    def line(self, text: str = "") -> None:
        """A line of a result."""
        self.out.write(text + "\n")

    def flush(self) -> None:
        self.out.flush()

    @property
    def binary(self) -> IO[bytes]:
        """Where a result goes that is not text."""
        stream: IO[bytes] | None = getattr(self.out, "buffer", None)
        if stream is None:
            raise UsageError("standard output takes text only here")
        return stream

    def message(self, text: str) -> None:
        """What happened, for people; nothing that a program reads."""
        if not self.quiet:
            self._print(text)

    def warning(self, text: str) -> None:
        self._print(f"{self.style('warning:', 'yellow', self.err)} {text}")

    def error(self, text: str) -> None:
        self._print(f"{self.style('error:', 'red', self.err)} {text}")

    def trace(self, error: BaseException) -> None:
        """The stack trace; only for those who asked for it."""
        if self.debug:
            self._print("".join(traceback.format_exception(error)).rstrip())

    def status(self, text: str) -> None:
        """A line on the terminal that the next one replaces; does nothing elsewhere."""
        if self.quiet or not self.err_is_terminal:
            return
        text = cut(clean(text), self.size[0] - 1)
        self.err.write("\r" + pad(text, max(self._status_width, width(text)), False))
        self.err.flush()
        self._status_width = width(text)

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Say on the terminal what is being waited for, if it takes longer than people notice; gone when it is over.

        Inside, others may have turned standard error elsewhere: the line goes to where it is now.
        """
        if self.quiet or not self.err_is_terminal:
            yield
            return
        self.err.flush()
        terminal, over = os.dup(self.err.fileno()), threading.Event()

        def print_waiting() -> None:
            if not over.wait(SECONDS_UNNOTICED):
                os.write(terminal, text.encode())
                over.wait()
                os.write(terminal, f"\r{' ' * len(text)}\r".encode())

        teller = threading.Thread(target=print_waiting, daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()
            os.close(terminal)

    def end_status(self) -> None:
        if self._status_width:
            self.err.write("\n")
            self._status_width = 0

    def _print(self, text: str) -> None:
        # Results and messages share a terminal: keep them in the order in which they were written.
        if self.out_is_terminal:
            self.flush()
        self.end_status()
        self.err.write(text + "\n")
        self.err.flush()

    def style(self, text: str, style: str, stream: IO[str] | None = None) -> str:
        """The text in a style, where the stream shows styles."""
        stream = self.out if stream is None else stream
        if not _is_terminal(stream) or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            return text
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"

    def prepare(self) -> None:
        """Results are UTF-8 with plain line ends whatever the locale says, unless a terminal shows them.

        What libraries log is for programs that ask for it: on a terminal it is a stack trace among the answers.
        """
        if not logging.getLogger().handlers:
            logging.getLogger().addHandler(logging.NullHandler())
        reconfigure = getattr(self.out, "reconfigure", None)
        if reconfigure is None:
            return
        if self.out_is_terminal:
            reconfigure(errors="replace")
        else:
            reconfigure(encoding="utf-8", newline="\n")

    def give_up_output(self) -> None:
        """Nobody reads stdout any more: what is still buffered must not raise again at exit."""
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.out.fileno())
            os.close(null)
        except (OSError, ValueError):
            pass


def _is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def describe(error: BaseException) -> str:
    """An error that nobody foresaw, without the stack trace that Java puts into its text."""
    kept = []
    for line in str(error).splitlines():
        if line.startswith(("\tat ", "JVM stacktrace", "Caused by:", "\t... ")):
            break
        if line.strip():
            kept.append(line.rstrip())
    return "\n".join([f"{type(error).__name__}: {kept[0]}", *kept[1:12]] if kept else [type(error).__name__])
