package org.apache.spark.sql.ledgerlog

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.LedgerLogException
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The options of a catalog: the settings `spark.sql.catalog.<name>.<option>`. */
object CatalogOptions {
  private val Known = Seq("metadataServiceUri", "passwordFile")

  def of(catalog: String, asked: CaseInsensitiveStringMap): Map[String, String] =
    asked.asCaseSensitiveMap.asScala.map { case (name, value) =>
      val known = Known.find(_.equalsIgnoreCase(name)).getOrElse {
        throw LedgerLogException.configuration(
          s"spark.sql.catalog.$catalog.$name is not a setting of this catalog, which has " +
            s"${Known.mkString(" and ")}: remove it, or correct its name"
        )
      }
      known -> value
    }.toMap
}
