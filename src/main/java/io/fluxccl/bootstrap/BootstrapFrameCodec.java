package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
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
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Writes and reads frames. Reading trusts nothing: whatever the bytes are, it returns a frame or
 * throws {@link TransportFailure}, and allocates no more than a small multiple of what arrived.
 */
final class BootstrapFrameCodec {
  static final int MAGIC = 0x464C5558;
  static final int VERSION = 2;

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

  private static final int MIN_MEMBER_BYTES = 27;

  private enum Type {
    GREETING,
    PROOF,
    VERDICT,
    REGISTER,
    PONG,
    WAITING,
    PEERS,
    PING,
    SILENT,
    GOODBYE,
    DEPARTED,
    FAILED,
    ATTACH,
    DATA
  }

  private BootstrapFrameCodec() {}

  /** Returns the frame without its length. Refers to the bytes of a message without a copy. */
  static ByteBuf encode(BootstrapFrame frame) {
    WireWriter out = new WireWriter();
    byte[] tail = write(frame, out);
    return Unpooled.wrappedBuffer(out.toBytes(), tail);
  }

  private static byte[] write(BootstrapFrame frame, WireWriter out) {
    if (frame instanceof Data data) {
      begin(Type.DATA, out).uint8(data.space().ordinal()).int64(data.channel());
      out.int32(data.sequence()).int32(data.message().leftRank());
      return data.message().bytes();
    } else if (frame instanceof Failed failed) {
      begin(Type.FAILED, out).uint8(failed.code().ordinal()).int32(failed.rank());
      return shorten(failed.message());
    } else if (frame instanceof Ping) {
      begin(Type.PING, out);
    } else if (frame instanceof Pong) {
      begin(Type.PONG, out);
    } else if (frame instanceof Attach) {
      begin(Type.ATTACH, out);
    } else if (frame instanceof Goodbye) {
      begin(Type.GOODBYE, out);
    } else if (frame instanceof Waiting waiting) {
      writeRanks(begin(Type.WAITING, out), waiting.missing());
    } else if (frame instanceof Silent silent) {
      writeRanks(begin(Type.SILENT, out), silent.ranks());
    } else if (frame instanceof Departed departed) {
      writeRanks(begin(Type.DEPARTED, out), departed.ranks());
    } else {
      writeSetup(frame, out);
    }
    return Message.NO_BYTES;
  }

  private static void writeSetup(BootstrapFrame frame, WireWriter out) {
    if (frame instanceof Greeting greeting) {
      begin(Type.GREETING, out).header(MAGIC, VERSION).raw(greeting.nonce());
    } else if (frame instanceof Proof proof) {
      begin(Type.PROOF, out).uint8(proof.kind().ordinal());
      out.int32(proof.rank()).int32(proof.nRanks()).int32(proof.target());
      out.raw(proof.nonce()).raw(proof.mac());
    } else if (frame instanceof Verdict verdict) {
      begin(Type.VERDICT, out).uint8(verdict.admission().ordinal());
      out.int32(verdict.expectedRanks()).raw(verdict.mac());
    } else if (frame instanceof Register register) {
      begin(Type.REGISTER, out).bool(register.hostsRoot());
      writeMember(register.member(), out);
    } else if (frame instanceof Peers peers) {
      begin(Type.PEERS, out).raw(peers.jobId()).int32(peers.rootHost());
      out.int32(peers.members().size());
      peers.members().forEach(member -> writeMember(member, out));
    }
  }

  private static WireWriter begin(Type type, WireWriter out) {
    return out.uint8(type.ordinal());
  }

  /**
   * Reads the one frame that the buffer holds, without its length.
   *
   * @throws TransportFailure if it holds anything else
   */
  static BootstrapFrame decode(ByteBuf bytes) {
    WireReader in = new WireReader(bytes.nioBuffer(), BootstrapFrameCodec::malformed);
    BootstrapFrame frame = read(in);
    in.end();
    return frame;
  }

