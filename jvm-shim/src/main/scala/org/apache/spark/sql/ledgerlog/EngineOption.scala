package org.apache.spark.sql.ledgerlog

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.EngineChoice
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The option `engine` of a read or a write. */
object EngineOption {
  private val Name = "engine"
  private val Jvm = "jvm"

  def isPython(options: CaseInsensitiveStringMap): Boolean =
    valueOf(options).equalsIgnoreCase(EngineChoice.Python)

  /** The options for the Python source. It would report for `jvm` that this engine is missing. */
  def without(options: CaseInsensitiveStringMap): CaseInsensitiveStringMap =
    if (valueOf(options).equalsIgnoreCase(Jvm)) {
      val others = options.asCaseSensitiveMap.asScala.filterNot(_._1.equalsIgnoreCase(Name))
      new CaseInsensitiveStringMap(others.asJava)
    } else options

  private def valueOf(options: CaseInsensitiveStringMap): String =
    Option(options.get(Name)).fold("")(_.trim)
}
