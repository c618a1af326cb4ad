"""`ledgerlog bookie upgrade` and `downgrade`: change the format version of a MANIFEST."""

from __future__ import annotations

from pathlib import Path

import typer

from ledgerlog_spark.cli.bookie.files import Directory, with_directory
from ledgerlog_spark.cli.output import AsJson, print_outcome

app = typer.Typer()


@app.command("upgrade", epilog="Example: ledgerlog bookie upgrade data/bookie-0")
def upgrade(directory: Directory, as_json: AsJson = False) -> None:
    """Write the MANIFEST in the newest version of its format.

    Each start of a bookie also writes the MANIFEST in this version. After
    that, older programs refuse the directory until `ledgerlog bookie
    downgrade` has run.
    """
    from bookie_server.core.manifest_codec import FORMAT_VERSION

    _rewrite(directory, FORMAT_VERSION, as_json=as_json)


@app.command("downgrade", epilog="Example: ledgerlog bookie downgrade data/bookie-0")
def downgrade(directory: Directory, as_json: AsJson = False) -> None:
    """Write the MANIFEST in the format version that the previous release reads.

    The bookie must have stopped cleanly.
    """
    from bookie_server.core.manifest_codec import FORMAT_VERSION_BEFORE

    _rewrite(directory, FORMAT_VERSION_BEFORE, as_json=as_json)


def _rewrite(directory: Path, version: int, *, as_json: bool) -> None:
    from bookie_server.tools.versions import rewrite_manifest

    before = with_directory(directory, lambda opened: rewrite_manifest(opened, version))
    if before == version:
        text = f"the MANIFEST of {directory} already has version {version}; nothing was changed"
    else:
        text = f"the MANIFEST of {directory} has version {version} now; it had version {before}"
    print_outcome(
        {"directory": str(directory), "version": version, "version_before": before},
        text,
        as_json=as_json,
    )
