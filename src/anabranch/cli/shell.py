"""The shell: statements typed one after the other in an open home, and short commands that start with a backslash.

Knows nothing of terminals: lines come from a reader such as `line_editor`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from anabranch.cli.console import Console, describe
from anabranch.cli.exports import OUTPUTS as WRITTEN
from anabranch.cli.interface import Session
from anabranch.cli.outputs import NAMES
from anabranch.cli.stopping import Interrupts
from anabranch.cli.work import Target, show_results
from anabranch.errors import AnabranchError
from anabranch.sinks.exports import FORMATS

HELP = """\
End a statement with ;  and press Enter. Ctrl-C leaves a statement or stops a live answer, Ctrl-D ends the shell.
\\d          the streams, tables, views and sinks of this home
\\d NAME     the columns of one of them
\\o OUTPUT   how answers are printed: batch-table, csv, json, stream-json, live-table or live-csv; alone: as at first
\\timing     tell how long each statement took, or stop telling
\\q          end"""


#: The commands that end the shell.
ENDS = ("\\q", "quit", "exit")


class Lines(Protocol):
    """The source of statements."""

    def read(self) -> str:
        """The next statement or command. EOFError at the end, KeyboardInterrupt to discard the input."""
        ...


class Shell:
    """Reads, executes and prints; continues with the next statement after an error."""

    def __init__(
        self, console: Console, session: Session, lines: Lines, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._session = session
        self._lines = lines
        self._clock = clock
        self._output: str | None = None
        self._timing = False

    def run(self) -> None:
        """Run until the end of input or \\q."""
        while True:
            try:
                text = self._lines.read().strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text.rstrip(";").lower() in ENDS:
                return
            if text.startswith("\\"):
                self._command(text)
            elif text:
                self._statements(text)

    def _command(self, text: str) -> None:
        name, _, rest = text.rstrip(";").partition(" ")
        rest = rest.strip()
        if name == "\\timing":
            self._timing = not self._timing
            self._console.message(f"timing is {'on' if self._timing else 'off'}")
        elif name == "\\o":
            if not rest or rest in NAMES:
                self._output = rest or None
            elif rest in WRITTEN:
                self._console.error(
                    f"the shell prints answers, and {FORMATS[rest]} is a file\n"
                    f"  outside of it: anabranch -o {rest} --to FILE 'SELECT ...'"
                )
            else:
                self._console.error(f"there is no output {rest}\n  the outputs are {', '.join(NAMES)}")
        elif name == "\\d":
            if rest:
                self._statements(f"DESCRIBE {rest}")
                return
            for what in ("Streams", "Tables", "Views", "Sinks"):
                self._console.line(self._console.style(what, "bold"))
                self._statements(f"SHOW {what.upper()}")
        elif name in ("\\?", "\\h", "\\help"):
            self._console.line(HELP)
        else:
            self._console.error(f"there is no command {name}\n  \\? lists them")

    def _statements(self, text: str) -> None:
        begin = self._clock()
        try:
            with Interrupts(self._console, self._session.stop, self._session.cancel, graceful=False) as interrupts:
                show_results(self._console, self._session, text, Target(self._output), interrupts)
        except KeyboardInterrupt:
            self._console.end_status()
            self._console.message("stopped")
        except Exception as error:
            self._console.trace(error)
            self._console.error(str(error) if isinstance(error, AnabranchError) else describe(error))
        if self._timing:
            self._console.message(f"{self._clock() - begin:.2f} s")


def is_complete(text: str) -> bool:
    """Whether a text is a command, or a statement with its semicolon.

    >>> is_complete("SELECT 1"), is_complete("SELECT 1;"), is_complete("SELECT ';"), is_complete("\\\\timing")
    (False, True, False, True)
    """
    if not text.strip() or text.lstrip().startswith("\\") or text.strip().lower() in ENDS:
        return True
    from anabranch.sql.lexer import tokenize

    try:
        tokens = [token for token in tokenize(text) if token.text]
    except AnabranchError as error:
        return "is not closed" not in error.message  # a quote or a comment continues on the next line
    return not tokens or tokens[-1].text == ";"
