package io.fluxccl.netplugin.ib;

import io.fluxccl.InvalidUsage;
import java.io.IOException;
import java.net.Inet4Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/**
 * What ends tell each other before there is a queue pair; all little-endian.
 *
 * <pre>
 * handle     magic 8, IPv4 address 4, port 4, token 16, mailbox 8, its key 4, name 24
 * greeting   token 16, mailbox 8, its key 4, IPv4 address 4, name 24
 * </pre>
 *
 * A listener's handle travels as the user likes; the greeting is the private data of the connection
 * request, which has room for so much and no more.
 */
final class SetupDescriptor {
  static final int TOKEN_LENGTH = 16;
  static final int HANDLE_LENGTH = 68;
  static final int GREETING_LENGTH = 56;

  private static final int NAME_LENGTH = 24;
  private static final int ADDRESS_LENGTH = 4;
  private static final long HANDLE_MAGIC = 0x3142_4948_4c46_4346L;

  private SetupDescriptor() {}

  /** Where the other end's {@link Mailbox} is. */
  record Place(long address, int key) {}

  /** Where a listener is, and what shows that somebody knows its handle. */
  record Handle(InetSocketAddress address, byte[] token, Place mailbox, String name) {
    String text() {
      return address.getAddress().getHostAddress() + ":" + address.getPort() + " (" + name + ")";
    }
  }

  /** Who connects. */
  record Greeting(Place mailbox, Inet4Address address, String name) {
    String text() {
      return address.getHostAddress() + " (" + name + ")";
    }
  }

  static byte[] handle(Inet4Address address, int port, byte[] token, Place mailbox) {
    ByteBuffer out = ByteBuffer.allocate(HANDLE_LENGTH).order(ByteOrder.LITTLE_ENDIAN);
    out.putLong(HANDLE_MAGIC).put(address.getAddress()).putInt(port).put(token);
    out.putLong(mailbox.address()).putInt(mailbox.key()).put(ownName());
    return out.array();
  }

  static Handle readHandle(ByteBuffer handle) {
    ByteBuffer in = handle.duplicate().order(ByteOrder.LITTLE_ENDIAN).clear();
    long magic = in.getLong();
    Inet4Address host = readAddress(in);
    int port = in.getInt();
    if (magic != HANDLE_MAGIC || port < 1 || port > 0xffff) {
      throw new InvalidUsage("the handle is not of an RDMA listener of FluxCCL");
    }
    byte[] token = new byte[TOKEN_LENGTH];
    in.get(token);
    Place mailbox = new Place(in.getLong(), in.getInt());
    return new Handle(new InetSocketAddress(host, port), token, mailbox, readName(in));
  }

  static byte[] greeting(byte[] token, Place mailbox, Inet4Address own) {
    ByteBuffer out = ByteBuffer.allocate(GREETING_LENGTH).order(ByteOrder.LITTLE_ENDIAN);
    out.put(token).putLong(mailbox.address()).putInt(mailbox.key());
    return out.put(own.getAddress()).put(ownName()).array();
  }

  /** The token in what a request said, or null where there can be none. */
  static byte[] tokenOf(byte[] privateData) {
    return privateData.length < GREETING_LENGTH ? null : Arrays.copyOf(privateData, TOKEN_LENGTH);
  }

  /** Of a request whose token is right. */
  static Greeting readGreeting(byte[] privateData) {
    ByteBuffer in = ByteBuffer.wrap(privateData).order(ByteOrder.LITTLE_ENDIAN);
    in.position(TOKEN_LENGTH);
    Place mailbox = new Place(in.getLong(), in.getInt());
    return new Greeting(mailbox, readAddress(in), readName(in));
  }

  private static Inet4Address readAddress(ByteBuffer in) {
    byte[] bytes = new byte[ADDRESS_LENGTH];
    in.get(bytes);
    try {
      return (Inet4Address) InetAddress.getByAddress(bytes);
    } catch (UnknownHostException e) {
      throw new IllegalStateException(e); // four bytes are always one
    }
  }

  private static String readName(ByteBuffer in) {
    byte[] name = new byte[NAME_LENGTH];
    in.get(name);
    int end = 0;
    while (end < NAME_LENGTH && name[end] != 0) {
      end++;
    }
    // It ends up in logs.
    return new String(name, 0, end, StandardCharsets.UTF_8).replaceAll("[^\\w.:-]", "_");
  }

  /** This process, for the peer's messages: host, shortened where it is long, and number. */
  private static byte[] ownName() {
    return Name.OWN.clone();
  }

  private static final class Name {
    private static final byte[] OWN = name();

    private static byte[] name() {
      String process = ":" + ProcessHandle.current().pid();
      byte[] host = hostName().getBytes(StandardCharsets.UTF_8);
      int length = Math.min(host.length, NAME_LENGTH - process.length());
      ByteBuffer all = ByteBuffer.allocate(NAME_LENGTH).put(host, 0, length);
      return all.put(process.getBytes(StandardCharsets.UTF_8)).array();
    }

    private static String hostName() {
      try {
        return Files.readString(Path.of("/proc/sys/kernel/hostname")).trim();
      } catch (IOException e) {
        return "host";
      }
    }
  }
}
