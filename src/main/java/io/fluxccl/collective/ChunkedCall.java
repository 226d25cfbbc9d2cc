// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;

/**
 * A call that is executed in chunks. Each chunk is a call for a range of the elements; of every
 * rank's share, if a buffer has one for each.
 *
 * @param call the whole call
 * @param chunkElements elements of each chunk but the last
 * @param chunks the number of chunks; 0 for a count of 0
 */
record ChunkedCall(UniformCall call, long chunkElements, int chunks) {
  /** Splits a call, whose number of elements all ranks must know. */
  static ChunkedCall of(CollectiveCall call, long chunkElements) {
    if (!(call instanceof UniformCall uniform)) {
      throw new InvalidUsage(
          call + " can't be chunked: ranks don't know how many elements the others have");
    }
    if (chunkElements < 1 || (call.count() - 1) / chunkElements >= Integer.MAX_VALUE) {
      throw InvalidUsage.of(
          "%s in chunks of %d; give 1 or more, and not more than %d chunks",
          call, chunkElements, Integer.MAX_VALUE);
    }
    int chunks = call.count() == 0 ? 0 : (int) ((call.count() - 1) / chunkElements) + 1;
    return new ChunkedCall(uniform, chunkElements, chunks);
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
