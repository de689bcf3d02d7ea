"""Input from a terminal: history, completion of names and keywords, statements over several lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from anabranch.cli.shell import is_complete
from anabranch.sql.text import words

#: The history of statements, in the home directory of the user.
HISTORY = ".anabranch_history"

PROMPT, CONTINUED = "anabranch> ", "        -> "
WORDS = sorted(
    words(
        """SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT JOIN LEFT RIGHT FULL OUTER ON USING UNION INTERSECT EXCEPT
        ALL DISTINCT ASOF MATCH_CONDITION TOLERANCE SYSTEM_TIME WITH AS CASE WHEN THEN ELSE END AND OR NOT IN EXISTS
        BETWEEN LIKE IS NULL INTERVAL TIMESTAMP CREATE STREAM TABLE VIEW REPLACE DROP CASCADE INSERT INTO VALUES
        UPDATE SET DELETE COPY REFRESH ADVANCE TO WATERMARK FOR EMIT WINDOW CLOSE TRIGGER SHOW STREAMS TABLES VIEWS
        SOURCES DESCRIBE EXPLAIN TUMBLE HOP CUMULATE SESSION DESCRIPTOR window_start window_end window_time sys.runs
        sys.progress sys.views sys.nodes sys.tables sys.bad_rows"""
    )
)
_WORD = re.compile(r"[\w.\\]+$")


class Words(Completer):
    """Names of the home first, then keywords of SQL."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        found = _WORD.search(document.text_before_cursor)
        if found is None:
            return
        start = found.group()
        for word in dict.fromkeys([*self._names(), *WORDS]):
            if word.lower().startswith(start.lower()) and word != start:
                shown = word.lower() if start.islower() and word in WORDS else word
                yield Completion(shown, start_position=-len(start))


class LineEditor:
    """Reads statements from a terminal."""

    def __init__(self, history: Path, names: Callable[[], Iterable[str]]) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_history(history),
            completer=Words(names),
            complete_while_typing=False,
            lexer=PygmentsLexer(SqlLexer),
            multiline=Condition(lambda: not is_complete(get_app().current_buffer.text)),
            prompt_continuation=CONTINUED,
        )

    def read(self) -> str:
        return self._session.prompt(PROMPT)


def _history(path: Path) -> History:
    """The history, in a file that only the user can read: statements may contain secrets."""
    try:
        path.touch(mode=0o600)
        path.open("a").close()
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
