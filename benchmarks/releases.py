"""How fast is a release, and is it faster than another release?

`python -m benchmarks.releases record 0.2.0` runs all benchmarks and writes their figures to
`benchmarks/history/0.2.0.json`. With `--checkout`, the scripts of this checkout measure the
packages of another directory. `python -m benchmarks.releases compare 0.1.0 0.2.0` prints the ratio
of each figure that both releases have. A ratio above 1 always means that the second release is
better, even for figures that are times.

Two releases are measured at different times, often on different machines. So if a script measured
the limit of the machine in the same run, the command also divides the figure by this limit. Without
such a limit, the ratio of two figures shows little, because the machines may differ. To compare two
checkouts on one machine within an hour, use `benchmarks.compare`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import SCRIPTS
from benchmarks.checkout import HERE, environment, scripts
from benchmarks.options import positive

HISTORY = Path(__file__).parent / "history"


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure of a release.

    Attributes:
        script: The script that printed the figure.
        question: The name of the figure.
        value: Median of the rounds, in `unit`.
        limit: The limit of the machine in the same run, in `unit`, or None if no limit was
          measured.
    """

    script: str
    question: str
    value: float
    unit: str
    lower_is_better: bool
    limit: float | None

    @property
    def name(self) -> str:
        return f"{self.script}: {self.question}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of a figure of a newer release to the same figure of an older release.

    Attributes:
        plain: The ratio of the two values. If it is above 1, the newer release is better.
        to_limit: The ratio of the values divided by their limits, or None if a limit is missing.
    """

    name: str
    plain: float
    to_limit: float | None


def read(version: str, folder: Path = HISTORY) -> list[Measured]:
    """Return the figures of a release.

    Raises:
        SystemExit: There is no file of that release. The message lists the existing releases.
    """
    path = folder / f"{version}.json"
    if not path.exists():
        there = ", ".join(sorted(each.stem for each in folder.glob("*.json"))) or "none"
        raise SystemExit(f"no figures of release {version}; the releases with figures are: {there}")
    fields = Measured.__dataclass_fields__
    figures = json.loads(path.read_text())["figures"]
    return [Measured(**{name: figure[name] for name in fields}) for figure in figures]


def ratios(old: list[Measured], new: list[Measured]) -> list[Ratio]:
    """Return a ratio for each figure that both releases have, in the order of the newer release."""
    by_name = {(figure.name, figure.unit): figure for figure in old}
    found = []
    for figure in new:
        before = by_name.get((figure.name, figure.unit))
        if before is None:
            continue
        plain = _better(figure.value / before.value, figure)
        limited = None
        if figure.limit and before.limit:
            limited = _better(figure.value / figure.limit / (before.value / before.limit), figure)
        found.append(Ratio(figure.name, plain, limited))
    return found


def _better(ratio: float, figure: Measured) -> float:
    return 1 / ratio if figure.lower_is_better else ratio


def record(version: str, names: list[str], options: list[str], checkout: Path) -> Path:
    """Run the named scripts on the packages of a checkout, and write their figures to a file.

    A script fails on an old release that lacks a module which the script imports. The file lists
    the scripts that printed no figure.
    """
    figures = []
    missing = []
    with scripts() as directory:
        for name in names:
            sys.stderr.write(f"{name} ...\n")
            ran = subprocess.run(
                [sys.executable, "-m", f"benchmarks.{name}", "--json", *options],
                cwd=directory,
                env=environment(checkout),
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
            if not lines:
                sys.stderr.write(f"{name} printed no figure: exit code {ran.returncode}\n")
                missing.append(name)
            figures += [{"script": name, **line} for line in lines]
    path = HISTORY / f"{version}.json"
    machine = {
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    commit = subprocess.run(
        ["git", "-C", checkout, "rev-parse", "HEAD"], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()
    found = {
        "version": version,
        "commit": commit,
        "machine": machine,
        "missing": missing,
        "figures": figures,
    }
    text = json.dumps(found, indent=1)
    HISTORY.mkdir(exist_ok=True)
    path.write_text(f"{text}\n")
    return path


def show(old: str, new: str, found: list[Ratio]) -> None:
    """Print the ratios as a table."""
    table = Table(title=f"{new} to {old} (more than 1 is better)")
    table.add_column("figure")
    table.add_column("ratio", justify="right")
    table.add_column("ratio, figures divided by limits", justify="right")
    for each in found:
        limited = "-" if each.to_limit is None else f"{each.to_limit:.2f} x"
        table.add_row(each.name, f"{each.plain:.2f} x", limited)
    Console(width=120).print(table)


def main() -> None:
    """Record the figures of a release, or compare the figures of two releases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run the benchmarks and write their figures")
    recording.add_argument("version")
    recording.add_argument("--only", nargs="+", choices=SCRIPTS, default=list(SCRIPTS))
    recording.add_argument("--rounds", type=positive, default=3)
    recording.add_argument("--checkout", type=Path, default=HERE, help="directory of the packages")
    comparing = commands.add_parser("compare", help="print the ratios of two releases")
    comparing.add_argument("old")
    comparing.add_argument("new")
    options = parser.parse_args()
    if options.command == "record":
        rounds = ["--rounds", str(options.rounds)]
        print(record(options.version, options.only, rounds, options.checkout))
    else:
        show(options.old, options.new, ratios(read(options.old), read(options.new)))


if __name__ == "__main__":
    main()
