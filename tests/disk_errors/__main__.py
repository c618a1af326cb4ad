"""`python -m tests.disk_errors`: each fault of tests/crash/errors.py at each disk operation."""

from __future__ import annotations

import sys
from collections import Counter

from tests.crash.errors import MODES, faults_of, names_of, play_fault


def main() -> int:
    """Play each fault at each operation. Return 0 if nothing was lost."""
    seen: Counter[str] = Counter()
    lost = 0
    for mode in MODES:
        for number in range(1, len(names_of(mode)) + 1):
            for fault in faults_of(number):
                try:
                    seen[play_fault(mode, fault).outcome] += 1
                except AssertionError as error:
                    lost += 1
                    print(f"{mode}, {fault}: {error}")
    for outcome, count in sorted(seen.items()):
        print(f"{count:,} times: {outcome}")
    print(f"{seen.total() + lost:,} disk errors, {lost} with a violation")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
