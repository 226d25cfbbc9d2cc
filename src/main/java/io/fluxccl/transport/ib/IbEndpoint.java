package io.fluxccl.transport.ib;

import io.fluxccl.Deadline;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.net.InetSocketAddress;
import java.util.concurrent.CompletableFuture;

/** One end of a connection. The connection already exists and waits for its peer. */
record IbEndpoint(IbConnection connection, End end) implements Endpoint {
  /**
   * The description of one end, as the other end reads it: the address on which it listens, and the
   * token that a peer must present.
   *
   * <pre>
   *   header "FXIE" version 4   int32 rank   int32 tag
   *   4 bytes IPv4 address   uint16 port   32 bytes token
   * </pre>
   */
  record End(int rank, int tag, InetSocketAddress address, byte[] token) {
    static final int TOKEN_LENGTH = 32;

    /** Index of the token in the encoded bytes. */
    static final int TOKEN_INDEX = 20;

    private static final int MAGIC = 0x45495846;
    private static final int VERSION = 4;

    byte[] encode() {
      return new WireWriter()
          .header(MAGIC, VERSION)
          .int32(rank)
          .int32(tag)
          .raw(address.getAddress().getAddress())
          .uint16(address.getPort())
          .raw(token)
          .toBytes();
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
      byte[] ip = in.raw("address", 4);
      int port = in.uint16("port");
      in.check(port > 0, "port", "0");
      byte[] token = in.raw("token", TOKEN_LENGTH);
      in.end();
      return new End(rank, tag, new InetSocketAddress(RdmaDevices.inet4(ip), port), token);
    }
  }

  @Override
  public byte[] wire() {
    return end.encode();
  }

  @Override
  public CompletableFuture<Connection> connect(byte[] remoteWire, Deadline deadline) {
    return connection.connect(remoteWire, deadline);
  }

  @Override
  public void close() {
    connection.giveUp();
  }
}
