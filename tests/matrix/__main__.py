"""`make matrix`: the tests that depend most on PySpark and Python, in every allowed environment.

Environments are made below `.venv/matrix` and kept. If a Python is not on this machine, the run
fails: every allowed version must be tested.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.matrix.versions import ROOT, Pair, pairs

TESTS = ("tests/unit", "tests/spark", "tests/integration/stream_source", "tests/integration/leader")
HOME = ROOT / ".venv" / "matrix"
LOCK = ROOT / "requirements.lock"
PARALLEL = ("-n", "logical", "--maxprocesses", "4", "--dist", "loadfile")


def main() -> int:
    """Run all pairs. Return 1 unless every pair ran and passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--tests", nargs="+", default=TESTS, help="for pytest")
    parser.add_argument("--pair", help="only this one, as 3.12/4.3.0")
    options = parser.parse_args()
    chosen = [Pair(*options.pair.split("/"))] if options.pair else pairs()
    arguments = [*shlex.split(os.environ.get("PYTEST_ARGS", "")), *options.tests]
    results = {pair: _outcome(pair, arguments) for pair in chosen}
    for pair, outcome in results.items():
        print(f"{pair}: {outcome}")
    passed = sum(outcome == "passed" for outcome in results.values())
    absent = sum(outcome.startswith("not run") for outcome in results.values())
    failed = len(results) - passed - absent
    print(f"{len(results)} environments, {passed} passed, {failed} failed, {absent} not run")
    return int(passed != len(results))


def _outcome(pair: Pair, arguments: list[str]) -> str:
    python = _interpreter(pair.python)
    if python is None:
        return f"not run: there is no Python {pair.python} on this machine"
    print(f"== {pair}", flush=True)
    home = HOME / f"python{pair.python}-pyspark{pair.pyspark}"
    try:
        _install(python, home, pair)
        ended = subprocess.run(
            [
                home / "bin/python",
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                *PARALLEL,
                *arguments,
            ],
            cwd=ROOT,
            env=os.environ | {"PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"},
            check=False,
        )
    except subprocess.CalledProcessError as error:
        return f"failed: {error}"
    return "passed" if ended.returncode == 0 else f"failed: pytest ended with {ended.returncode}"


def _interpreter(release: str) -> str | None:
    """The interpreter of a minor release: this one, one on the PATH, or one of pyenv's."""
    if sys.version_info[:2] == tuple(map(int, release.split("."))):
        return sys.executable
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = sorted((root / "versions").glob(f"{release}.*/bin/python{release}"))
    found = [str(kept[-1])] if kept else []
    found += [path] if (path := shutil.which(f"python{release}")) else []
    return next(filter(_runs, found), None)


def _runs(python: str) -> bool:
    """Whether it is an interpreter and no shim that names versions which are not selected."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def _install(python: str, home: Path, pair: Pair) -> None:
    """Install the environment of the lock file with this PySpark. It is kept for later runs."""
    stamp = home / ".installed"
    if stamp.exists() and stamp.stat().st_mtime > LOCK.stat().st_mtime:
        return
    subprocess.run([python, "-m", "venv", "--clear", home], check=True)
    pip: list[str | Path] = [home / "bin/python", "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check"]
    rest = home / "requirements.txt"
    rest.write_text(_without(LOCK.read_text(), {"pyspark", "py4j"}))
    subprocess.run([*pip, "--no-deps", "--require-hashes", "-r", rest], check=True)
    subprocess.run([*pip, f"pyspark=={pair.pyspark}"], check=True)
    subprocess.run([*pip, "--no-deps", "-e", ROOT], check=True)
    stamp.touch()


def _without(lock: str, names: set[str]) -> str:
    """A lock file without some packages: a requirement continues after lines with \\."""
    kept, is_left_out = [], False
    for line in lock.splitlines(keepends=True):
        if not line[0].isspace():
            is_left_out = line.partition("==")[0].partition("[")[0] in names
        if not is_left_out:
            kept.append(line)
    return "".join(kept)


if __name__ == "__main__":
    sys.exit(main())
