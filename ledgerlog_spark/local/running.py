"""Finds all local clusters on this machine, in all directories and of all programs."""

from __future__ import annotations

from pathlib import Path

import psutil

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.local.members import FILE_NAME

MODULES = ("bookie_server", "ledgerlog_spark.upkeep", "ledgerlog_spark.local.guardian")
DIRECTORY_OPTION = "--directory"
ZOOKEEPER_CONFIG = "zoo.cfg"


def running_clusters() -> list[Cluster]:
    """Return all clusters with at least one live process, sorted by directory.

    A cluster of another user is left out if the system hides the command lines or the directories
    of its processes.
    """
    directories = {
        directory
        for process in psutil.process_iter()
        if (directory := _cluster_directory(_command_line(process))) is not None
    }
    clusters = []
    for directory in sorted(directories):
        try:
            cluster = Cluster(directory)
        except ConfigurationError:  # the file is damaged, or another release wrote it
            continue
        if cluster.members.running:
            clusters.append(cluster)
    return clusters


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _cluster_directory(words: list[str]) -> Path | None:
    """Return the directory of the cluster in a process's command line.

    The result is None if the command line names no cluster.
    """
    named: Path | None = None
    if words and Path(words[-1]).name == ZOOKEEPER_CONFIG:
        named = Path(words[-1]).parent
    elif any(module in words for module in MODULES) and DIRECTORY_OPTION in words[:-1]:
        named = Path(words[words.index(DIRECTORY_OPTION) + 1])
    if named is None:
        return None
    return next((each for each in (named, named.parent) if _holds_a_cluster(each)), None)


def _holds_a_cluster(directory: Path) -> bool:
    try:
        return (directory / FILE_NAME).exists()
    except OSError:  # the directory belongs to another user
        return False
