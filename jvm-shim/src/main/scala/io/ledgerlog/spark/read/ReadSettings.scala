package io.ledgerlog.spark.read

/** Limits of the reader of a task. The defaults are those of the Python source.
  *
  * @param windowBytes
  *   maximum of the expected bytes of all requests that are pending, or whose answer is not taken
  * @param memoryBytes
  *   maximum memory of these answers if their size is not as expected; one may always be requested
  * @param hedgeDelayMs
  *   after this delay a slow request is also sent to another bookie
  * @param busyRounds
  *   maximum number of attempts while bookies answer `Busy`
  */
final case class ReadSettings(
    windowBytes: Long = 8L << 20,
    memoryBytes: Long = 64L << 20,
    batchBytes: Long = 1L << 20,
    batchEntriesMax: Int = 1024,
    jobsMax: Int = 256,
    connectTimeoutMs: Int = 5000,
    readTimeoutMs: Int = 5000,
    metadataTimeoutMs: Int = 10000,
    hedgeDelayMs: Int = 500,
    reconnectDelayMs: Int = 1000,
    reloadsMax: Int = 3,
    busyRounds: Int = 20,
    busyDelayMs: Int = 50,
    busyDelayMaxMs: Int = 1000
)
