"""Passwords and the like: options that say where a value is, never what it is.

`env('PG_PASSWORD')` is a variable of the environment, `secret('name')` a line `name = value` of the secrets file. Only
the reference goes into the ledger; the value is looked up when a source or sink is opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch.errors import SourceError, did_you_mean

#: The functions that options may call, and what each looks into.
STORES = ("env", "secret")
#: Names the secrets file; without it, it is in the home folder of the user.
FILE_VARIABLE = "ANABRANCH_SECRETS"
DEFAULT_FILE = Path("~/.config/anabranch/secrets")
HIDDEN = "***"


def reference(store: str, name: str) -> dict[str, str]:
    """The value of an option that is somewhere else, as the ledger keeps it."""
    return {store: name}


def is_reference(value: Any) -> bool:
    """Whether the value of an option says where the value is.

    >>> is_reference({"env": "PG_PASSWORD"}), is_reference("env")
    (True, False)
    """
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in STORES


def text_of(value: Mapping[str, str]) -> str:
    """A reference as it was written.

    >>> text_of({"env": "PG_PASSWORD"})
    "env('PG_PASSWORD')"
    """
    ((store, name),) = value.items()
    return f"{store}('{name}')"


def resolve(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the values that they refer to."""
    return {name: look_up(value) if is_reference(value) else value for name, value in options.items()}


def look_up(value: Mapping[str, str]) -> str:
    ((store, name),) = value.items()
    if store == "env":
        if name not in os.environ:
            raise SourceError(f"the environment has no {name}", hint=f"export {name}=... before starting anabranch")
        return os.environ[name]
    known = _of_file()
    if name not in known:
        hint = did_you_mean(name, known) or f"add a line: {name} = ..."
        raise SourceError(f"the secrets file {secrets_file()} has no {name}", hint=hint)
    return known[name]


def hide(text: str, options: Mapping[str, Any]) -> str:
    """A message without the secrets that options refer to: a server or driver may repeat what it was given."""
    for value in options.values():
        if is_reference(value):
            try:
                found = look_up(value)
            except SourceError:
                continue
            text = text.replace(found, HIDDEN) if found else text
    return text


def secrets_file() -> Path:
    return Path(os.environ.get(FILE_VARIABLE) or DEFAULT_FILE).expanduser()


def _of_file() -> dict[str, str]:
    path = secrets_file()
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = f"create it, with lines name = value, or name another one in {FILE_VARIABLE}"
        raise SourceError(f"there is no secrets file {path}", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"the secrets file {path} cannot be read", hint="check its permissions") from error
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise SourceError(f"others may read the secrets file {path}", hint=f"chmod 600 {path}")
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise SourceError(f"line {number} of the secrets file {path} is not name = value")
        found[name.strip()] = value.strip()
    return found
