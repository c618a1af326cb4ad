package io.ledgerlog.spark.plan

/** Where the values of a column come from. */
sealed trait ColumnOrigin extends Serializable

object ColumnOrigin {

  /** A column of the stored rows, by its place in their schema. */
  final case class Stored(place: Int) extends ColumnOrigin

  /** The stored rows do not have the column, so all its values are null. */
  case object Missing extends ColumnOrigin

  /** A metadata column, such as `_offset`. */
  final case class Metadata(name: String) extends ColumnOrigin
}
