package io.ledgerlog.spark

import java.nio.{ByteBuffer, ByteOrder}

import com.google.flatbuffers.FlatBufferBuilder
import org.apache.arrow.flatbuf.{Buffer, FieldNode, KeyValue, Message, MessageHeader, RecordBatch}

/** Messages of record batches, as Python encodes them without compression. */
object Batches {

  /** A column: the number of its nulls, and its buffers. */
  final case class Column(nulls: Int, buffers: Seq[Array[Byte]])

  /** The message, with one pair of custom metadata, and the sizes of its header and columns. */
  def sized(
      key: String,
      value: String,
      rows: Int = 0,
      columns: Seq[Column] = Nil
  ): (Array[Byte], Seq[Int]) = {
    val padded = columns.map(_.buffers.map(each => each.padTo((each.length + 7) / 8 * 8, 0: Byte)))
    val body = padded.flatten.flatten.toArray
    val builder = new FlatBufferBuilder
    val pair =
      KeyValue.createKeyValue(builder, builder.createString(key), builder.createString(value))
    val custom = Message.createCustomMetadataVector(builder, Array(pair))
    val places = padded.flatten.scanLeft(0L)(_ + _.length)
    val lengths = columns.flatMap(_.buffers).map(_.length.toLong)
    RecordBatch.startBuffersVector(builder, lengths.size)
    places.zip(lengths).reverse.foreach { case (place, length) =>
      Buffer.createBuffer(builder, place, length)
    }
    val buffers = builder.endVector()
    RecordBatch.startNodesVector(builder, columns.size)
    columns.reverse.foreach(each => FieldNode.createFieldNode(builder, rows, each.nulls))
    val nodes = builder.endVector()
    RecordBatch.startRecordBatch(builder)
    RecordBatch.addLength(builder, rows)
    RecordBatch.addNodes(builder, nodes)
    RecordBatch.addBuffers(builder, buffers)
    val batch = RecordBatch.endRecordBatch(builder)
    Message.startMessage(builder)
    Message.addHeaderType(builder, MessageHeader.RecordBatch)
    Message.addHeader(builder, batch)
    Message.addBodyLength(builder, body.length)
    Message.addCustomMetadata(builder, custom)
    builder.finish(Message.endMessage(builder))
    val metadata = builder.sizedByteArray()
    val prefix =
      ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putInt(-1).putInt(metadata.length)
    val header = prefix.array ++ metadata
    (header ++ body, header.length +: padded.map(_.map(_.length).sum))
  }

  /** The message of a batch without rows. */
  def message(key: String, value: String): Array[Byte] = sized(key, value)._1
}
