package io.ledgerlog.spark.read

/** Limits of the reader of a task. The defaults are those of the Python source.
  *
  * @param windowBytes
  *   expected bytes of the requests that are pending or were answered and not taken
  * @param memoryBytes
  *   bytes of these answers in memory, for any size of entries; one answer may always be requested
  * @param hedgeDelayMs
  *   after this delay a slow request is also sent to another bookie
  * @param busyRounds
  *   attempts while bookies refuse requests because they have too many
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
