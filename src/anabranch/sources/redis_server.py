"""What sources and sinks share that talk to a Redis server: options, connections, errors, patterns of keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anabranch.errors import SourceError
from anabranch.sources.lookup import Unreachable
from anabranch.sources.registry import Option
from anabranch.sources.secrets import HIDDEN

if TYPE_CHECKING:
    from redis import Redis

#: How long to wait for a connection and for an answer, in seconds.
CONNECT_PATIENCE, PATIENCE = 5.0, 60.0
#: Keys in one pipeline.
AT_ONCE = 1000
SERVER_OPTIONS = (
    Option(name="host", doc="the server", default="localhost"),
    Option(name="port", doc="its port", type="whole", default=6379, low=1, high=65535),
    Option(name="database", doc="the number of the database", type="whole", default=0, low=0),
    Option(name="username", doc="who"),
    Option(name="password", doc="as in env('REDIS_PASSWORD')", secret=True),
    Option(name="tls", doc="whether the connection is encrypted", type="flag", default=False),
    Option(name="ca", doc="a file with the certificates that are trusted, with tls => true; else the system's"),
)


class Server:
    """A server and how to get in. A connection is made when one is needed, and kept for the next request."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._client: Redis | None = None
        self.name = f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"

    @contextmanager
    def open(self) -> Iterator[Redis]:
        """The server; what goes wrong with it is an error of ours, without the password."""
        from redis import Redis
        from redis import exceptions as wrong
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        options = self._options
        try:
            if self._client is None:
                self._client = Redis(
                    host=str(options.get("host", "localhost")),
                    port=int(options.get("port", 6379)),
                    db=int(options.get("database", 0)),
                    username=options.get("username"),
                    password=options.get("password"),
                    ssl=bool(options.get("tls", False)),
                    ssl_ca_certs=options.get("ca"),
                    socket_connect_timeout=CONNECT_PATIENCE,
                    socket_timeout=PATIENCE,
                    retry=Retry(NoBackoff(), 0),
                )
            yield self._client
        except (wrong.AuthenticationError, wrong.NoPermissionError) as error:
            reason = "it needs a password" if options.get("password") is None else self._message_of(error)
            raise SourceError(
                f"Redis at {self.name} refused the login: {reason}",
                hint="username => '...', password => env('REDIS_PASSWORD')",
            ) from error
        except (wrong.ConnectionError, wrong.TimeoutError) as error:
            raise Unreachable(f"Redis at {self.name}: {self._message_of(error)}", hint="is it running?") from error
        except wrong.RedisError as error:
            raise SourceError(f"Redis at {self.name}: {self._message_of(error)}") from error

    def _message_of(self, error: Exception) -> str:
        text, password = (str(error).splitlines() or [type(error).__name__])[0], self._options.get("password")
        return text.replace(str(password), HIDDEN) if password else text


def matcher(pattern: str) -> re.Pattern[bytes]:
    """Which keys a pattern of Redis' means: * and ?, [abc], [^a-z], and \\ before a sign that is meant as it is.

    >>> [bool(matcher("u:[0-3]*").fullmatch(key)) for key in (b"u:1", b"u:12", b"u:4")]
    [True, True, False]
    """
    text = pattern.encode()
    made, at = b"", 0
    while at < len(text):
        sign = text[at : at + 1]
        end = text.find(b"]", at + 2)
        if sign == b"*":
            made += b".*"
        elif sign == b"?":
            made += b"."
        elif sign == b"[" and end > 0:
            inside = text[at + 1 : end]
            apart, inside = (b"^", inside[1:]) if inside[:1] == b"^" else (b"", inside)
            made += b"[" + apart + re.sub(rb"([\\\[\]^&~|])", rb"\\\1", inside) + b"]"
            at = end
        else:
            at += sign == b"\\"
            made += re.escape(text[at : at + 1])
        at += 1
    return re.compile(made, re.DOTALL)


def literally(text: str) -> str:
    """A pattern for keys that begin with a text.

    >>> literally("a*b:")
    'a\\\\*b:*'
    """
    return re.sub(r"([\\*?\[\]^])", r"\\\1", text) + "*"
