package io.ledgerlog.spark

import java.nio.ByteBuffer
import java.util.Base64
import java.util.zip.CRC32C

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import io.ledgerlog.spark.plan.{ColumnOrigin, ScanRange, StoredSchema}
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.ColumnarBatch

/** The range in `tests/golden/entries`, as ledger 7 from entry 1 on. */
object GoldenRange {
  val Compressions = Seq("zstd", "lz4", "none")
  val LedgerId = 7L
  val Entries = 3
  val BatchRows = 40
  val Rows: Int = Entries * BatchRows
  val IndexEntryId = 4L

  val target: StructType = new StructType()
    .add("k", LongType)
    .add("flag", BooleanType)
    .add("s", StringType)
    .add("d", DecimalType(12, 2))
    .add("list", ArrayType(IntegerType))
    .add("nested", new StructType().add("x", DoubleType).add("y", StringType))
    .add("nothing", NullType)
    .add("last", IntegerType)

  val schema: Array[Byte] = Golden.base64(Golden.entries.get("schema"))
  val rows: IndexedSeq[JsonNode] = Golden.entries.get("rows").elements.asScala.toIndexedSeq

  /** The payloads of entries 1 to 4. */
  def payloads(compression: String): IndexedSeq[Array[Byte]] =
    Golden.entries.get("entries").get(compression).elements.asScala.map(Golden.base64).toIndexedSeq

  /** The slices of each of the entries 1 to 3: length and CRC32C, alternately. */
  def slices(compression: String): IndexedSeq[Array[Int]] =
    Golden.entries.get("slices").get(compression).elements.asScala.toIndexedSeq.map { text =>
      val numbers = ByteBuffer.wrap(Golden.base64(text)).asIntBuffer()
      Array.fill(numbers.remaining())(numbers.get())
    }

  /** Slices with these lengths, as an index lists them. */
  def slicesOf(payload: Array[Byte], lengths: Seq[Int]): Array[Int] = {
    val starts = lengths.scanLeft(0)(_ + _)
    lengths.indices.flatMap { place =>
      val sum = new CRC32C
      sum.update(payload, starts(place), lengths(place))
      Seq(lengths(place), sum.getValue.toInt)
    }.toArray
  }

  /** An index entry with these slices. Python writes none for so few bytes. */
  def indexEntry(compression: String, slices: Seq[Array[Int]]): Array[Byte] = {
    val joined =
      slices.flatten.foldLeft(ByteBuffer.allocate(4 * slices.map(_.length).sum))(_.putInt(_))
    val sizes = payloads(compression).take(Entries).map(_.length).mkString(",")
    val rows = Seq.fill(Entries)(BatchRows).mkString(",")
    val text = Base64.getEncoder.encodeToString(joined.array)
    Batches.message(
      "ledgerlog.index",
      s"""{"format":1,"rows":[$rows],"bytes":[$sizes],"slices":"$text"}"""
    )
  }

  /** Places of columns in the stored rows, in the order of the scan. */
  def stored(places: Int*): StoredSchema =
    StoredSchema("x", 0, schema, places.map(ColumnOrigin.Stored(_)))

  def columns(places: Int*): StructType = StructType(places.map(target.fields(_)))

  def range(startOffset: Long = 0, endOffset: Long = Rows): ScanRange = ScanRange(
    log = "x",
    ledgerId = LedgerId,
    firstEntryId = 1,
    lastEntryId = 3,
    rows = endOffset - startOffset,
    sizeBytes = payloads("none").map(_.length.toLong).sum,
    schemaId = 0,
    rangeOffset = 0,
    startOffset = startOffset,
    endOffset = endOffset,
    commitTimes = Seq((BatchRows.toLong, None), (Rows.toLong, Some(1700000000000L))),
    indexEntryId = ScanRange.NoEntry,
    entryRows = Some((0, Rows)),
    form = ScanRange.ArrowStream,
    isSearched = false
  )

  /** The first mistake in a batch that has columns of the rows from `first` on. */
  def mistake(
      batch: ColumnarBatch,
      first: Int,
      places: Seq[Int] = target.fields.indices
  ): Option[String] =
    (0 until batch.numRows).flatMap { place =>
      val expected = rows(first + place)
      places.map(target.fields(_)).zipWithIndex.flatMap { case (field, column) =>
        val wanted = expected.get(field.name)
        val vector = batch.column(column)
        val got =
          if (vector.isNullAt(place)) "null"
          else
            field.dataType match {
              case LongType => vector.getLong(place).toString
              case IntegerType => vector.getInt(place).toString
              case BooleanType => vector.getBoolean(place).toString
              case StringType => s"\"${vector.getUTF8String(place)}\""
              case _: DecimalType => s"\"${vector.getDecimal(place, 12, 2)}\""
              case _: ArrayType => vector.getArray(place).toIntArray.mkString("[", ",", "]")
              case _ =>
                val inner = vector.getStruct(place)
                val y = if (inner.isNullAt(1)) "null" else s"\"${inner.getUTF8String(1)}\""
                val x = if (inner.isNullAt(0)) "null" else inner.getDouble(0).toString
                s"""{"x":$x,"y":$y}"""
            }
        val text = field.dataType match {
          case _: DecimalType if !wanted.isNull =>
            s"\"${new java.math.BigDecimal(wanted.asText).setScale(2)}\""
          case _ => wanted.toString
        }
        if (got == text) None else Some(s"row ${first + place}, ${field.name}: $got, not $text")
      }
    }.headOption
}