  private static BootstrapFrame read(WireReader in) {
    return switch (readEnum(in, "type", Type.values())) {
      case GREETING -> new Greeting(in.header(MAGIC, VERSION).raw("nonce", NONCE_BYTES));
      case PROOF ->
          new Proof(
              readEnum(in, "kind", LinkKind.values()),
              in.int32("rank"),
              in.int32("nRanks"),
              in.int32("target"),
              in.raw("nonce", NONCE_BYTES),
              in.raw("mac", MAC_BYTES));
      case VERDICT ->
          new Verdict(
              readEnum(in, "admission", Admission.values()),
              in.int32("expectedRanks"),
              in.raw("mac", MAC_BYTES));
      case REGISTER -> readRegister(in);
      case PONG -> new Pong();
      case WAITING -> new Waiting(readRanks(in));
      case PEERS -> readPeers(in);
      case PING -> new Ping();
      case SILENT -> new Silent(readRanks(in));
      case GOODBYE -> new Goodbye();
      case DEPARTED -> new Departed(readRanks(in));
      case FAILED -> readFailed(in);
      case ATTACH -> new Attach();
      case DATA -> readData(in);
    };
  }

  private static Data readData(WireReader in) {
    StreamKey.Space space = readEnum(in, "space", StreamKey.Space.values());
    long channel = in.int64("channel");
    int sequence = in.int32("sequence");
    int leftRank = in.int32("leftRank", FluxCclException.NO_RANK, MAX_RANKS - 1);
    byte[] bytes = in.raw("message", in.remaining());
    return new Data(space, channel, sequence, new Message(bytes, leftRank));
  }

  private static Failed readFailed(WireReader in) {
    ErrorCode code = readEnum(in, "code", ErrorCode.values());
    int rank = in.int32("rank", FluxCclException.NO_RANK, MAX_RANKS - 1);
    int length = in.remaining();
    in.check(length <= MAX_REASON_BYTES, "reason", length + " bytes");
    return new Failed(code, rank, new String(in.raw("reason", length), StandardCharsets.UTF_8));
  }

  private static Register readRegister(WireReader in) {
    boolean hostsRoot = in.bool("hostsRoot");
    return new Register(readMember(in), hostsRoot);
  }

  private static Peers readPeers(WireReader in) {
    byte[] jobId = in.raw("jobId", JOB_ID_BYTES);
    int rootHost = in.int32("rootHost");
    // Bounded by what has arrived, so a false count can't make this list large.
    int count = in.int32("count", 1, Math.min(MAX_RANKS, in.remaining() / MIN_MEMBER_BYTES));
    in.check(rootHost >= -1 && rootHost < count, "rootHost", rootHost + " of " + count);
    List<Member> members = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      members.add(readMember(in));
    }
    return new Peers(jobId, rootHost, members);
  }

  private static void writeMember(Member member, WireWriter out) {
    UniqueId.writeAddress(member.address(), out);
    out.int64(member.hostHash()).int64(member.processHash());
  }

  private static Member readMember(WireReader in) {
    InetSocketAddress address = UniqueId.readAddress(in);
    return new Member(address, in.int64("hostHash"), in.int64("processHash"));
  }

  private static void writeRanks(WireWriter out, List<Integer> ranks) {
    out.int32(ranks.size());
    ranks.forEach(out::int32);
  }

  private static List<Integer> readRanks(WireReader in) {
    int count = in.int32("count", 0, Math.min(MAX_RANKS, in.remaining() / Integer.BYTES));
    List<Integer> ranks = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      ranks.add(in.int32("rank", 0, MAX_RANKS - 1));
    }
    return ranks;
  }

  private static <E> E readEnum(WireReader in, String field, E[] values) {
    int ordinal = in.uint8(field);
    in.check(ordinal < values.length, field, ordinal + ", expected 0.." + (values.length - 1));
    return values[ordinal];
  }

  /** Returns a reason as it is sent: cut where it is too long. */
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
    return Arrays.copyOf(bytes, end);
  }

  static TransportFailure malformed(String problem) {
    return new TransportFailure(TransportFailure.NO_RANK, "malformed bootstrap frame: " + problem);
  }
}
