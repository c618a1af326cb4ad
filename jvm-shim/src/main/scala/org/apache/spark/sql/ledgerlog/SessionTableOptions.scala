package org.apache.spark.sql.ledgerlog

import java.util

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.LedgerLogException
import org.apache.spark.sql.connector.catalog.TableCatalog
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The options of a table of the session catalog: `CREATE TABLE t USING ledger OPTIONS (..)`.
  *
  * The session catalog keeps these options as properties of the table. It passes the properties to
  * the provider of the table. Options of `load` and `save` are not among the properties.
  */
final class SessionTableOptions(properties: util.Map[String, String]) {
  private val options: Map[String, String] =
    if (!properties.containsKey(TableCatalog.PROP_PROVIDER)) Map.empty
    else
      properties.asScala.collect {
        case (name, value) if name.startsWith(TableCatalog.OPTION_PREFIX) =>
          name.drop(TableCatalog.OPTION_PREFIX.length) -> value
      }.toMap

  /** The options of a scan. A query may select other logs than the table. */
  def ofRead(asked: CaseInsensitiveStringMap): CaseInsensitiveStringMap =
    if (options.isEmpty || TableOptions.logsIn(asked).nonEmpty) asked
    else TableOptions.asMap(TableOptions.replaced(options, TableOptions.textsIn(asked)))

  /** The options of a write, whose log is that of the table. */
  def ofWrite(asked: CaseInsensitiveStringMap): CaseInsensitiveStringMap =
    options.collectFirst { case (name, log) if name.equalsIgnoreCase("log") => log }.fold(asked) {
      log =>
        TableOptions.logsIn(asked).find { case (_, value) => value != log }.foreach {
          case (name, value) =>
            throw LedgerLogException.configuration(
              s"""the option "$name" is $value, but the table is over log $log. Nothing was """ +
                "written. Leave the option out."
            )
        }
        val written = TableOptions.replaced(options, TableOptions.textsIn(asked))
        TableOptions.asMap(TableOptions.replaced(written, Map("path" -> log)))
    }
}
