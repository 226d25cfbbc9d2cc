// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import io.fluxccl.Deadline;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/** One end of a connection. The connection already exists and waits for its peer. */
record IbEndpoint(IbConnection connection, End end) implements Endpoint {
  /**
   * The description of one end, as the other end reads it: its queue pair, its port, and the word
   * into which the other end writes its hello and its final message.
   *
   * <pre>
   *   header "FXIE" version 5   int32 rank   int32 tag
   *   int32 queue pair   int32 first packet   int64 address of the word   int32 key of the word
   *   bool Ethernet   int32 LID   uint8 MTU
   *   uint8 number of GIDs   of each: uint8 kind, 16 bytes
   * </pre>
   */
  record End(
      int rank, int tag, int queuePair, int packet, long word, int wordKey, PortAddress port) {
    /** Index of the number of the queue pair in the encoded bytes. */
    static final int QUEUE_PAIR_INDEX = 14;

    /** Queue pairs and packets have numbers of 24 bits. */
    static final int MAX_NUMBER = (1 << 24) - 1;

    private static final int MAX_LID = 0xffff;
    private static final int MIN_MTU = 1;
    private static final int MAX_MTU = 5;
    private static final int MAGIC = 0x45495846;
    private static final int VERSION = 5;

    byte[] encode() {
      WireWriter out =
          new WireWriter()
              .header(MAGIC, VERSION)
              .int32(rank)
              .int32(tag)
              .int32(queuePair)
              .int32(packet)
              .int64(word)
              .int32(wordKey)
              .bool(port.attributes().ethernet())
              .int32(port.attributes().lid())
              .uint8(port.attributes().mtu())
              .uint8(port.gids().size());
      port.gids().forEach(gid -> out.uint8(gid.kind().ordinal()).raw(gid.bytes()));
      return out.toBytes();
    }

    /**
     * Decodes the description that a peer sent, and validates every field.
     *
     * @param wire received bytes
     * @param fromRank the sender, for the error
     * @throws TransportFailure if it is malformed
     */
    static End decode(byte[] wire, int fromRank) {
      WireReader in = WireReader.ofPeer(wire, "RDMA endpoint", fromRank);
      in.header(MAGIC, VERSION);
      int rank = in.int32("rank");
      in.check(rank == fromRank, "rank", rank + ", expected " + fromRank);
      int tag = in.int32("tag");
      int queuePair = in.int32("queue pair", 0, MAX_NUMBER);
      int packet = in.int32("packet", 0, MAX_NUMBER);
      long word = in.int64("word");
      in.check((word & Long.BYTES - 1) == 0, "word", word + ", expected a multiple of 8");
      int wordKey = in.int32("key");
      boolean ethernet = in.bool("Ethernet");
      int lid = in.int32("LID", 0, MAX_LID);
      int mtu = within(in, "MTU", MIN_MTU, MAX_MTU);
      Verbs.Port.Attributes attributes = new Verbs.Port.Attributes(ethernet, lid, mtu);
      PortAddress port = new PortAddress(attributes, gids(in));
      in.end();
      return new End(rank, tag, queuePair, packet, word, wordKey, port);
    }

    private static List<Gid> gids(WireReader in) {
      int count = within(in, "GIDs", 0, PortAddress.MAX_GIDS);
      Gid.Kind[] kinds = Gid.Kind.values();
      List<Gid> gids = new ArrayList<>();
      for (int i = 0; i < count; i++) {
        int kind = within(in, "kind of GID", 0, kinds.length - 1);
        gids.add(new Gid(i, kinds[kind], in.raw("GID", Gid.LENGTH)));
      }
      return gids;
    }

    private static int within(WireReader in, String field, int least, int most) {
      int value = in.uint8(field);
      in.check(value >= least && value <= most, field, value + ", expected " + least + ".." + most);
      return value;
    }
  }

  @Override
  public byte[] wire() {
    return end.encode();
  }

  @Override
  public boolean needsReadyExchange() {
    return true;
  }

  @Override
  public CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
    return connect(remoteWire, deadline, () -> CompletableFuture.completedFuture(null));
  }

  @Override
  public CompletableFuture<Connection> connect(
      byte[] remoteWire, Deadline deadline, Supplier<CompletableFuture<Void>> bothReady) {
    return connection.connect(remoteWire, deadline, bothReady);
  }

  @Override
  public void close() {
    connection.giveUp();
  }
}
