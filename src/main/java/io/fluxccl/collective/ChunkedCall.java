package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;

/**
 * A call that is executed in chunks. Each chunk is a call for a range of the elements; of every
 * rank's share, if a buffer has one for each.
 */
final class ChunkedCall {
  private final UniformCall call;
  private final long chunkElements;
  private final int chunks;

  /**
   * Splits a call.
   *
   * @param call a {@link UniformCall}, whose number of elements all ranks know
   * @param chunkElements elements of each chunk but the last
   */
  ChunkedCall(CollectiveCall call, long chunkElements) {
    if (!(call instanceof UniformCall uniform)) {
      throw new InvalidUsage(
          call + " can't be chunked: ranks don't know how many elements the others have");
    }
    if (chunkElements < 1 || (call.count() - 1) / chunkElements >= Integer.MAX_VALUE) {
      throw InvalidUsage.of(
          "%s in chunks of %d; give 1 or more, and not more than %d chunks",
          call, chunkElements, Integer.MAX_VALUE);
    }
    this.call = uniform;
    this.chunkElements = chunkElements;
    this.chunks = call.count() == 0 ? 0 : (int) ((call.count() - 1) / chunkElements) + 1;
  }

  /** Returns the whole call. */
  CollectiveCall whole() {
    return call;
  }

  /** Returns the number of chunks; 0 for a count of 0. */
  int chunks() {
    return chunks;
  }

  /** Returns the range of a chunk. */
  Chunk chunk(int index) {
    long offset = index * chunkElements;
    return new Chunk(index, offset, Math.min(chunkElements, call.count() - offset));
  }

  /** Returns a chunk as a call; the whole call was checked. */
  CollectiveCall call(int index) {
    Chunk chunk = chunk(index);
    return call.part(chunk.offset(), chunk.count());
  }

  @Override
  public String toString() {
    return call + " in " + chunks + " chunks";
  }
}
