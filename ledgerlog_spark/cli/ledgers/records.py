"""`ledgerlog ledgers export|import`: the metadata of one ledger as a file."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path
from typing import Annotated

import typer

from ledgerlog_spark.cli.ledgers.commands import LedgerId, describe
from ledgerlog_spark.cli.options import DEFAULT_URI, ServiceUri, Yes, confirm, metadata
from ledgerlog_spark.cli.output import AsJson, console, print_outcome
from ledgerlog_spark.errors import ConfigurationError, LedgerNotFoundError, MetadataFormatError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import LedgerMetadata, Versioned
from ledgerlog_spark.tools.exported_record import SIZE_BYTES_MAX, ExportedRecord, check_import

PRIVATE = stat.S_IRUSR | stat.S_IWUSR

app = typer.Typer()


@app.command("export", epilog="Example: ledgerlog ledgers export 3 --output ledger-3.json")
def export(
    ledger_id: LedgerId,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="New file; default: standard output."),
    ] = None,
    uri: ServiceUri = DEFAULT_URI,
) -> None:
    """Write the metadata of a ledger as JSON, for `import`.

    The file contains the password of the ledger, as stored in ZooKeeper. So if
    --output creates the file, only the owner of the file can read it. The
    entries are not exported.
    """

    async def work() -> ExportedRecord:
        async with metadata(uri) as stores:
            await stores.ledgers.sync()
            found = await stores.ledgers.load(ledger_id)
            instance_id = await stores.registration.instance_id()
        return ExportedRecord(ledger_id, instance_id, found.version.number, found.value)

    exported = asyncio.run(work())
    data = exported.encode(describe(ledger_id, exported.metadata))
    if output is None:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    try:
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        raise ConfigurationError(
            f"{output} exists and was not changed: pass another --output", path=str(output)
        ) from None
    with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(data)
    console.print(f"the metadata of ledger {ledger_id} is in {output}", soft_wrap=True)


@app.command("import", epilog="Example: ledgerlog ledgers import ledger-3.json")
def import_record(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="File that `export` has written.")],
    replace_version: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Replace the record of an existing ledger if the record still has this version.",
            min=0,
        ),
    ] = None,
    yes: Yes = False,
    uri: ServiceUri = DEFAULT_URI,
    as_json: AsJson = False,
) -> None:
    """Write the metadata of a ledger from a file, which `export` has written.

    The record of an existing ledger is replaced only if --replace-version
    names the current version of the record. The command refuses a file of
    another cluster, and a file that would open a ledger again or move its end.
    After a ledger was deleted, its bookies delete its entries: an import does
    not bring entries back.
    """
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read: {error.strerror}", path=str(path)
        ) from None
    exported = ExportedRecord.decode(data, str(path))
    ledger_id = exported.ledger_id
    version = asyncio.run(_import(uri, exported, replace_version, yes=yes))
    fields = {**describe(ledger_id, exported.metadata), "version": version}
    text = (
        f"the metadata of ledger {ledger_id} is written, as version {version}; verify it with "
        f"`ledgerlog ledgers check {ledger_id}`"
    )
    print_outcome(fields, text, as_json=as_json)


async def _import(
    uri: str, exported: ExportedRecord, replace_version: int | None, *, yes: bool
) -> int:
    ledger_id = exported.ledger_id
    async with metadata(uri) as stores:
        await stores.ledgers.sync()
        found = await _found(stores, ledger_id)
        check_import(
            exported,
            await stores.registration.instance_id(),
            None if found is None else found.value,
            None if found is None else found.version,
            replace_version,
        )
        if not yes:
            what = "create" if found is None else f"replace version {replace_version} of"
            confirm(f"{what} the metadata of ledger {ledger_id}", otherwise="nothing was changed")
        if found is None:
            written = await stores.ledgers.create(ledger_id, exported.metadata)
        else:
            written = await stores.ledgers.write(ledger_id, exported.metadata, found.version)
        return written.version.number


async def _found(
    stores: MetadataStores, ledger_id: int
) -> Versioned[LedgerMetadata] | Versioned[None] | None:
    """Return the record of a ledger, or None if the ledger does not exist.

    If the record cannot be decoded, its value is None.
    """
    try:
        return await stores.ledgers.load(ledger_id)
    except LedgerNotFoundError:
        return None
    except MetadataFormatError:
        record = await stores.tree.get(stores.ledgers.path(ledger_id))
        return Versioned(None, record.version)
