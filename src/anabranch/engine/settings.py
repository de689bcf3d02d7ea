"""Settings of a session: SET, and those that `connect` and the environment give."""

from __future__ import annotations

from typing import Any, get_args

from anabranch.duck import DATABASE
from anabranch.engine.core import Core
from anabranch.engine.frames import translate
from anabranch.engine.place import PREFIX, Backend
from anabranch.engine.spark import check_setting
from anabranch.errors import NotSupported, UsageError, did_you_mean, nearest
from anabranch.sql.syntax import SetOption

#: The setting that says where work runs, as `connect(backend=...)` does.
BACKEND_SETTING, BACKEND_VARIABLE = "anabranch.backend", "ANABRANCH_BACKEND"
#: Whether Spark's tasks may run DuckDB.
KERNELS_SETTING, KERNELS_VARIABLE = "anabranch.kernels", "ANABRANCH_KERNELS"


def change_setting(core: Core, statement: SetOption) -> str:
    """Carry out SET; what is so now."""
    if statement.key.lower() == BACKEND_SETTING:
        core.place.backend = check_backend(statement.value)
        return f"{BACKEND_SETTING} is {statement.value}"
    if statement.key.lower() == KERNELS_SETTING:
        core.place.kernels = check_kernels(statement.value)
        return f"{KERNELS_SETTING} is {str(statement.value).lower()}"
    place, name = core.place, statement.key.lower().removeprefix(PREFIX)
    if statement.key.lower().startswith(PREFIX) and name in vars(place.limits):
        place.limits = place.limits.with_settings({name: statement.value})
        if name == "memory_bytes":
            DATABASE.use_memory(place.limits.memory_bytes)
        return f"{PREFIX}{name} is {getattr(place.limits, name):,}"
    if not statement.key.startswith("spark."):
        guess = nearest(name, ["backend", "kernels", *vars(place.limits)])
        known = f"there are {BACKEND_SETTING}, {KERNELS_SETTING} and limits; settings of Spark start with spark."
        raise NotSupported(
            f"there is no setting {statement.key}",
            text=statement.text,
            at=statement.span,
            hint=f"did you mean {PREFIX}{guess}?" if guess is not None else known,
        )
    check_setting(statement.key, statement.value)
    try:
        core.handed_out = True
        core.spark.conf.set(statement.key, statement.value)
    except Exception as error:
        raise translate(error) from error
    return f"{statement.key} is {statement.value}"


def check_kernels(given: Any) -> bool:
    if str(given).lower() not in ("on", "off"):
        raise UsageError(f"{KERNELS_SETTING} is 'on' or 'off', not {str(given)!r:.40}")
    return str(given).lower() == "on"


def check_backend(name: Any) -> Backend:
    known: tuple[Backend, ...] = get_args(Backend)
    for backend in known:
        if name == backend:
            return backend
    listed = " or ".join(map(repr, known))
    raise UsageError(f"a backend is {listed}, not {name!r}", hint=did_you_mean(str(name), known))
