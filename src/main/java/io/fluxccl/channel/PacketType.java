// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

/**
 * The low-latency packet formats. Each unit that is written by one store carries its own flag, so
 * the receiver needs no other signal. Little-endian 32-bit words.
 *
 * <pre>
 *   LL8    data  flag                  8 bytes for 4 of payload
 *   LL16   data1 flag  data2 flag     16 bytes for 8 of payload
 * </pre>
 */
public enum PacketType {
  /** 4 bytes of payload and a flag. */
  LL8(4, 8),
  /** 8 bytes of payload and two flags. */
  LL16(8, 16);

  private final int payload;
  private final int length;

  PacketType(int payload, int length) {
    this.payload = payload;
    this.length = length;
  }

  /** Returns the length of a packet's payload in bytes. */
  public int payload() {
    return payload;
  }

  /** Returns the length of a packet in bytes. */
  public int length() {
    return length;
  }
}
