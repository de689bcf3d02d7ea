"""Changes that are posted: in order, signed, again until they are taken; and changes that are printed."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.errors import SinkError, SqlError
from anabranch.sinks import webhook
from anabranch.sinks.base import Owner
from anabranch.sinks.webhook import Webhook
from anabranch.testing import Harness, crashing
from sinks.posting import changes, post

SECRET = "hunter2"


class Hook:
    """A server that takes what it is posted, after it has given the answers that it is told to."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.taken: list[tuple[str, dict[str, Any]]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                signed = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
                code = hook.answers.pop(0) if hook.answers else 200
                if self.headers[webhook.SIGNATURE] != f"sha256={signed}":
                    code = 401
                if code == 200:
                    hook.taken.append((self.headers[webhook.ID], json.loads(body)))
                self.send_response(code)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.options = {"url": f"http://127.0.0.1:{self.server.server_port}/token?x=1", "secret": SECRET, "batch": 2}


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    monkeypatch.setattr(webhook, "FIRST_WAIT", 0.001)
    made = Hook()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_killed_anywhere_every_version_is_posted_and_ids_tell_what_came_twice(hook: Hook, tmp_path: Path) -> None:
    hook.answers = [503, 429]
    for point in ("before-sink-commit:2", "after-sink-commit", "never"):
        crashing(point, post, hook.options, str(tmp_path))
    ids = [id for id, _ in hook.taken]
    assert ids.count("home/sink/2/1") == 2  # it was posted, and not yet noted
    first = [body for at, (id, body) in enumerate(hook.taken) if id not in ids[:at]]
    assert [(each["version"], each["batch"], each["kind"]) for each in first] == [
        (version, batch, "answer" if version == 1 else "changes") for version in range(1, 5) for batch in (1, 2)
    ]
    assert [row for each in first for row in each["rows"]] == [
        {"k": f"{version}{c}", "_diff": 1} for version in range(1, 5) for c in "abc"
    ]


def test_what_is_not_taken_is_told_without_secrets(hook: Hook, tmp_path: Path) -> None:
    target = Webhook(hook.options, Owner("home", "sink", tmp_path))
    for answers, tries, message in (([500] * 9, 4, "answered 500"), ([404] * 9, 1, "answered 404"), ([302], 1, "302")):
        hook.answers = list(answers)
        with pytest.raises(SinkError, match=message) as caught:
            target.apply(2, changes(("a", 1)))
        assert len(hook.answers) == len(answers) - tries
        assert "token" not in str(caught.value) and SECRET not in str(caught.value)
    hook.answers = []
    wrong = Webhook({**hook.options, "secret": "other"}, Owner("home", "sink", tmp_path))
    with pytest.raises(SinkError, match="answered 401"):
        wrong.apply(2, changes(("a", 1)))
    assert target.position() is None and not hook.taken
    for url in ("ftp://x/", "http://", "https://a b/", "https://x:99999/", "file:///etc/passwd"):
        with pytest.raises(Exception, match="http:// or https://"):
            Webhook({"url": url}, Owner("home", "sink", tmp_path))


@pytest.mark.spark
def test_views_are_posted_and_printed(
    hook: Hook, spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    monkeypatch.setenv("HOOK", hook.options["url"])
    with Harness(spark=spark) as home:
        home.sql("CREATE STREAM s (k STRING, n INT); CREATE VIEW v AS SELECT k, sum(n) AS n FROM s GROUP BY k")
        home.insert("s", [("a", 1)])
        home.sql("CREATE SINK posted FROM v INTO webhook(url => env('HOOK'), secret => env('HOOK_SECRET'))")
        home.sql("CREATE SINK printed FROM v INTO stdout()")
        hook.answers = [500] * 4
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            home.insert("s", [("a", 2)])
        home.insert("s", [("b", 5)])
        rows = [row for _, body in hook.taken for row in body["rows"]]
        expected = [("a", 1, 1), ("a", 1, -1), ("a", 3, 1), ("b", 5, 1)]
        assert sorted((row["k"], row["n"], row["_diff"]) for row in rows) == sorted(expected)
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sorted((row["k"], row["n"], row["_diff"]) for row in told) == sorted(expected)
        assert sorted(home.query("SELECT into, path FROM sys.sinks")) == [
            ("stdout", "standard output"), ("webhook", "env('HOOK')"),
        ]  # fmt: skip
        for text, message in (
            ("CREATE SINK x FROM v INTO webhook(url => 'ftp://x')", "http:// or https://"),
            ("CREATE SINK x FROM v INTO webhook(url => 'http://x', secret => 'abc')", "must not be written down"),
            ("CREATE SINK x FROM v INTO stdot()", "there is no sink stdot"),
        ):
            with pytest.raises(SqlError, match=message):
                home.sql(text)
