package io.ledgerlog.spark.arrow

import io.ledgerlog.spark.plan.RowFilter
import io.ledgerlog.spark.plan.RowFilter.{And, Comparison, IsNull, Key, Not, Or, Unknown}
import org.apache.arrow.vector._
import org.apache.spark.unsafe.types.UTF8String

/** Whether rows may pass a filter, by the values of its columns.
  *
  * In a row, a part of a filter is true, false or null. If this is not known, all three are
  * possible. So the result of a part is a set, and a row may pass if the set of the filter contains
  * "true". `ledgerlog_spark/datasource/skipping/predicates.py` does the same for many rows at once.
  *
  * @param vectors
  *   the columns of the filter, by their places in the stored rows
  */
final class RowTest(filter: RowFilter, vectors: Map[Int, FieldVector]) {
  import RowTest._

  private val results: Int => Int = resultsOf(filter)

  /** Whether a row of `[from, until)` may pass. */
  def mayPass(from: Int, until: Int): Boolean =
    (from until until).exists(row => (results(row) & True) != 0)

  private def resultsOf(part: RowFilter): Int => Int = part match {
    case And(parts) => joined(parts, both)
    case Or(parts) => joined(parts, (one, other) => negated(both(negated(one), negated(other))))
    case Not(inner) =>
      val inside = resultsOf(inner)
      row => negated(inside(row))
    case IsNull(place, isNegated) =>
      val vector = vectors(place)
      row => if (vector.isNull(row) != isNegated) True else False
    case test: Comparison => compared(test, vectors(test.place))
    case Unknown => _ => AnyResult
  }

  private def joined(parts: Seq[RowFilter], join: (Int, Int) => Int): Int => Int =
    parts.map(resultsOf).reduce((one, other) => row => join(one(row), other(row)))

  private def compared(test: Comparison, vector: FieldVector): Int => Int = {
    val ofValue = keysOf(test.family, vector).flatMap { keys =>
      test.operator match {
        case "IN" => Some(in(test.values, keys))
        case "<=>" | "=" => ofOne(test, keys)((value, key) => value.compareTo(key) == 0)
        case "<>" => ofOne(test, keys)((value, key) => value.compareTo(key) != 0)
        case "<" => ofOne(test, keys)((value, key) => value.compareTo(key) < 0)
        case "<=" => ofOne(test, keys)((value, key) => value.compareTo(key) <= 0)
        case ">" => ofOne(test, keys)((value, key) => value.compareTo(key) > 0)
        case ">=" => ofOne(test, keys)((value, key) => value.compareTo(key) >= 0)
        case "STARTS_WITH" =>
          ofOne(test, keys) { (value, key) =>
            text(value).startsWith(text(key))
          }
        case _ => None
      }
    }
    // The result of `<=>` is never null: null equals null.
    val isSame = test.operator == "<=>"
    val ofNull = if (!isSame) Null else if (test.values.head.isEmpty) True else False
    ofValue.fold((_: Int) => AnyResult) { of => row =>
      if (vector.isNull(row)) ofNull else of(row)
    }
  }

  private def ofOne(test: Comparison, keys: Int => Key)(
      isTrue: (Key, AnyRef) => Boolean
  ): Option[Int => Int] = Some(test.values.head match {
    case Some(key) => row => if (isTrue(keys(row), key)) True else False
    case None =>
      val result = if (test.operator == "<=>") False else Null
      _ => result
  })

  private def in(values: Seq[Option[Key]], keys: Int => Key): Int => Int = {
    val sorted = values.flatten.toArray[Object]
    java.util.Arrays.sort(sorted)
    val otherwise = if (values.contains(None)) Null else False
    row => if (java.util.Arrays.binarySearch(sorted, keys(row)) >= 0) True else otherwise
  }
}

private object RowTest {
  val True = 1
  val False = 2
  val Null = 4
  val AnyResult: Int = True | False | Null

  def negated(results: Int): Int =
    (if ((results & True) != 0) False else 0) | (if ((results & False) != 0) True else 0) |
      (results & Null)

  def both(one: Int, other: Int): Int = {
    val isNull = ((one & Null) != 0 && (other & ~False) != 0) ||
      ((other & Null) != 0 && (one & ~False) != 0)
    (one & other & True) | ((one | other) & False) | (if (isNull) Null else 0)
  }

  def text(key: AnyRef): UTF8String = key.asInstanceOf[UTF8String]

  /** Returns the key of the value in a row, if the value is not null; None for another family. */
  def keysOf(family: String, vector: FieldVector): Option[Int => Key] = {
    def number(at: Int => Long): Some[Int => Key] = Some(row => RowFilter.keyOf(at(row)))
    (family, vector) match {
      case ("boolean", each: BitVector) => number(each.get(_).toLong)
      case ("integer", each: TinyIntVector) => number(each.get(_).toLong)
      case ("integer", each: SmallIntVector) => number(each.get(_).toLong)
      case ("integer", each: IntVector) => number(each.get(_).toLong)
      case ("integer", each: BigIntVector) => number(each.get(_))
      case ("date", each: DateDayVector) => number(each.get(_).toLong)
      case ("timestamp", each: TimeStampMicroTZVector) => number(each.get(_))
      case ("timestamp_ntz", each: TimeStampMicroVector) => number(each.get(_))
      case ("time", each: TimeNanoVector) => number(each.get(_))
      case ("interval", each: DurationVector) =>
        number(DurationVector.get(each.getDataBuffer, _))
      case ("float", each: Float4Vector) => Some(row => RowFilter.keyOf(each.get(row).toDouble))
      case ("float", each: Float8Vector) => Some(row => RowFilter.keyOf(each.get(row)))
      case ("decimal", each: DecimalVector) => Some(row => RowFilter.keyOf(each.getObject(row)))
      case ("string", each: VarCharVector) => Some(bytesOf(each))
      case ("binary", each: VarBinaryVector) => Some(bytesOf(each))
      case _ => None
    }
  }

  private def bytesOf(vector: BaseVariableWidthVector): Int => Key = {
    val (offsets, values) = (vector.getOffsetBuffer, vector.getDataBuffer.memoryAddress())
    row => {
      val start = offsets.getInt(4L * row)
      val size = offsets.getInt(4L * (row + 1)) - start
      RowFilter.keyOf(UTF8String.fromAddress(null, values + start, size))
    }
  }
}
