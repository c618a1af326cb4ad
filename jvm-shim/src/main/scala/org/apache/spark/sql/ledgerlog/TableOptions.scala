package org.apache.spark.sql.ledgerlog

import java.util.Locale

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.LedgerLogException
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The options that a statement gives a table of the catalog. They must not select another log. */
object TableOptions {
  private val SelectLog =
    Set("log", "path", "paths", "logs", "logpattern", "ledgerid", "metadataserviceuri")

  /** Options without effect: Spark has already loaded the table in the version that they name. */
  private val SelectVersion = Set("versionasof", "timestampasof")

  /** Options that the catalog itself sets in writes. */
  private val SetHere = Set(
    "createifmissing",
    "errorifexists",
    "expectedlogid",
    "expectedversion",
    "logcomment",
    "overwriteschema"
  )

  def ofRead(table: String, options: CaseInsensitiveStringMap): Map[String, String] =
    checked(table, EngineOption.without(options), SelectLog).filterNot { case (name, _) =>
      SelectVersion(lower(name))
    }

  def ofWrite(table: String, options: CaseInsensitiveStringMap): Map[String, String] =
    checked(table, EngineOption.without(options), SelectLog ++ SetHere)

  def isOn(options: Map[String, String], name: String): Boolean =
    options.exists { case (key, value) =>
      key.equalsIgnoreCase(name) && value.trim.equalsIgnoreCase("true")
    }

  /** The options that select a log, with their values. */
  def logsIn(options: CaseInsensitiveStringMap): Map[String, String] =
    textsIn(options).filter { case (name, _) => SelectLog(lower(name)) }

  def textsIn(options: CaseInsensitiveStringMap): Map[String, String] =
    options.asCaseSensitiveMap.asScala.toMap

  /** `options` and `by`. Options of `by` replace those of the same name, in upper or lower case. */
  def replaced(options: Map[String, String], by: Map[String, String]): Map[String, String] = {
    val names = by.keySet.map(lower)
    options.filterNot { case (name, _) => names(lower(name)) } ++ by
  }

  def asMap(options: Map[String, String]): CaseInsensitiveStringMap =
    new CaseInsensitiveStringMap(options.asJava)

  private def checked(
      table: String,
      options: CaseInsensitiveStringMap,
      refused: Set[String]
  ): Map[String, String] = {
    val asked = textsIn(options)
    asked.keys.find(name => refused(lower(name))).foreach { name =>
      val why =
        if (SelectLog(lower(name))) s"the statement names table $table, which is a log already"
        else "the catalog sets this option itself"
      throw LedgerLogException.configuration(
        s"""the option "$name" is not an option of a table of a catalog, because $why. Nothing was """ +
          "changed. Leave the option out."
      )
    }
    asked
  }

  private def lower(name: String): String = name.toLowerCase(Locale.ROOT)
}
