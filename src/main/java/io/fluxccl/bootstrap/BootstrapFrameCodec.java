// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Attach;
import io.fluxccl.bootstrap.BootstrapFrame.Attend;
import io.fluxccl.bootstrap.BootstrapFrame.Confirm;
import io.fluxccl.bootstrap.BootstrapFrame.Convened;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.DumpReply;
import io.fluxccl.bootstrap.BootstrapFrame.DumpRequest;
import io.fluxccl.bootstrap.BootstrapFrame.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.Goodbye;
import io.fluxccl.bootstrap.BootstrapFrame.Greeting;
import io.fluxccl.bootstrap.BootstrapFrame.Hello;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Member;
import io.fluxccl.bootstrap.BootstrapFrame.Peers;
import io.fluxccl.bootstrap.BootstrapFrame.Ping;
import io.fluxccl.bootstrap.BootstrapFrame.Pong;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Register;
import io.fluxccl.bootstrap.BootstrapFrame.Resume;
import io.fluxccl.bootstrap.BootstrapFrame.Silent;
import io.fluxccl.bootstrap.BootstrapFrame.Spare;
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
import java.util.function.BiConsumer;
import java.util.function.Function;

/**
 * Writes and reads frames. Reading trusts nothing: whatever the bytes are, it returns a frame or
 * throws {@link TransportFailure}, and allocates no more than a small multiple of what arrived.
 */
final class BootstrapFrameCodec {
  static final int MAGIC = 0x464C5558;
  static final int VERSION = 7;

  static final int NONCE_BYTES = 32;
  static final int MAC_BYTES = 32;
  static final int JOB_ID_BYTES = 16;
  static final int MAX_RANKS = 1 << 16;

  /** The longest frame of the handshake. */
  static final int HANDSHAKE_LIMIT = 256;

  /** The longest frame of a connection with the root. */
  static final int CONTROL_LIMIT = 4 << 20;

  /** An upper bound of the bytes of a {@link Data} frame besides its message. */
  private static final int DATA_OVERHEAD = 64;

  static final int MAX_REASON_BYTES = 4096;

  private static final int MIN_MEMBER_BYTES = 27;

  /** The longest description of a process: its id and a host name of Linux. */
  private static final int MAX_PROCESS_BYTES = 128;

  /** Writes and reads the fields of one type of frame; the type's number precedes them. */
  private record Form<F extends BootstrapFrame>(
      Class<F> type, BiConsumer<F, WireWriter> writer, Function<WireReader, F> reader) {
    void write(BootstrapFrame frame, WireWriter out) {
      writer.accept(type.cast(frame), out);
    }
  }

  // A type's number is its index in this list.
  private static final List<Form<?>> FORMS =
      List.of(
          new Form<>(
              Greeting.class,
              (frame, out) -> out.header(MAGIC, VERSION).raw(frame.nonce()),
              in -> new Greeting(readVersion(in).raw("nonce", NONCE_BYTES))),
          new Form<>(Proof.class, BootstrapFrameCodec::writeProof, BootstrapFrameCodec::readProof),
          new Form<>(
              Verdict.class,
              (frame, out) ->
                  writeEnum(out, frame.admission()).int32(frame.expectedRanks()).raw(frame.mac()),
              in ->
                  new Verdict(
                      readEnum(in, "admission", Admission.values()),
                      in.int32("expectedRanks"),
                      in.raw("mac", MAC_BYTES))),
          new Form<>(
              Register.class,
              (frame, out) ->
                  writeMember(frame.member(), out.bool(frame.hostsRoot()).string(frame.process())),
              BootstrapFrameCodec::readRegister),
          empty(Pong.class, new Pong()),
          ofRanks(Waiting.class, Waiting::missing, Waiting::new),
          new Form<>(Peers.class, BootstrapFrameCodec::writePeers, BootstrapFrameCodec::readPeers),
          empty(Ping.class, new Ping()),
          ofRanks(Silent.class, Silent::ranks, Silent::new),
          empty(Goodbye.class, new Goodbye()),
          ofRanks(Departed.class, Departed::ranks, Departed::new),
          new Form<>(
              Failed.class,
              (frame, out) ->
                  writeEnum(out, frame.code()).int32(frame.rank()).raw(shorten(frame.message())),
              BootstrapFrameCodec::readFailed),
          empty(Attach.class, new Attach()),
          new Form<>(Data.class, BootstrapFrameCodec::writeData, BootstrapFrameCodec::readData),
          new Form<>(
              Attend.class, BootstrapFrameCodec::writeAttend, BootstrapFrameCodec::readAttend),
          new Form<>(
              Convened.class,
              BootstrapFrameCodec::writeConvened,
              BootstrapFrameCodec::readConvened),
          empty(Spare.class, new Spare()),
          new Form<>(
              Confirm.class,
              (frame, out) -> out.int64(frame.received()),
              in -> new Confirm(in.int64("received"))),
          new Form<>(
              Resume.class,
              (frame, out) -> out.raw(frame.session()).int64(frame.received()),
              in -> new Resume(in.raw("session", NONCE_BYTES), in.int64("received"))),
          new Form<>(
              DumpRequest.class,
              (frame, out) -> out.bool(frame.all()),
              in -> new DumpRequest(in.bool("all"))),
          new Form<>(
              DumpReply.class,
              (frame, out) -> out.bytes(frame.content()),
              in -> new DumpReply(in.bytes("content", CONTROL_LIMIT))),
          new Form<>(
              Hello.class,
              (frame, out) -> out.header(MAGIC, VERSION),
              in -> {
                readVersion(in);
                return new Hello();
              }));

