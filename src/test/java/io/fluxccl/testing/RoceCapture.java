// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;

/**
 * Counts the RoCE v2 packets of a capture: UDP to port 4791, whose payload begins with the
 * InfiniBand base transport header; the first packet of a write has its length. Reads the classic
 * pcap format of Ethernet frames, which may be truncated after their headers.
 */
public final class RoceCapture {
  private static final int FILE_HEADER = 24;
  private static final int PACKET_HEADER = 16;
  private static final int MAGIC = 0xa1b2c3d4;
  private static final int ETHERNET = 14;
  private static final int IPV4 = 0x0800;
  private static final int TCP = 6;
  private static final int UDP = 17;
  private static final int UDP_HEADER = 8;
  private static final int ROCE_PORT = 4791;
  private static final int BASE_HEADER = 12;

  /** Offset of a write's length in its extended header. */
  private static final int DMA_LENGTH = 12;

  // Opcodes of reliable connections.
  private static final int WRITE_FIRST = 0x06;
  private static final int WRITE_ONLY = 0x0a;
  private static final int ACKNOWLEDGE = 0x11;

  long rocePackets;
  long writes;
  long acknowledgements;
  long tcpBytes;

  /** The bytes written by RDMA, by {@code source -> destination}. */
  final Map<String, Long> writtenBytes = new TreeMap<>();

  private long packets;

  private RoceCapture() {}

  /**
   * Prints what a capture has; exits with 1 if there is no write in each direction.
   *
   * @param arguments the capture's file
   */
  public static void main(String[] arguments) throws IOException {
    RoceCapture capture;
    try (InputStream in = Files.newInputStream(Path.of(arguments[0]))) {
      capture = read(in);
    }
    System.out.println(capture);
    if (capture.writtenBytes.size() < 2) {
      System.err.println("RoceCapture: no RDMA writes in both directions");
      System.exit(1);
    }
  }

  /** Reads a capture to its end, or to where its writer was stopped. */
  static RoceCapture read(InputStream stream) throws IOException {
    DataInputStream in = new DataInputStream(new BufferedInputStream(stream));
    ByteBuffer header = ByteBuffer.wrap(in.readNBytes(FILE_HEADER));
    if (header.capacity() < FILE_HEADER) {
      throw new IOException("no capture: it has only " + header.capacity() + " bytes");
    }
    ByteOrder order = header.getInt(0) == MAGIC ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN;
    if (header.order(order).getInt(0) != MAGIC) {
      throw new IOException("no capture: its first word is none of the pcap format");
    }
    RoceCapture capture = new RoceCapture();
    while (true) {
      ByteBuffer about = ByteBuffer.wrap(in.readNBytes(PACKET_HEADER)).order(order);
      if (about.capacity() < PACKET_HEADER) {
        return capture;
      }
      ByteBuffer frame = ByteBuffer.wrap(in.readNBytes(about.getInt(8)));
      if (frame.capacity() < about.getInt(8)) {
        return capture;
      }
      capture.add(frame, about.getInt(12));
    }
  }

  private void add(ByteBuffer frame, int wholeLength) throws UnknownHostException {
    packets++;
    if (frame.capacity() < ETHERNET + 20 || (frame.getShort(12) & 0xffff) != IPV4) {
      return;
    }
    int transport = ETHERNET + (frame.get(ETHERNET) & 0xf) * 4;
    int protocol = frame.get(ETHERNET + 9) & 0xff;
    if (protocol == TCP) {
      tcpBytes += wholeLength;
    }
    boolean isRoce =
        protocol == UDP
            && frame.capacity() >= transport + UDP_HEADER + BASE_HEADER
            && (frame.getShort(transport + 2) & 0xffff) == ROCE_PORT;
    if (!isRoce) {
      return;
    }
    rocePackets++;
    int opcode = frame.get(transport + UDP_HEADER) & 0xff;
    if (opcode == ACKNOWLEDGE) {
      acknowledgements++;
    }
    if (opcode == WRITE_FIRST || opcode == WRITE_ONLY) {
      writes++;
      int length = frame.getInt(transport + UDP_HEADER + BASE_HEADER + DMA_LENGTH);
      writtenBytes.merge(
          address(frame, ETHERNET + 12) + " -> " + address(frame, ETHERNET + 16),
          (long) length,
          Long::sum);
    }
  }

  private static String address(ByteBuffer frame, int at) throws UnknownHostException {
    byte[] bytes = new byte[4];
    frame.get(at, bytes);
    return InetAddress.getByAddress(bytes).getHostAddress();
  }

  @Override
  public String toString() {
    return String.format(
        "%d packets, of them %d RoCE v2 (UDP port %d): %d RDMA writes of %s bytes, %d acknowledgements;"
            + " TCP has %d bytes",
        packets, rocePackets, ROCE_PORT, writes, writtenBytes, acknowledgements, tcpBytes);
  }
}
