"""A sink that posts the changes of a view: `INTO webhook(url => env('HOOK'), secret => env('HOOK_SECRET'))`.

A version goes out in batches, in order. Whoever takes them cannot be asked what arrived, so the last version that was
answered with 2xx is noted in the home. A version that was cut off is posted again, with the same ids: at least once.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.errors import SinkError
from anabranch.ledger import files
from anabranch.ledger.crash import reach
from anabranch.sinks.base import Owner
from anabranch.sinks.formats import encode
from anabranch.sinks.kinds import SinkKind
from anabranch.sources import secrets
from anabranch.sources.registry import Option, WrongOption
from anabranch.types import Field

#: The first wait before a batch is posted again, in seconds; each is twice the one before.
FIRST_WAIT = 0.2
SIGNATURE, ID = "X-Anabranch-Signature", "X-Anabranch-Id"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Changes go to the address that was given, and to no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Webhook:
    """An address that takes changes as JSON."""

    whole = False

    def __init__(self, options: Mapping[str, Any], owner: Owner) -> None:
        self.url = str(options["url"])
        self.secret = str(options["secret"]).encode() if "secret" in options else None
        self.batch = int(options.get("batch", 500))
        self.retries = int(options.get("retries", 3))
        self.timeout = float(options.get("timeout", 10))
        self.owner = owner
        self._note = owner.folder / "position.json"
        self._opener = urllib.request.build_opener(_NoRedirect)
        _check_url(self.url)

    def check(self, fields: Sequence[Field]) -> None:
        """Nothing is posted before there is something to say."""

    def tidy(self) -> None:
        """A note is written as a whole."""

    def position(self) -> int | None:
        try:
            return int(json.loads(self._note.read_bytes())["version"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = "delete it, and the whole answer is posted again"
            raise SinkError(f"the note {self._note} cannot be read: {error}", hint=hint) from error

    def start(self, version: int, rows: Any) -> None:
        self._post_all(version, rows, "answer")

    def apply(self, version: int, changes: Any) -> None:
        position = self.position()
        if position is None or position < version:
            self._post_all(version, changes, "changes")

    def _post_all(self, version: int, rows: Any, kind: str) -> None:
        count = -(-rows.num_rows // self.batch)
        for number in range(count):
            some = rows.slice(number * self.batch, self.batch)
            lines = encode(some, "json").decode().splitlines()
            head = {"sink": self.owner.sink, "kind": kind, "version": version, "batch": number + 1, "batches": count}
            body = f'{json.dumps(head)[:-1]}, "rows": [{",".join(lines)}]}}'
            self._post(body.encode(), f"{self.owner.home}/{self.owner.sink}/{version}/{number + 1}")
        reach("before-sink-commit")
        self._note.parent.mkdir(parents=True, exist_ok=True)
        files.replace(self._note, json.dumps({"version": version}).encode())
        reach("after-sink-commit")

    def _post(self, body: bytes, id: str) -> None:
        headers = {"Content-Type": "application/json", ID: id}
        if self.secret is not None:
            headers[SIGNATURE] = "sha256=" + hmac.new(self.secret, body, hashlib.sha256).hexdigest()
        for again in range(self.retries + 1):
            request = urllib.request.Request(self.url, body, headers, method="POST")
            try:
                with self._opener.open(request, timeout=self.timeout) as answer:
                    answer.read(1 << 16)
                return
            except urllib.error.HTTPError as error:
                error.close()
                reason, lasting = f"it answered {error.code}", error.code < 500 and error.code not in (408, 429)
            except (OSError, ValueError) as error:
                reason, lasting = str(getattr(error, "reason", error)), False
            if lasting or again == self.retries:
                hint = "what was not posted is posted after the next run"
                raise SinkError(f"{place(self.url)} did not take the changes: {reason}", hint=hint)
            time.sleep(FIRST_WAIT * 2**again)


def place(url: str) -> str:
    """An address for people, without what is secret in it: who, and everything behind the host.

    >>> place("https://me:pw@hooks.example.com:8443/services/T0/token?x=1")
    'https://hooks.example.com:8443'
    """
    found = urllib.parse.urlsplit(url)
    return f"{found.scheme}://{found.hostname}{f':{found.port}' if found.port else ''}"


def _check_url(url: str) -> None:
    try:
        found = urllib.parse.urlsplit(url)
        fits = found.scheme in ("http", "https") and found.hostname and (found.port or 1) and url.isprintable()
    except ValueError:
        fits = False
    if not fits or " " in url:
        raise WrongOption("url", "url must be an address that begins with http:// or https://")


def _check(options: Mapping[str, Any]) -> None:
    if isinstance(options.get("url"), str):
        _check_url(options["url"])


def _where(options: Mapping[str, Any]) -> str:
    url = options["url"]
    return secrets.text_of(url) if secrets.is_reference(url) else place(str(url))


KINDS = (
    SinkKind(
        name="webhook",
        doc="changes as JSON, posted to an address; at least once",
        example="webhook(url => env('HOOK'), secret => env('HOOK_SECRET'))",
        options=(
            Option(name="url", doc="the address", required=True),
            Option(name="secret", doc="signs what is posted (HMAC-SHA256)", secret=True),
            Option(name="batch", doc="changes in one request", type="whole", default=500, low=1, high=100_000),
            Option(name="retries", doc="how often a request is tried again", type="whole", default=3, low=0, high=10),
            Option(name="timeout", doc="seconds to wait for an answer", type="whole", default=10, low=1, high=600),
        ),
        open=Webhook,
        where=_where,
        check=_check,
    ),
)
