package org.apache.spark.sql.ledgerlog

import org.apache.spark.sql.catalyst.util.CharVarcharUtils
import org.apache.spark.sql.connector.catalog.{CatalogV2Util, Column, TableChange}
import org.apache.spark.sql.types.{CharType, StringType, StructType, VarcharType}

/** Columns of a catalog, and their form in a log. This file uses internal classes of Spark. */
object TableColumns {

  /** The columns that Spark shows, with the types `char` and `varchar`. */
  def shown(stored: StructType): Array[Column] =
    CatalogV2Util.structTypeToV2Columns(CharVarcharUtils.getRawSchema(stored))

  /** The JSON of columns as a log stores them, with comments and defaults. */
  def jsonOf(columns: Array[Column]): String = {
    val schema = withoutDefaultCollation(CatalogV2Util.v2ColumnsToStructType(columns))
    CharVarcharUtils.replaceCharVarcharWithStringInSchema(schema).json
  }

  /** In a catalog, Spark writes the default collation into the types `char` and `varchar`. A log has
    * the types without it, as tables of the session catalog have them.
    */
  private def withoutDefaultCollation(schema: StructType): StructType = schema
    .transformRecursively {
      case text: VarcharType if text.collationId == StringType.collationId =>
        VarcharType(text.length)
      case text: CharType if text.collationId == StringType.collationId => CharType(text.length)
    }
    .asInstanceOf[StructType]

  /** The JSON of a column that is added, as a schema of this column alone. */
  def jsonOf(added: TableChange.AddColumn): String = jsonOf(
    Array(
      Column.create(
        added.fieldNames.last,
        added.dataType,
        added.isNullable,
        added.comment,
        added.defaultValue,
        null
      )
    )
  )
}
