// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.net;

import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;

/**
 * The description of one end that it sends to its peer.
 *
 * @param network the network's name
 * @param rank the sender
 * @param tag the connection's tag
 * @param checksums whether messages are to have checksums, in both directions
 * @param address what a peer needs to connect to this end of the link
 */
record EndpointWire(String network, int rank, int tag, boolean checksums, byte[] address) {
  private static final int MAGIC = 0x454e5846;
  private static final int VERSION = 4;
  private static final int MAX_NAME = 256;
  private static final int MAX_ADDRESS = 4096;

  byte[] encode() {
    return new WireWriter()
        .header(MAGIC, VERSION)
        .int32(rank)
        .int32(tag)
        .bool(checksums)
        .string(network)
        .bytes(address)
        .toBytes();
  }

  /**
   * Decodes a description that a peer sent, and validates every field except the address. The
   * network must handle a wrong address.
   *
   * @param wire the received bytes
   * @param fromRank the sender, for the error
   * @throws io.fluxccl.TransportFailure if it is malformed
   */
  static EndpointWire decode(byte[] wire, int fromRank) {
    WireReader in = WireReader.ofPeer(wire, "endpoint", fromRank).header(MAGIC, VERSION);
    int rank = in.int32("rank", fromRank, fromRank);
    int tag = in.int32("tag");
    boolean checksums = in.bool("checksums");
    String network = in.string("network", MAX_NAME);
    EndpointWire decoded =
        new EndpointWire(network, rank, tag, checksums, in.bytes("address", MAX_ADDRESS));
    in.end();
    return decoded;
  }
}
