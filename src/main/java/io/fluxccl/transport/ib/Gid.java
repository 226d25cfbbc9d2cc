// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.Arrays;

/**
 * An address of an RDMA port, in the form of an IPv6 address. A RoCE port has one for each IP
 * address of its network interface, and one made from its MAC address.
 *
 * @param index its index in the port's table
 * @param kind its kind; two ports reach each other by GIDs of the same kind
 * @param bytes its 16 bytes
 */
record Gid(int index, Kind kind, byte[] bytes) {
  static final int LENGTH = 16;

  /** The length of the subnet prefix, with which a GID begins. */
  private static final int PREFIX_LENGTH = 8;

  /** The kinds of GID, preferred ones first. */
  enum Kind {
    /** RoCE v2 (UDP) between IPv4 addresses: crosses routers. */
    ROCE_V2_IPV4("RoCE v2"),
    /** RoCE v2 between IPv6 addresses: crosses routers. */
    ROCE_V2_IPV6("RoCE v2"),
    /** RoCE v2 between the addresses that interfaces make from their MAC addresses. */
    ROCE_V2_LINK_LOCAL("RoCE v2"),
    /** RoCE v1, an Ethernet protocol of its own: stays within a switched network. */
    ROCE_V1("RoCE v1"),
    /** InfiniBand. */
    INFINIBAND("InfiniBand");

    private final String layer;

    Kind(String layer) {
      this.layer = layer;
    }

    /** Returns the protocol, for a person. */
    String layer() {
      return layer;
    }
  }

  /**
   * Returns the kind of a GID.
   *
   * @param ethernet whether the port's link is Ethernet
   * @param v1 whether the kernel lists it as one of RoCE v1
   */
  static Kind kindOf(boolean ethernet, boolean v1, byte[] bytes) {
    if (!ethernet) {
      return Kind.INFINIBAND;
    }
    if (v1) {
      return Kind.ROCE_V1;
    }
    if (isIpv4(bytes)) {
      return Kind.ROCE_V2_IPV4;
    }
    return isLinkLocal(bytes) ? Kind.ROCE_V2_LINK_LOCAL : Kind.ROCE_V2_IPV6;
  }

  private static boolean isIpv4(byte[] bytes) {
    boolean mapped = bytes[10] == -1 && bytes[11] == -1;
    for (int i = 0; i < 10; i++) {
      mapped &= bytes[i] == 0;
    }
    return mapped;
  }

  private static boolean isLinkLocal(byte[] bytes) {
    return bytes[0] == (byte) 0xfe && (bytes[1] & 0xc0) == 0x80;
  }

  /** Returns whether two GIDs belong to the same subnet. */
  boolean sharesSubnetWith(Gid other) {
    return Arrays.equals(bytes, 0, PREFIX_LENGTH, other.bytes, 0, PREFIX_LENGTH);
  }

  /** Returns the address as IP writes it: an IPv4 address if it is one. */
  String address() {
    try {
      return InetAddress.getByAddress(bytes).getHostAddress();
    } catch (UnknownHostException e) {
      throw new IllegalStateException(e); // 16 bytes are always an address
    }
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Gid gid
        && gid.index == index
        && gid.kind == kind
        && Arrays.equals(gid.bytes, bytes);
  }

  @Override
  public int hashCode() {
    return Arrays.hashCode(bytes);
  }

  @Override
  public String toString() {
    return address() + " (" + kind.layer + ")";
  }
}
