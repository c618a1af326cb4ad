package org.apache.spark.sql.ledgerlog

import org.apache.spark.sql.connector.write.{
  LogicalWriteInfo,
  LogicalWriteInfoImpl,
  SupportsTruncate,
  Write,
  WriteBuilder
}

/** Makes the write of one statement. Only the table, and no option, selects the log.
  *
  * @param optionsOf
  *   the options of the write, by its mode
  * @param overwrites
  *   whether the write is an overwrite; by default, Spark chooses
  */
final class CatalogWriteBuilder(
    log: String,
    info: LogicalWriteInfo,
    optionsOf: WriteMode => Map[String, String],
    overwrites: Option[Boolean] = None
) extends WriteBuilder
    with SupportsTruncate {
  private var isOverwrite = overwrites.getOrElse(false)

  override def truncate(): WriteBuilder = {
    isOverwrite = overwrites.getOrElse(true)
    this
  }

  override def build(): Write = new CatalogWrite(
    log,
    () => writeOf(WriteMode(isOverwrite, isStream = false)),
    () => writeOf(WriteMode(isOverwrite, isStream = true))
  )

  private def writeOf(mode: WriteMode): Write = {
    val options = TableOptions.asMap(optionsOf(mode))
    val builder =
      PythonSource.writeBuilder(LogicalWriteInfoImpl(info.queryId(), info.schema(), options))
    builder match {
      case truncatable: SupportsTruncate if mode.isOverwrite => truncatable.truncate().build()
      case other => other.build()
    }
  }
}
