package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Attach;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.Goodbye;
import io.fluxccl.bootstrap.BootstrapFrame.Greeting;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Member;
import io.fluxccl.bootstrap.BootstrapFrame.Peers;
import io.fluxccl.bootstrap.BootstrapFrame.Ping;
import io.fluxccl.bootstrap.BootstrapFrame.Pong;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Register;
import io.fluxccl.bootstrap.BootstrapFrame.Silent;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.fluxccl.bootstrap.BootstrapFrame.Waiting;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.Unpooled;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Frames to bytes and back. Reading trusts nothing: whatever the bytes are, it gives a frame or
 * throws {@link TransportFailure}, and allocates no more than a small multiple of what came.
 */
final class BootstrapFrameCodec {
  static final long MAGIC = 0x464C555843434C31L;
  static final short VERSION = 1;

  static final int LENGTH_BYTES = 4;
  static final int NONCE_BYTES = 32;
  static final int MAC_BYTES = 32;
  static final int JOB_ID_BYTES = 16;
  static final int MAX_RANKS = 1 << 16;

  /** The longest frame of the handshake. */
  static final int HANDSHAKE_LIMIT = 256;

  /** The longest frame of a connection with the root. */
  static final int CONTROL_LIMIT = 4 << 20;

  /** What a message needs beside its own bytes. */
  static final int DATA_OVERHEAD = 64;

  static final int MAX_REASON_BYTES = 4096;

  // Larger payloads are appended without a copy.
  private static final int COPY_LIMIT = 4096;

  private static final int GREETING = 1;
  private static final int PROOF = 2;
  private static final int VERDICT = 3;
  private static final int REGISTER = 4;
  private static final int PONG = 5;
  private static final int WAITING = 6;
  private static final int PEERS = 7;
  private static final int PING = 8;
  private static final int SILENT = 9;
  private static final int GOODBYE = 10;
  private static final int DEPARTED = 11;
  private static final int FAILED = 12;
  private static final int ATTACH = 13;
  private static final int DATA = 14;

  private BootstrapFrameCodec() {}

  /** The frame with its length in front; the caller releases it. */
  static ByteBuf encode(BootstrapFrame frame, ByteBufAllocator allocator) {
    ByteBuf out = allocator.buffer(128);
    out.writeInt(0);
    byte[] tail = write(frame, out);
    out.setInt(0, out.readableBytes() - LENGTH_BYTES + tail.length);
    if (tail.length <= COPY_LIMIT) {
      return out.writeBytes(tail);
    }
    return Unpooled.wrappedBuffer(out, Unpooled.wrappedBuffer(tail));
  }

  private static byte[] write(BootstrapFrame frame, ByteBuf out) {
    if (frame instanceof Data data) {
      out.writeByte(DATA).writeByte(data.space().ordinal()).writeLong(data.channel());
      out.writeInt(data.sequence());
      out.writeBoolean(data.message().broken()).writeInt(data.message().culprit());
      return data.message().bytes();
    } else if (frame instanceof Ping) {
      out.writeByte(PING);
    } else if (frame instanceof Pong) {
      out.writeByte(PONG);
    } else if (frame instanceof Attach) {
      out.writeByte(ATTACH);
    } else if (frame instanceof Goodbye) {
      out.writeByte(GOODBYE);
    } else if (frame instanceof Waiting waiting) {
      writeRanks(WAITING, waiting.missing(), out);
    } else if (frame instanceof Silent silent) {
      writeRanks(SILENT, silent.ranks(), out);
    } else if (frame instanceof Departed departed) {
      writeRanks(DEPARTED, departed.ranks(), out);
    } else if (frame instanceof Failed failed) {
      out.writeByte(FAILED).writeByte(failed.code().ordinal()).writeInt(failed.rank());
      return shorten(failed.message());
    } else if (frame instanceof Greeting greeting) {
      out.writeByte(GREETING).writeLong(MAGIC).writeShort(VERSION).writeBytes(greeting.nonce());
    } else if (frame instanceof Proof proof) {
      out.writeByte(PROOF).writeByte(proof.kind().ordinal());
      out.writeInt(proof.rank()).writeInt(proof.nRanks()).writeInt(proof.target());
      out.writeBytes(proof.nonce()).writeBytes(proof.mac());
    } else if (frame instanceof Verdict verdict) {
      out.writeByte(VERDICT).writeByte(verdict.admission().ordinal());
      out.writeInt(verdict.detail()).writeBytes(verdict.mac());
    } else if (frame instanceof Register register) {
      out.writeByte(REGISTER).writeBoolean(register.hostsRoot());
      writeMember(register.member(), out);
    } else if (frame instanceof Peers peers) {
      out.writeByte(PEERS).writeBytes(peers.jobId()).writeInt(peers.rootHost());
      out.writeInt(peers.members().size());
      peers.members().forEach(member -> writeMember(member, out));
    }
    return Message.NO_BYTES;
  }

  /**
   * Reads the one frame that the buffer holds, without its length.
   *
   * @throws TransportFailure if it holds anything else
   */
  static BootstrapFrame decode(ByteBuf in) {
    try {
      BootstrapFrame frame = read(in);
      if (in.isReadable()) {
        throw malformed(in.readableBytes() + " bytes too many");
      }
      return frame;
    } catch (IndexOutOfBoundsException e) {
      throw malformed("it ends too early");
    }
  }

