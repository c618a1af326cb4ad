package io.ledgerlog.spark.arrow

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.{Golden, GoldenRange, LedgerLogException}
import io.ledgerlog.spark.plan.{PlanJson, RowFilter, StoredSchema}
import org.apache.arrow.memory.RootAllocator
import org.apache.spark.sql.types.StructType

class RowTestSuite extends munit.FunSuite {
  private def withColumns[A](schema: Array[Byte], entry: Array[Byte])(
      body: (EntryColumns, EntryMessage) => A
  ): A = {
    val allocator = new RootAllocator(64L << 20)
    try {
      val bytes = allocator.buffer(entry.length.toLong)
      try {
        bytes.setBytes(0, entry)
        val message = EntryMessage.decode(bytes, 0, entry.length)
        val stored = StoredSchema("x", 0, schema, Nil)
        body(new EntryColumns(stored, new StructType(), allocator), message)
      } finally bytes.close()
    } finally allocator.close()
  }

  private def filter(json: String): RowFilter = RowFilter.decode(PlanJson.parse(json))

  Golden.filters.zipWithIndex.foreach { case (world, number) =>
    test(s"rows pass filters as in Python, world $number") {
      withColumns(Golden.base64(world.get("schema")), Golden.base64(world.get("entry"))) {
        (columns, message) =>
          var passing = 0
          world.get("filters").elements.asScala.foreach { each =>
            val decoded = RowFilter.decode(each.get("filter"))
            val expected = each.get("passes").asText.map(_ == '1')
            val got = expected.indices.map { row =>
              columns.mayPass(message, decoded, row, row + 1)
            }
            if (each.get("is_known").asBoolean) assertEquals(got, expected, each.toString)
            else
              got.zip(expected).foreach { case (may, does) => assert(may || !does, each.toString) }
            assertEquals(
              columns.mayPass(message, decoded, 0, expected.size),
              got.contains(true),
              each.toString
            )
            passing += expected.count(identity)
          }
          assert(passing > 100, passing)
      }
    }
  }

  test("what is not known keeps the row") {
    val entry = GoldenRange.payloads("none").head
    withColumns(GoldenRange.schema, entry) { (columns, message) =>
      def mayPass(json: String): Boolean = columns.mayPass(message, filter(json), 0, 1)
      val never = """{"op":"=","place":0,"family":"integer","values":[-5]}"""
      assert(!mayPass(never))
      Seq(
        "{}",
        """{"op":"LIKES","place":0,"family":"integer","values":[1]}""",
        """{"op":"=","place":0,"family":"date","values":[-5]}""",
        """{"op":"=","place":4,"family":"integer","values":[-5]}""",
        s"""{"op":"OR","of":[$never,{}]}""",
        """{"op":"NOT","of":[{}]}"""
      ).foreach(json => assert(mayPass(json), json))
      assert(!mayPass(s"""{"op":"AND","of":[{},$never]}"""))
      assert(!columns.mayPass(message, RowFilter.Unknown, 3, 3))
    }
  }

  test("a damaged column is an error, and its memory is released") {
    val entry = GoldenRange.payloads("zstd").head.clone()
    (entry.length - 400 until entry.length).foreach(place => entry(place) = 7)
    withColumns(GoldenRange.schema, entry) { (columns, message) =>
      val everything = (0 to 7).map(place => s"""{"op":"IS_NULL","place":$place}""")
      val error = intercept[LedgerLogException] {
        columns.mayPass(
          message,
          filter(s"""{"op":"OR","of":[${everything.mkString(",")}]}"""),
          0,
          1
        )
      }
      assertEquals(error.kind, LedgerLogException.WireFormat)
    }
  }
}
