"""The console: the command line prints only through it.

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

#: A shorter wait needs no message.
SECONDS_UNNOTICED = 0.5
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


class Console:
    """The output streams and their styles."""

    def __init__(self, out: IO[str] | None = None, err: IO[str] | None = None) -> None:
        self._out = out
        self._err = err
        self.quiet = False
        self.debug = False
        self._status_width = 0

    # Each use reads sys.stdout and sys.stderr, which test runners and redirections replace.
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
        """The columns and lines of the terminal."""
        columns, rows = shutil.get_terminal_size((100, 30))
        return max(columns, 20), max(rows, 8)

    def write(self, text: str) -> None:
        """Write part of a result, unchanged."""
        self.out.write(text)

    def line(self, text: str = "") -> None:
        """Write a line of a result."""
        self.out.write(text + "\n")

    def flush(self) -> None:
        self.out.flush()

    @property
    def binary(self) -> IO[bytes]:
        """The stream for a binary result."""
        stream: IO[bytes] | None = getattr(self.out, "buffer", None)
        if stream is None:
            raise UsageError("standard output takes text only here")
        return stream

    def message(self, text: str) -> None:
        """Print a message for users; not for programs."""
        if not self.quiet:
            self._print(text)

    def warning(self, text: str) -> None:
        self._print(f"{self.style('warning:', 'yellow', self.err)} {text}")

    def error(self, text: str) -> None:
        self._print(f"{self.style('error:', 'red', self.err)} {text}")

    def trace(self, error: BaseException) -> None:
        """Print the stack trace, if the options request it."""
        if self.debug:
            self._print("".join(traceback.format_exception(error)).rstrip())

    def status(self, text: str) -> None:
        """Show a line on the terminal that the next one replaces; does nothing elsewhere."""
        if self.quiet or not self.err_is_terminal:
            return
        text = cut(clean(text), self.size[0] - 1)
        self.err.write("\r" + pad(text, max(self._status_width, width(text)), False))
        self.err.flush()
        self._status_width = width(text)

    @contextlib.contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show the reason for a wait on the terminal, if it takes noticeably long; removed afterwards.

        Inside, standard error may be redirected: the line goes to the stream of now.
        """
        if self.quiet or not self.err_is_terminal:
            yield
            return
        self.err.flush()
        terminal, over = os.dup(self.err.fileno()), threading.Event()

        def print_waiting() -> None:
            if not over.wait(SECONDS_UNNOTICED):
                wide = max(self._status_width, len(text))  # it replaces a status
                os.write(terminal, f"\r{pad(text, wide, False)}".encode())
                over.wait()
                os.write(terminal, f"\r{' ' * wide}\r".encode())

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
        # Results and messages share a terminal: keep them in order.
        if self.out_is_terminal:
            self.flush()
        self.end_status()
        self.err.write(text + "\n")
        self.err.flush()

    def style(self, text: str, style: str, stream: IO[str] | None = None) -> str:
        """The text in a style, if the stream shows styles."""
        stream = self.out if stream is None else stream
        if not _is_terminal(stream) or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            return text
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"

    def prepare(self) -> None:
        """Write results as UTF-8 with \\n in every locale, except on a terminal.

        Disable the logs of libraries, which would print stack traces among the answers.
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
        """Stdout has no reader any more: flushing the buffer at exit must not raise again."""
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
    """The text of an unexpected error, without the stack trace of Java in it."""
    kept = []
    for line in str(error).splitlines():
        if line.startswith(("\tat ", "JVM stacktrace", "Caused by:", "\t... ")):
            break
        if line.strip():
            kept.append(line.rstrip())
    return "\n".join([f"{type(error).__name__}: {kept[0]}", *kept[1:12]] if kept else [type(error).__name__])
