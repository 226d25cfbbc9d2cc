// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.JoinMessage.Failure;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The answer of a {@link Gather}'s leader to the other ranks, as the bytes of a message. */
sealed interface GatherAnswer {
  /** A range of the blocks, in rank order. The next answer holds the blocks after this range. */
  record Blocks(List<byte[]> blocks) implements GatherAnswer {
    private static final int CHUNK_BYTES = 1 << 16;

    /** Returns all blocks, cut so that no message is much longer than the longest block. */
    static List<Blocks> inBatches(byte[][] blocks) {
      List<byte[]> all = Arrays.asList(blocks);
      List<Blocks> chunks = new ArrayList<>();
      int begin = 0;
      long bytes = 0;
      for (int i = 0; i < blocks.length; i++) {
        if (i > begin && bytes + blocks[i].length > CHUNK_BYTES) {
          chunks.add(new Blocks(all.subList(begin, i)));
          begin = i;
          bytes = 0;
        }
        bytes += blocks[i].length;
      }
      chunks.add(new Blocks(all.subList(begin, blocks.length)));
      return chunks;
    }
  }

  /** The ranks that have not sent their blocks; not empty. */
  record Missing(List<Integer> ranks) implements GatherAnswer {}

  /** The leader's gather has failed: a rank has left, or the deadline has passed. */
  record Ended(Failure failure) implements GatherAnswer {}

  /** Returns the message, which all ranks may share. */
  default byte[] toBytes() {
    WireWriter out = new WireWriter();
    if (this instanceof Blocks some) {
      out.uint8(0).int32(some.blocks().size());
      some.blocks().forEach(out::bytes);
    } else if (this instanceof Missing some) {
      out.uint8(1).int32(some.ranks().size());
      some.ranks().forEach(out::int32);
    } else if (this instanceof Ended end) {
      BootstrapFrameCodec.writeFailure(end.failure(), out.uint8(2));
    }
    return out.toBytes();
  }

  /**
   * Reads a message of the leader.
   *
   * @param mostBlocks the number of blocks that have not arrived yet
   * @throws TransportFailure if it is malformed; it names the leader
   */
  static GatherAnswer of(byte[] message, int leader, int mostBlocks) {
    WireReader in = WireReader.ofPeer(message, "answer of a gather", leader);
    int kind = in.uint8("kind");
    in.check(kind <= 2, "kind", Integer.toString(kind));
    GatherAnswer answer;
    if (kind == 0) {
      int count = in.int32("count", 1, Math.min(mostBlocks, in.remaining() / Integer.BYTES));
      List<byte[]> blocks = new ArrayList<>(count);
      for (int i = 0; i < count; i++) {
        blocks.add(in.raw("block", in.int32("length")));
      }
      answer = new Blocks(blocks);
    } else if (kind == 1) {
      int count = in.int32("count", 1, in.remaining() / Integer.BYTES);
      List<Integer> ranks = new ArrayList<>(count);
      for (int i = 0; i < count; i++) {
        ranks.add(in.int32("rank", 0, BootstrapFrameCodec.MAX_RANKS - 1));
      }
      answer = new Missing(ranks);
    } else {
      answer = new Ended(BootstrapFrameCodec.readFailure(in));
    }
    in.end();
    return answer;
  }
}
