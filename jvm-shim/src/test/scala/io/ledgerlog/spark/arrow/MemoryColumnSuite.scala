package io.ledgerlog.spark.arrow

import java.util.Random

import org.apache.arrow.memory.RootAllocator
import org.apache.arrow.vector._
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType}
import org.apache.arrow.vector.types.{DateUnit, FloatingPointPrecision, TimeUnit}
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector}

/** Columns give the values that Spark's own class gives of the same vector. */
class MemoryColumnSuite extends munit.FunSuite {
  private val Rows = 67
  private val utc = new ArrowType.Timestamp(TimeUnit.MICROSECOND, "UTC")
  private val local = new ArrowType.Timestamp(TimeUnit.MICROSECOND, null)
  private def int(bits: Int) = new ArrowType.Int(bits, true)
  private def float(of: FloatingPointPrecision) = new ArrowType.FloatingPoint(of)

  private type Getter = (ColumnVector, Int) => Any

  /** Type in Arrow, type in Spark, how to set a value, and how to read it. */
  private val kinds: Seq[(ArrowType, DataType, (FieldVector, Int, Random) => Unit, Getter)] = Seq(
    (int(8), ByteType, set[TinyIntVector]((v, i, r) => v.set(i, r.nextInt())), _.getByte(_)),
    (int(16), ShortType, set[SmallIntVector]((v, i, r) => v.set(i, r.nextInt())), _.getShort(_)),
    (int(32), IntegerType, set[IntVector]((v, i, r) => v.set(i, r.nextInt())), _.getInt(_)),
    (int(64), LongType, set[BigIntVector]((v, i, r) => v.set(i, r.nextLong())), _.getLong(_)),
    (
      float(FloatingPointPrecision.SINGLE),
      FloatType,
      set[Float4Vector]((v, i, r) => v.set(i, if (i % 9 == 0) Float.NaN else r.nextFloat())),
      (column, row) => java.lang.Float.floatToRawIntBits(column.getFloat(row))
    ),
    (
      float(FloatingPointPrecision.DOUBLE),
      DoubleType,
      set[Float8Vector]((v, i, r) => v.set(i, if (i % 9 == 0) -0.0 else r.nextDouble())),
      (column, row) => java.lang.Double.doubleToRawLongBits(column.getDouble(row))
    ),
    (
      new ArrowType.Date(DateUnit.DAY),
      DateType,
      set[DateDayVector]((v, i, r) => v.set(i, r.nextInt())),
      _.getInt(_)
    ),
    (
      utc,
      TimestampType,
      set[TimeStampMicroTZVector]((v, i, r) => v.set(i, r.nextLong())),
      _.getLong(_)
    ),
    (
      local,
      TimestampNTZType,
      set[TimeStampMicroVector]((v, i, r) => v.set(i, r.nextLong())),
      _.getLong(_)
    ),
    (
      new ArrowType.Utf8,
      StringType,
      set[VarCharVector]((v, i, r) => v.setSafe(i, ("é" * r.nextInt(9)).getBytes("UTF-8"))),
      (column, row) => Option(column.getUTF8String(row)).map(_.toString)
    ),
    (
      new ArrowType.Binary,
      BinaryType,
      set[VarBinaryVector]((v, i, r) => v.setSafe(i, Array.fill(r.nextInt(9))(r.nextInt().toByte))),
      (column, row) => Option(column.getBinary(row)).map(_.toSeq)
    )
  )

  private def set[V](body: (V, Int, Random) => Unit): (FieldVector, Int, Random) => Unit =
    (vector, row, random) => body(vector.asInstanceOf[V], row, random)

  for {
    (arrow, spark, put, get) <- kinds
    nulls <- Seq("no", "some", "only")
  } test(s"$spark with $nulls nulls") {
    withMemory { allocator =>
      val vector = new Field("a", FieldType.nullable(arrow), null).createVector(allocator)
      val random = new Random(7)
      vector.setInitialCapacity(Rows)
      vector.allocateNew()
      (0 until Rows).foreach { row =>
        if (nulls == "no" || (nulls == "some" && random.nextInt(3) > 0)) put(vector, row, random)
        else vector.setNull(row)
      }
      vector.setValueCount(Rows)
      val pair = vector.getTransferPair(allocator)
      pair.splitAndTransfer(5, 50)
      compare(vector, spark, get)
      compare(pair.getTo.asInstanceOf[FieldVector], spark, get)
    }
  }

  test("a column that is closed, and a row that does not exist, are errors") {
    withMemory { allocator =>
      val vector = new Field("a", FieldType.nullable(int(64)), null)
        .createVector(allocator)
        .asInstanceOf[BigIntVector]
      vector.allocateNew(3)
      (0 until 3).foreach(row => vector.set(row, row.toLong))
      vector.setValueCount(3)
      val column = MemoryColumn.of(vector, LongType)
      assertEquals(column.getLong(2), 2L)
      Seq(-1, 3).foreach { row =>
        intercept[IndexOutOfBoundsException](column.getLong(row))
        intercept[IndexOutOfBoundsException](column.isNullAt(row))
      }
      column.close()
      intercept[IndexOutOfBoundsException](column.getLong(2))
      intercept[IndexOutOfBoundsException](column.isNullAt(0))
      column.close() // Spark may close a batch twice
    }
  }

  private def compare(vector: FieldVector, spark: DataType, get: Getter): Unit = {
    val theirs = new ArrowColumnVector(vector)
    val ours = MemoryColumn.of(vector, spark)
    try {
      assert(ours.isInstanceOf[MemoryColumn])
      assertEquals(ours.dataType, theirs.dataType)
      assertEquals((ours.hasNull, ours.numNulls), (theirs.hasNull, theirs.numNulls))
      (0 until vector.getValueCount).foreach { row =>
        assertEquals(ours.isNullAt(row), theirs.isNullAt(row), s"row $row")
        if (!ours.isNullAt(row)) assertEquals(get(ours, row), get(theirs, row), s"row $row")
        else if (spark == StringType) assertEquals(ours.getUTF8String(row), null)
        else if (spark == BinaryType) assertEquals(ours.getBinary(row), null)
      }
    } finally ours.close()
  }

  /** Run with an allocator that has to be empty at the end. */
  private def withMemory(body: RootAllocator => Unit): Unit = {
    val allocator = new RootAllocator(1L << 20)
    try body(allocator)
    finally allocator.close()
  }
}
