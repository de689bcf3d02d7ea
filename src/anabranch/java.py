"""Find a Java that Spark can use, without starting Spark.

Looks at JAVA_HOME, then PATH, then the usual places, and asks each candidate for its version and its modules.
Needs nothing but the standard library, so that `python -m anabranch.java` works before anything is installed;
it must not know Spark or the engine.
"""

from __future__ import annotations

import glob
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import EnvironmentProblem

NEEDED_VERSION = 17
#: Spark's launcher passes --add-modules=jdk.incubator.vector; a Java without that module refuses to start.
NEEDED_MODULE = "jdk.incubator.vector"
TIMEOUT_SECONDS = 20.0

_VERSION = re.compile(r'version "([^"]+)"')
_EXECUTABLE = "java.exe" if os.name == "nt" else "java"


@dataclass(frozen=True)
class JavaFound:
    """A Java that can run Spark."""

    path: Path
    home: Path
    version: str

    @property
    def major(self) -> int:
        return major_version(self.version) or 0


@dataclass(frozen=True)
class JavaRefused:
    """A Java that was looked at and cannot run Spark."""

    path: Path
    reason: str


def major_version(text: str) -> int | None:
    """The feature number of a Java version.

    >>> major_version("1.8.0_402"), major_version("17.0.15"), major_version("25-ea")
    (8, 17, 25)
    """
    numbers = re.findall(r"\d+", text)
    if not numbers:
        return None
    if numbers[0] == "1" and len(numbers) > 1:
        return int(numbers[1])
    return int(numbers[0])


def parse_version(output: str) -> str | None:
    """The version in the output of `java -version`, in the form its makers gave it."""
    match = _VERSION.search(output)
    return match.group(1) if match else None


def candidates(environ: Mapping[str, str], places: list[str] | None = None) -> Iterator[Path]:
    """Paths of java executables that exist, in the order in which they are to be tried, each once."""
    seen: set[Path] = set()
    for path in _all_candidates(environ, places):
        if not path.is_file():
            continue
        real = path.resolve()
        if real not in seen:
            seen.add(real)
            yield path


def _all_candidates(environ: Mapping[str, str], places: list[str] | None) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]) / "bin" / _EXECUTABLE
    on_path = shutil.which(_EXECUTABLE, path=environ.get("PATH", ""))
    if on_path:
        yield Path(on_path)
    for pattern in usual_places() if places is None else places:
        # The newest first; names of one vendor sort by version well enough.
        for name in sorted(glob.glob(os.path.expanduser(pattern)), reverse=True):
            yield Path(name) / "bin" / _EXECUTABLE


def usual_places() -> list[str]:
    """Globs of Java homes on this system."""
    if sys.platform == "darwin":
        found = _output(["/usr/libexec/java_home", "-v", f"{NEEDED_VERSION}+"])
        homes = [] if found is None or found[0] != 0 else [found[1].strip()]
        return [
            *homes,
            "/Library/Java/JavaVirtualMachines/*/Contents/Home",
            "/opt/homebrew/opt/openjdk*",
            "/usr/local/opt/openjdk*",
        ]
    if os.name == "nt":
        return [r"C:\Program Files\Eclipse Adoptium\*", r"C:\Program Files\Java\*"]
    return ["/usr/lib/jvm/*", "/usr/java/*", "/opt/java/*", "/opt/jdk*", "~/.sdkman/candidates/java/*"]


def examine(path: Path, timeout: float = TIMEOUT_SECONDS) -> JavaFound | JavaRefused:
    """Ask one java executable what it is."""
    answer = _output([str(path), "-version"], timeout)
    if answer is None:
        return JavaRefused(path, "does not start")
    version = parse_version(answer[1])
    major = None if version is None else major_version(version)
    if version is None or major is None:
        return JavaRefused(path, "does not report its version")
    if major < NEEDED_VERSION:
        return JavaRefused(path, f"is version {version}")
    modules = _output([str(path), "--list-modules"], timeout)
    if modules is None or not re.search(rf"^{re.escape(NEEDED_MODULE)}(@|$)", modules[1], re.MULTILINE):
        return JavaRefused(path, f"is version {version} but lacks the module {NEEDED_MODULE}")
    return JavaFound(path, _home_of(path), version)


def _home_of(path: Path) -> Path:
    # /usr/bin/java is a chain of links on most systems; the home is where it ends.
    return path.resolve().parent.parent


def _output(command: list[str], timeout: float = TIMEOUT_SECONDS) -> tuple[int, str] | None:
    """The exit code and all text of a command, or None if it cannot be run or does not end."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.returncode, done.stdout.decode("utf-8", "replace")


def find(
    environ: Mapping[str, str] | None = None,
    places: list[str] | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> JavaFound:
    """The first Java that can run Spark, or EnvironmentProblem with what was found and how to get one."""
    refused: list[JavaRefused] = []
    for path in candidates(os.environ if environ is None else environ, places):
        answer = examine(path, timeout)
        if isinstance(answer, JavaFound):
            return answer
        refused.append(answer)
    raise EnvironmentProblem(_complaint(refused), hint=f"to get one: {how_to_install()}")


def _complaint(refused: list[JavaRefused]) -> str:
    needed = f"Spark needs Java {NEEDED_VERSION} or newer with the module {NEEDED_MODULE}"
    if not refused:
        return f"no Java was found (JAVA_HOME, PATH and the usual places were searched); {needed}"
    found = "; ".join(f"{one.path} {one.reason}" for one in refused)
    return f"no fitting Java was found; {needed}\n  found: {found}"


def how_to_install(system: str | None = None, os_release: str | None = None) -> str:
    """The command that installs a fitting Java on this system."""
    system = platform.system() if system is None else system
    if system == "Darwin":
        return "brew install openjdk@17"
    if system == "Windows":
        return "winget install EclipseAdoptium.Temurin.17.JDK"
    if os_release is None:
        try:
            os_release = Path("/etc/os-release").read_text(encoding="utf-8")
        except OSError:
            os_release = ""
    families = set()
    for line in os_release.splitlines():
        key, _, value = line.partition("=")
        if key in ("ID", "ID_LIKE"):
            families.update(value.strip().strip("\"'").lower().split())
    if families & {"debian", "ubuntu"}:
        return "sudo apt-get install openjdk-17-jre-headless (or a newer one, such as openjdk-21-jre-headless)"
    if families & {"fedora", "rhel", "centos", "amzn"}:
        return "sudo dnf install java-21-openjdk-headless (or java-17-openjdk-headless)"
    if families & {"alpine"}:
        return "sudo apk add openjdk17-jre-headless"
    if families & {"arch"}:
        return "sudo pacman -S jre17-openjdk-headless"
    if families & {"suse", "opensuse", "sles"}:
        return "sudo zypper install java-17-openjdk-headless"
    return "install a JDK 17 or newer from https://adoptium.net and set JAVA_HOME to it"


def use(found: JavaFound) -> None:
    """Make Spark take this Java: set JAVA_HOME unless Spark would come to the same one by itself."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / _EXECUTABLE).resolve() == found.path.resolve():
        return
    on_path = shutil.which(_EXECUTABLE)
    if not home and on_path and Path(on_path).resolve() == found.path.resolve():
        return
    os.environ["JAVA_HOME"] = str(found.home)


def ensure() -> JavaFound:
    """Find a Java and have Spark use it: to be called before a Spark session is made."""
    found = find()
    use(found)
    return found


def main(arguments: list[str]) -> int:
    try:
        found = find()
    except EnvironmentProblem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    if "--quiet" not in arguments:
        print(f"Java {found.version} at {found.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
