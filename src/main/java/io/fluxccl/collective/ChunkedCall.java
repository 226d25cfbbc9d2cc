package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;

/**
 * A call that is done piece by piece, each a call of its own on a range of the elements; of every
 * rank's share, where a buffer has one for each.
 */
final class ChunkedCall {
  private final UniformCall call;
  private final long chunkElements;
  private final int chunks;

  /**
   * Cuts a call.
   *
   * @param call of which all ranks know how many elements it has: no all-to-all-v, send-receive or
   *     barrier
   * @param chunkElements elements of each chunk but the last
   */
  ChunkedCall(CollectiveCall call, long chunkElements) {
    if (!(call instanceof UniformCall uniform)) {
      throw new InvalidUsage(
          call + " can't be chunked: ranks don't know how many elements the others have");
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
    this.call = uniform;
    this.chunkElements = chunkElements;
    this.chunks = call.count() == 0 ? 0 : (int) ((call.count() - 1) / chunkElements) + 1;
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
    return call.part(chunk.offset(), chunk.count());
  }

  @Override
  public String toString() {
    return call + " in " + chunks + " chunks";
  }
}
