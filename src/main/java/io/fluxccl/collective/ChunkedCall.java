package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;

/** A call that is done piece by piece, each a call of its own on a range of the elements. */
final class ChunkedCall {
  private final CollectiveCall call;
  private final long chunkElements;
  private final int chunks;

  /**
   * Cuts a call.
   *
   * @param call an all-reduce, a reduce or a broadcast
   * @param chunkElements elements of each chunk but the last
   */
  ChunkedCall(CollectiveCall call, long chunkElements) {
    switch (call.collective()) {
      case ALL_REDUCE, REDUCE, BROADCAST -> {}
      default ->
          throw new InvalidUsage(
              call
                  + " can't be chunked: a range of its output is not made of one range of each"
                  + " input. All-reduce, reduce and broadcast can");
    }
    if (chunkElements < 1 || (call.count() - 1) / chunkElements >= Integer.MAX_VALUE) {
      throw new InvalidUsage(
          call
              + " in chunks of "
              + chunkElements
              + "; give 1 or more, and not more than "
              + Integer.MAX_VALUE
              + " chunks");
    }
    this.call = call;
    this.chunkElements = chunkElements;
    this.chunks = (int) ((call.count() + chunkElements - 1) / chunkElements);
  }

  /** The whole. */
  CollectiveCall whole() {
    return call;
  }

  /** How many chunks; 0 for a count of 0. */
  int chunks() {
    return chunks;
  }

  /** Where a chunk lies. */
  Chunk chunk(int index) {
    long offset = index * chunkElements;
    return new Chunk(index, offset, Math.min(chunkElements, call.count() - offset));
  }

  /** A chunk as a call; the whole was checked. */
  CollectiveCall call(int index) {
    Chunk chunk = chunk(index);
    DeviceBuffer input = part(call.input(), chunk);
    DeviceBuffer output = call.output() == call.input() ? input : part(call.output(), chunk);
    return switch (call.collective()) {
      case ALL_REDUCE ->
          CollectiveCall.allReduce(input, output, chunk.count(), call.type(), call.op());
      case REDUCE ->
          CollectiveCall.reduce(input, output, chunk.count(), call.type(), call.op(), call.root());
      case BROADCAST ->
          CollectiveCall.broadcast(input, output, chunk.count(), call.type(), call.root());
      default -> throw new IllegalStateException(call.toString());
    };
  }

  /** What a rank has no use for may be null, or too small. */
  private DeviceBuffer part(DeviceBuffer buffer, Chunk chunk) {
    long offset = chunk.offset() * call.type().size();
    long size = chunk.count() * call.type().size();
    return buffer == null || offset + size > buffer.size() ? null : buffer.slice(offset, size);
  }

  @Override
  public String toString() {
    return call + " in " + chunks + " chunks";
  }
}