  private BootstrapFrameCodec() {}

  /** Returns the longest frame of a connection that carries messages up to a limit. */
  static int frameLimit(int messageLimit) {
    return Math.max(CONTROL_LIMIT, messageLimit + DATA_OVERHEAD);
  }

  private static <F extends BootstrapFrame> Form<F> empty(Class<F> type, F frame) {
    return new Form<>(type, (unused, out) -> {}, in -> frame);
  }

  private static <F extends BootstrapFrame> Form<F> ofRanks(
      Class<F> type, Function<F, List<Integer>> ranks, Function<List<Integer>, F> frame) {
    return new Form<>(
        type,
        (written, out) -> writeRanks(ranks.apply(written), out),
        in -> frame.apply(readRanks(in, 0)));
  }

  private static void writeRanks(List<Integer> ranks, WireWriter out) {
    out.int32(ranks.size());
    ranks.forEach(out::int32);
  }

  private static List<Integer> readRanks(WireReader in, int least) {
    return readList(in, 0, Integer.BYTES, each -> each.int32("rank", least, MAX_RANKS - 1));
  }

  /** Returns the frame without its length. Refers to the bytes of a message without a copy. */
  static ByteBuf encode(BootstrapFrame frame) {
    int type = 0;
    while (FORMS.get(type).type() != frame.getClass()) {
      type++;
    }
    WireWriter out = new WireWriter().uint8(type);
    FORMS.get(type).write(frame, out);
    byte[] tail = frame instanceof Data data ? data.message().bytes() : Message.NO_BYTES;
    return Unpooled.wrappedBuffer(out.toBytes(), tail);
  }

  /**
   * Reads the one frame that the buffer holds, without its length.
   *
   * @throws TransportFailure if it holds anything else
   */
  static BootstrapFrame decode(ByteBuf bytes) {
    WireReader in = new WireReader(bytes.nioBuffer(), BootstrapFrameCodec::malformed);
    BootstrapFrame frame = FORMS.get(readOrdinal(in, "type", FORMS.size())).reader().apply(in);
    in.end();
    return frame;
  }

  private static WireReader readVersion(WireReader in) {
    int magic = in.int32("magic");
    in.check(magic == MAGIC, "magic", Integer.toHexString(magic));
    int version = in.uint16("version");
    if (version != VERSION) {
      throw TransportFailure.of(
          TransportFailure.NO_RANK,
          "it has version %s of the bootstrap's protocol and this rank version %s; run the same"
              + " version of FluxCCL on all ranks",
          version,
          VERSION);
    }
    return in;
  }

  private static void writeProof(Proof proof, WireWriter out) {
    writeEnum(out, proof.kind()).int32(proof.rank()).int32(proof.nRanks()).int32(proof.target());
    out.raw(proof.nonce()).raw(proof.mac());
  }

  private static Proof readProof(WireReader in) {
    return new Proof(
        readEnum(in, "kind", LinkKind.values()),
        in.int32("rank"),
        in.int32("nRanks"),
        in.int32("target"),
        in.raw("nonce", NONCE_BYTES),
        in.raw("mac", MAC_BYTES));
  }

  // The bytes of the message follow; see encode.
  private static void writeData(Data data, WireWriter out) {
    writeEnum(out.int64(data.group()), data.space());
    out.int64(data.channel()).int32(data.sequence());
    out.int32(data.message().leftRank());
  }

