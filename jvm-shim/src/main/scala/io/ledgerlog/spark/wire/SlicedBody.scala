package io.ledgerlog.spark.wire

/** Where the columns of an entry's body are in a body that has only some of them.
  *
  * @param starts
  *   the beginning of each column in the whole body, and then the end of the body
  * @param isKept
  *   whether a column is in the shorter body
  * @param keptStarts
  *   the beginning of each column in the shorter body, and then its end
  */
final case class SlicedBody(
    starts: IndexedSeq[Int],
    isKept: IndexedSeq[Boolean],
    keptStarts: IndexedSeq[Int]
) {
  def size: Int = keptStarts.last

  /** The place and size of a buffer in the shorter body. The size is 0 if its column is left out.
    *
    * The result is None if the buffer is not within one column, which shows that the starts are
    * those of another body.
    */
  def moved(from: Long, length: Long): Option[(Long, Long)] =
    if (length == 0) Some((0, 0))
    else if (length < 0 || from < 0 || from >= starts.last) None
    else {
      var (low, high) = (0, starts.size - 1)
      while (high - low > 1) {
        val middle = (low + high) / 2
        if (starts(middle) <= from) low = middle else high = middle
      }
      if (length > starts(low + 1) - from) None
      else if (isKept(low)) Some((from - starts(low) + keptStarts(low), length))
      else Some((0, 0))
    }
}
