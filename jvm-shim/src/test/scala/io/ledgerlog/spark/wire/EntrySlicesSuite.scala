package io.ledgerlog.spark.wire

class EntrySlicesSuite extends munit.FunSuite {
  private val kib = 1 << 10

  /** Entries with a header of 1 KiB, and columns of these sizes. */
  private def slices(columns: Seq[Int], requested: Seq[Int], entries: Int = 3): EntrySlices =
    new EntrySlices(
      1,
      IndexedSeq.fill(entries)((kib +: columns).flatMap(size => Seq(size, 0)).toArray),
      requested
    )

  test("slices are worthwhile below 60 percent of the bytes") {
    assert(slices(Seq(59, 40).map(_ * kib), Seq(1)).isWorthwhile)
    assert(slices(Seq(58, 41).map(_ * kib), Seq(0)).isWorthwhile)
    assert(!slices(Seq(59, 40).map(_ * kib), Seq(0)).isWorthwhile)
  }

  test("a filter is read first if it has at most a quarter of the bytes") {
    def pays(ofFilter: Int, next: Int): Boolean =
      slices(Seq(ofFilter, 1).map(_ * kib), Seq(0)).areWorthwhileBefore(3L * next * kib)
    assert(pays(24, 100))
    assert(!pays(25, 100))
    assert(pays(1, 66))
    assert(!pays(1, 65))
  }

  test("a request has a limited number of ranges") {
    val columns = Seq.fill(EntrySlices.RangesMax)(1)
    val some = columns.indices.drop(1)
    assert(slices(columns :+ (1 << 20), some).areWorthwhileBefore(1L << 40))
    assert(!slices(columns :+ (1 << 20), columns.indices).areWorthwhileBefore(1L << 40))
    assert(!slices(columns :+ (1 << 20), columns.indices).isWorthwhile)
  }
}