  private static BootstrapFrame read(ByteBuf in) {
    int type = in.readUnsignedByte();
    switch (type) {
      case GREETING:
        if (in.readLong() != MAGIC || in.readShort() != VERSION) {
          throw malformed("the other side speaks another protocol or version");
        }
        return new Greeting(readBytes(in, NONCE_BYTES));
      case PROOF:
        return new Proof(
            readEnum(in, LinkKind.values()),
            in.readInt(),
            in.readInt(),
            in.readInt(),
            readBytes(in, NONCE_BYTES),
            readBytes(in, MAC_BYTES));
      case VERDICT:
        return new Verdict(
            readEnum(in, Admission.values()), in.readInt(), readBytes(in, MAC_BYTES));
      case REGISTER:
        boolean hostsRoot = in.readBoolean();
        return new Register(readMember(in), hostsRoot);
      case PONG:
        return new Pong();
      case WAITING:
        return new Waiting(readRanks(in));
      case PEERS:
        return readPeers(in);
      case PING:
        return new Ping();
      case SILENT:
        return new Silent(readRanks(in));
      case GOODBYE:
        return new Goodbye();
      case DEPARTED:
        return new Departed(readRanks(in));
      case FAILED:
        return readFailed(in);
      case ATTACH:
        return new Attach();
      case DATA:
        return readData(in);
      default:
        throw malformed("type=" + type);
    }
  }

  private static Data readData(ByteBuf in) {
    StreamKey.Space space = readEnum(in, StreamKey.Space.values());
    long channel = in.readLong();
    int sequence = in.readInt();
    boolean broken = in.readBoolean();
    int culprit = in.readInt();
    byte[] bytes = readBytes(in, in.readableBytes());
    return new Data(space, channel, sequence, new Message(bytes, broken, culprit));
  }

  private static Failed readFailed(ByteBuf in) {
    ErrorCode code = readEnum(in, ErrorCode.values());
    int rank = in.readInt();
    if (rank < -1 || rank >= MAX_RANKS) {
      throw malformed("rank=" + rank);
    }
    if (in.readableBytes() > MAX_REASON_BYTES) {
      throw malformed("a reason of " + in.readableBytes() + " bytes");
    }
    return new Failed(
        code, rank, new String(readBytes(in, in.readableBytes()), StandardCharsets.UTF_8));
  }

  private static Peers readPeers(ByteBuf in) {
    byte[] jobId = readBytes(in, JOB_ID_BYTES);
    int rootHost = in.readInt();
    int count = in.readInt();
    // A member has 27 bytes at least, so a count that lies can't make this list large.
    if (count < 1 || count > MAX_RANKS || count > in.readableBytes() / 27) {
      throw malformed("count=" + count);
    }
    if (rootHost < -1 || rootHost >= count) {
      throw malformed("rootHost=" + rootHost);
    }
    List<Member> members = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      members.add(readMember(in));
    }
    return new Peers(jobId, rootHost, members);
  }

  private static void writeMember(Member member, ByteBuf out) {
    byte[] ip = member.address().getAddress().getAddress();
    out.writeByte(ip.length).writeBytes(ip);
    out.writeInt(UniqueId.scopeOf(member.address().getAddress()));
    out.writeShort(member.address().getPort());
    out.writeLong(member.hostHash()).writeLong(member.processHash());
  }

  private static Member readMember(ByteBuf in) {
    int length = in.readUnsignedByte();
    if (length != 4 && length != 16) {
      throw malformed("addressLength=" + length);
    }
    byte[] ip = readBytes(in, length);
    int scope = in.readInt();
    int port = in.readUnsignedShort();
    if (port == 0 || scope < 0) {
      throw malformed("port=" + port + ", scope=" + scope);
    }
    return new Member(
        new InetSocketAddress(UniqueId.addressOf(ip, scope), port), in.readLong(), in.readLong());
  }

  private static void writeRanks(int type, List<Integer> ranks, ByteBuf out) {
    out.writeByte(type).writeInt(ranks.size());
    ranks.forEach(out::writeInt);
  }

  private static List<Integer> readRanks(ByteBuf in) {
    int count = in.readInt();
    if (count < 0 || count > MAX_RANKS || count > in.readableBytes() / 4) {
      throw malformed("count=" + count);
    }
    List<Integer> ranks = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      int rank = in.readInt();
      if (rank < 0 || rank >= MAX_RANKS) {
        throw malformed("rank=" + rank);
      }
      ranks.add(rank);
    }
    return ranks;
  }

  private static byte[] readBytes(ByteBuf in, int length) {
    if (length > in.readableBytes()) {
      throw malformed("it ends too early");
    }
    byte[] bytes = new byte[length];
    in.readBytes(bytes);
    return bytes;
  }

  private static <E> E readEnum(ByteBuf in, E[] values) {
    int ordinal = in.readUnsignedByte();
    if (ordinal >= values.length) {
      throw malformed("value=" + ordinal + " of " + values.length);
    }
    return values[ordinal];
  }

  /** A reason as it travels: cut where it is too long. */
  static String shortened(String message) {
    return new String(shorten(message), StandardCharsets.UTF_8);
  }

  private static byte[] shorten(String message) {
    byte[] bytes = message.getBytes(StandardCharsets.UTF_8);
    if (bytes.length <= MAX_REASON_BYTES) {
      return bytes;
    }
    int end = MAX_REASON_BYTES;
    // Not in the middle of a character.
    while (end > 0 && (bytes[end] & 0xC0) == 0x80) {
      end--;
    }
    return java.util.Arrays.copyOf(bytes, end);
  }

  static TransportFailure malformed(String what) {
    return new TransportFailure(TransportFailure.NO_RANK, "malformed bootstrap frame: " + what);
  }
}
