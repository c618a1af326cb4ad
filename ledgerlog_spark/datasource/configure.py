"""`ledgerlog_spark.configure` sets options with which Spark finds the source and runs it fast."""

from __future__ import annotations

import logging
import os
import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from ledgerlog_spark.datasource.jar import (
    CATALOG_CLASS,
    CATALOG_SETTING,
    JARS_SETTING,
    fits,
    with_jar,
)
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.model import SERVICE_URI_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Configured = TypeVar("Configured")

_logger = logging.getLogger("ledgerlog_spark")

RUN_TIME = {
    # With a smaller value, Spark computes the size of a batch after every row, and a write takes
    # 2.7 times as long (measured).
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
AT_START = {
    # With this setting, each task takes 40 ms less than with a TCP socket (measured).
    "spark.python.unix.domain.socket.enabled": "true",
}
CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
FILE_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""The class for checkpoints in local files. Spark's default class starts the processes `readlink`
and `chmod` for every file. These processes take up to 40 % of the time of a small micro-batch
(measured)."""

PYTHON_VARIABLE = "PYSPARK_PYTHON"
REGISTRATION_LOGGER = "org.apache.spark.sql.execution.datasources.DataSourceManager"


def configure(spark: Configured, metadata_service_uri: str | None = None) -> Configured:
    """Set up a builder or a session for `format("ledger")`, and return it.

    On a builder, the function sets all settings. If no session has started, it also adds the jar of
    the JVM engine, provided that the jar is for this version of Spark. On a session, it sets only
    the run-time settings and the service URI. If a session has the jar, and has no catalog `ledger`
    yet, it also gets this catalog, whose tables are the logs. A log line names the settings that
    only a new session can get. A session of Spark Connect also gets the run-time settings and the
    service URI. The server of Spark Connect needs ledgerlog in its Python, and must reach the
    cluster at the service URI.

    Args:
        spark: `SparkSession.builder` or a `SparkSession`, with or without Spark Connect.
        metadata_service_uri: The service URI for reads and writes that do not set the option
            `metadataServiceUri`. If it is None, the environment variable
            `LEDGERLOG_METADATA_SERVICE_URI` of this process gives the URI. `local_cluster()` sets
            this variable.

    Raises:
        ConfigurationError: `spark` is neither a builder nor a session.
    """
    from pyspark.sql import SparkSession

    if isinstance(spark, SparkSession.Builder):
        _configure_builder(spark, metadata_service_uri)
    elif _is_of_connect(spark, "SparkSession.Builder"):
        # Other settings would have to be set before the server starts, but the server already runs.
        for key, value in RUN_TIME.items():
            spark.config(key, value)  # type: ignore[attr-defined]
    elif _is_of_connect(spark, "SparkSession"):
        # The Java objects and the files of the server are not accessible.
        client: Any = spark
        for key, value in RUN_TIME.items():
            client.conf.set(key, value)
        _register(client, metadata_service_uri, parallelism=1)
    elif isinstance(spark, SparkSession):
        _configure_session(spark, metadata_service_uri)
    else:
        raise ConfigurationError(
            f"configure takes SparkSession.builder or a SparkSession, got {type(spark).__name__}"
        )
    return spark


def _configure_builder(builder: Any, uri: str | None) -> None:
    import pyspark
    from pyspark import SparkContext

    for key, value in {**RUN_TIME, **AT_START}.items():
        builder.config(key, value)
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - no public function returns it
        _logger.warning(
            "A Spark session is already running, so its %s and %s cannot be changed.",
            PYTHON_VARIABLE,
            ", ".join(AT_START),
        )
        return
    if fits(pyspark.__version__):
        given = builder._options.get(JARS_SETTING)  # noqa: SLF001 - no public function returns it
        builder.config(JARS_SETTING, with_jar(given))
    os.environ.setdefault(PYTHON_VARIABLE, sys.executable)
    if uri is not None:
        os.environ[SERVICE_URI_VARIABLE] = uri


def _configure_session(session: SparkSession, uri: str | None) -> None:
    for key, value in RUN_TIME.items():
        session.conf.set(key, value)
    if session.conf.get(CHECKPOINT_MANAGER, None) is None and _has_local_files(session):
        session.conf.set(CHECKPOINT_MANAGER, FILE_CHECKPOINTS)
    # Only the session shows whether it has this catalog: `spark-submit --conf` may have set it.
    has_catalog = session.conf.get(CATALOG_SETTING, None) is not None
    if not has_catalog and fits(session.version) and _has_class(session, CATALOG_CLASS):
        session.conf.set(CATALOG_SETTING, CATALOG_CLASS)
    not_set = [
        f"{key}={value}"
        for key, value in AT_START.items()
        if session.conf.get(key, "false") != value
    ]
    if not_set:
        _logger.warning(
            "Spark would be faster with %s, which only a new session can set: call "
            "configure(builder) before getOrCreate().",
            ", ".join(not_set),
        )
    python = os.environ.get(PYTHON_VARIABLE)
    if python is None:
        _logger.warning(
            "%s was not set when Spark started, so Spark's workers run the python3 of the PATH, "
            "which also needs ledgerlog. Set this variable to %s, or call configure(builder), "
            "before the session starts.",
            PYTHON_VARIABLE,
            sys.executable,
        )
    _expect_replacement(session)
    _register(session, uri, parallelism=session.sparkContext.defaultParallelism)


def _register(session: Any, uri: str | None, *, parallelism: int) -> None:
    from ledgerlog_spark.datasource.source import LedgerDataSource

    # A class that a function makes is pickled by value, so its attributes reach Spark's processes.
    attributes = {
        "configured_service_uri": uri or os.environ.get(SERVICE_URI_VARIABLE),
        "configured_parallelism": int(parallelism),
    }
    session.dataSource.register(type("LedgerDataSource", (LedgerDataSource,), attributes))


def _is_of_connect(spark: Any, name: str) -> bool:
    """Whether `spark` is an object of the class `name` of Spark Connect.

    This check imports no class.
    """
    module = sys.modules.get("pyspark.sql.connect.session")
    return module is not None and isinstance(spark, attrgetter(name)(module))


def _expect_replacement(session: SparkSession) -> None:
    """Suppress Spark's warning that this source replaces a source found on the Python path.

    Spark warns at every registration and at the start of every stream. The logger of this warning
    writes nothing else.
    """
    try:
        jvm = session.sparkContext._jvm  # noqa: SLF001 - no public function returns this logger
        log4j = jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setLevel(REGISTRATION_LOGGER, log4j.Level.ERROR)
    except (AttributeError, TypeError):  # Spark uses another logging library
        return


def _has_local_files(session: SparkSession) -> bool:
    """Whether paths without a scheme are local files, and Spark has the class `FILE_CHECKPOINTS`.

    In some releases of Spark the class has another name. In these releases, the result is False.
    """
    file_system = session.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS")  # noqa: SLF001
    return str(file_system).startswith("file:") and _has_class(session, FILE_CHECKPOINTS)


def _has_class(session: SparkSession, name: str) -> bool:
    """Whether the class is on the class path of the session's JVM."""
    loader = session.sparkContext._jvm.Thread.currentThread().getContextClassLoader()  # noqa: SLF001
    return loader.getResource(name.replace(".", "/") + ".class") is not None
