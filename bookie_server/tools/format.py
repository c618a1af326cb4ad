"""Deletes the files of a bookie from its directory."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bookie_server.core.bookie_run import RunJournal
from bookie_server.core.kept_identity import NAME as IDENTITY_NAME
from bookie_server.core.manifest_codec import NAME, FileState
from bookie_server.core.record import JournalRecordKind
from bookie_server.errors import MissingFileError
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.files.manifest import (
    IDENTITY_NEW_NAME,
    NEW_NAME,
    UNCLEAN_NAME,
    is_slot_name,
    is_state_name,
)
from bookie_server.storage.modes.ring import journal_prefix
from bookie_server.storage.modes.setup import journals_of, number_name
from bookie_server.storage.open_files import scan_open_files
from bookie_server.tools.directory import COOKIE_NAME, SESSION_NAME, locked_files, shared_of
from ledgerlog_spark.errors import StartupError

SINGLE_NAMES = (
    NEW_NAME, IDENTITY_NAME, IDENTITY_NEW_NAME, SESSION_NAME, UNCLEAN_NAME, COOKIE_NAME,
)  # fmt: skip


@dataclass(slots=True)
class Plan:
    """The files that a format deletes, and the files that it does not delete.

    Attributes:
        names: Files of the directory, in the order in which they are deleted.
        journals: Files of journal directories, by the path of the directory.
        entries: Description of the entries in the directory; empty if it certainly has no entry.
        kept_journals: Journal directories with files that are not deleted, because the files may
            belong to the original of a copied directory.
        others: Names of files in the directory that are not deleted, because they are not files of
            a bookie.
        number: Name of the number in shared memory that a run without syncs may have left; empty if
            the number may belong to the original of a copied directory.
    """

    names: list[str]
    journals: dict[str, list[str]] = field(default_factory=dict)
    entries: str = ""
    kept_journals: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    number: str = ""

    @property
    def journal_names(self) -> list[str]:
        """All files of journal directories that a format deletes."""
        return [name for names in self.journals.values() for name in names]


async def plan_format(files: OsFileSystem) -> Plan:
    """Return the files that a format of a locked directory would delete."""
    names = await files.names()
    slots = [name for name in names if is_slot_name(name)]
    states = [name for name in names if is_state_name(name)]
    # The MANIFEST is deleted first, so that after a crash no bookie starts with the remaining
    # files.
    ours = [name for name in (NAME,) if name in names] + slots + states
    ours += [name for name in SINGLE_NAMES if name in names]
    plan = Plan(ours, others=[name for name in names if name not in (*ours, "LOCK")])
    shared = shared_of(files)
    try:
        await shared.store.load(names)
    except (StartupError, MissingFileError) as error:
        if slots:
            files_found = "1 entry-log file" if len(slots) == 1 else f"{len(slots)} entry-log files"
            plan.entries = f"{files_found}, but the list of files cannot be read: {error.message}"
        return plan
    manifest = shared.store.current
    finished = [entry for entry in manifest.files if entry.state is FileState.FINISHED]
    replayed = await scan_open_files(shared.files, manifest)
    runs = sum(
        record.kind is JournalRecordKind.RUN for file in replayed for record in file.scan.records
    )
    if finished or runs:
        plan.entries = (
            f"entries: {len(finished)} finished entry-log file{'s' * (len(finished) != 1)}, and "
            f"{runs} record{'s' * (runs != 1)} in open files"
        )
    if manifest.run is not None and manifest.run.journal:
        plan.entries = plan.entries or "a journal that was not closed"
    if manifest.directory_id and not shared.is_moved:
        plan.number = number_name(shared)
    for journal in journals_of(manifest, is_moved=False):
        if shared.is_moved:
            plan.kept_journals.append(journal.path)
        elif names := _journal_names(journal, manifest.directory_id):
            plan.journals.setdefault(journal.path, []).extend(names)
    await shared.files.close_all()
    return plan


def _journal_names(journal: RunJournal, directory_id: str) -> list[str]:
    prefix = journal_prefix(directory_id, journal.run_id)
    directory = Path(journal.path)
    if not directory.is_dir():
        return []
    return sorted(each.name for each in directory.iterdir() if each.name.startswith(prefix))


async def carry_out(files: OsFileSystem, plan: Plan) -> None:
    """Delete the files of a plan. After an interruption, this function can be called again."""
    async with AsyncExitStack() as stack:
        journals = [
            (await stack.enter_async_context(locked_files(Path(path))), names)
            for path, names in plan.journals.items()
        ]
        for journal, names in journals:
            await _remove(journal, names)
    await _remove(files, plan.names)
    if plan.number:
        await files.forget_number(plan.number)


async def _remove(files: OsFileSystem, names: list[str]) -> None:
    for number, name in enumerate(names):
        await files.remove(name)
        if number == 0:
            await files.sync_directory()
    await files.sync_directory()