  private static Data readData(WireReader in) {
    long group = in.int64("group");
    StreamKey.Space space = readEnum(in, "space", StreamKey.Space.values());
    long channel = in.int64("channel");
    int sequence = in.int32("sequence");
    int leftRank = in.int32("leftRank", FluxCclException.NO_RANK, MAX_RANKS - 1);
    byte[] bytes = in.raw("message", in.remaining());
    return new Data(group, space, channel, sequence, new Message(bytes, leftRank));
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
    String process = in.string("process", MAX_PROCESS_BYTES);
    return new Register(readMember(in), hostsRoot, process);
  }

  private static void writePeers(Peers peers, WireWriter out) {
    out.raw(peers.jobId()).int32(peers.rootHost()).string(peers.rootProcess());
    out.int32(peers.members().size());
    peers.members().forEach(member -> writeMember(member, out));
  }

  private static Peers readPeers(WireReader in) {
    byte[] jobId = in.raw("jobId", JOB_ID_BYTES);
    int rootHost = in.int32("rootHost");
    String rootProcess = in.string("rootProcess", MAX_PROCESS_BYTES);
    List<Member> members = readList(in, 1, MIN_MEMBER_BYTES, BootstrapFrameCodec::readMember);
    in.check(
        rootHost >= -1 && rootHost < members.size(),
        "rootHost",
        rootHost + " of " + members.size());
    return new Peers(jobId, rootHost, rootProcess, members);
  }

  private static void writeAttend(Attend attend, WireWriter out) {
    out.int64(attend.generation()).int32(attend.previousRank()).int32(attend.previousSize());
    out.int32(attend.least()).int64(attend.patienceMillis());
    writeRanks(attend.lost(), out);
  }

  private static Attend readAttend(WireReader in) {
    long generation = in.int64("generation");
    in.check(generation >= 0, "generation", Long.toString(generation));
    int previousRank = in.int32("previousRank", Membership.NEWCOMER, MAX_RANKS - 1);
    int previousSize = in.int32("previousSize", 0, MAX_RANKS);
    int least = in.int32("least", 1, MAX_RANKS);
    long patienceMillis = in.int64("patienceMillis");
    List<Integer> lost = readRanks(in, 0);
    return new Attend(generation, previousRank, previousSize, lost, least, patienceMillis);
  }

  private static void writeConvened(Convened convened, WireWriter out) {
    out.int64(convened.generation()).int32(convened.rank()).raw(convened.jobId());
    UniqueId.writeAddress(convened.root(), out);
    writeRanks(convened.previousRanks(), out);
  }

  private static Convened readConvened(WireReader in) {
    long generation = in.int64("generation");
    int rank = in.int32("rank", 0, MAX_RANKS - 1);
    byte[] jobId = in.raw("jobId", JOB_ID_BYTES);
    InetSocketAddress root = UniqueId.readAddress(in);
    List<Integer> previousRanks = readRanks(in, Membership.NEWCOMER);
    in.check(rank < previousRanks.size(), "rank", rank + " of " + previousRanks.size());
    return new Convened(generation, rank, previousRanks, jobId, root);
  }

  private static void writeMember(Member member, WireWriter out) {
    UniqueId.writeAddress(member.address(), out);
    out.int64(member.hostHash()).int64(member.processHash());
  }

  private static Member readMember(WireReader in) {
    InetSocketAddress address = UniqueId.readAddress(in);
    return new Member(address, in.int64("hostHash"), in.int64("processHash"));
  }

  // The count is bounded by what has arrived, so a false one can't make the list large.
  private static <E> List<E> readList(
      WireReader in, int least, int elementBytes, Function<WireReader, E> reader) {
    int count = in.int32("count", least, Math.min(MAX_RANKS, in.remaining() / elementBytes));
    List<E> elements = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      elements.add(reader.apply(in));
    }
    return elements;
  }

  private static WireWriter writeEnum(WireWriter out, Enum<?> value) {
    return out.uint8(value.ordinal());
  }

  private static <E> E readEnum(WireReader in, String field, E[] values) {
    return values[readOrdinal(in, field, values.length)];
  }

  private static int readOrdinal(WireReader in, String field, int count) {
    int ordinal = in.uint8(field);
    in.check(ordinal < count, field, ordinal + ", expected 0.." + (count - 1));
    return ordinal;
  }

  /** Returns a reason as it is sent: truncated if it is too long. */
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
