// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.ErrorCode;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Attach;
import io.fluxccl.bootstrap.BootstrapFrame.Confirm;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.DumpMembers;
import io.fluxccl.bootstrap.BootstrapFrame.DumpMissing;
import io.fluxccl.bootstrap.BootstrapFrame.DumpReply;
import io.fluxccl.bootstrap.BootstrapFrame.DumpRequest;
import io.fluxccl.bootstrap.BootstrapFrame.FormedAsProposed;
import io.fluxccl.bootstrap.BootstrapFrame.Goodbye;
import io.fluxccl.bootstrap.BootstrapFrame.Greeting;
import io.fluxccl.bootstrap.BootstrapFrame.Hello;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Resume;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.fluxccl.bootstrap.JoinMessage.Accept;
import io.fluxccl.bootstrap.JoinMessage.Beat;
import io.fluxccl.bootstrap.JoinMessage.Departed;
import io.fluxccl.bootstrap.JoinMessage.Failed;
import io.fluxccl.bootstrap.JoinMessage.Failure;
import io.fluxccl.bootstrap.JoinMessage.Formed;
import io.fluxccl.bootstrap.JoinMessage.Join;
import io.fluxccl.bootstrap.JoinMessage.Missed;
import io.fluxccl.bootstrap.JoinMessage.Propose;
import io.fluxccl.bootstrap.JoinMessage.Redirect;
import io.fluxccl.bootstrap.JoinMessage.Refuse;
import io.fluxccl.bootstrap.JoinMessage.Rejected;
import io.fluxccl.bootstrap.JoinMessage.Waiting;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiConsumer;
import java.util.function.Function;

/**
 * Writes and reads frames. Reading trusts nothing: whatever the bytes are, it returns a frame or
 * throws {@link TransportFailure}, and allocates no more than a small multiple of what arrived.
 */
final class BootstrapFrameCodec {
  static final int MAGIC = 0x464C5558;
  static final int VERSION = 8;

  static final int NONCE_BYTES = 32;
  static final int MAC_BYTES = 32;
  static final int MAX_RANKS = 1 << 16;

  /** The longest frame of the handshake. */
  static final int HANDSHAKE_LIMIT = 256;

  /** The longest frame besides {@link Data}: a roster of all ranks that a job can have. */
  static final int CONTROL_LIMIT = 16 << 20;

  /** An upper bound of the bytes of a {@link Data} frame besides its message. */
  private static final int DATA_OVERHEAD = 64;

  static final int MAX_REASON_BYTES = 4096;

  static final int MAX_SETTINGS = 64;
  static final int MAX_SETTING_NAME_BYTES = 64;
  static final int MAX_SETTING_BYTES = 256;

  private static final int MIN_ADDRESS_BYTES = 11;
  private static final int MIN_CONTACT_BYTES = MIN_ADDRESS_BYTES + 4 * Long.BYTES + Integer.BYTES;

  /** The longest description of a process: its id and a host name of Linux. */
  private static final int MAX_PROCESS_BYTES = 128;

  /** The longest time that is sent: a hundred years, whose nanoseconds are a long. */
  private static final Duration MAX_TIME = Duration.ofDays(36_500);

  /** Writes and reads the fields of one type of frame; the type's number precedes them. */
  private record Form<F extends BootstrapFrame>(
      Class<F> type, BiConsumer<F, WireWriter> writer, Function<WireReader, F> reader) {
    void write(BootstrapFrame frame, WireWriter out) {
      writer.accept(type.cast(frame), out);
    }
  }

  /**
   * A type's number is its index in this list. Greeting and Hello have the same numbers in all
   * versions, so that processes of two versions can name the difference.
   */
  private static final List<Form<?>> FORMS =
      List.of(
          new Form<>(
              Greeting.class,
              (frame, out) -> out.header(MAGIC, VERSION).raw(frame.nonce()),
              in -> new Greeting(readVersion(in).raw("nonce", NONCE_BYTES))),
          new Form<>(Proof.class, BootstrapFrameCodec::writeProof, BootstrapFrameCodec::readProof),
          new Form<>(
              Verdict.class, BootstrapFrameCodec::writeVerdict, BootstrapFrameCodec::readVerdict),
          new Form<>(Data.class, BootstrapFrameCodec::writeData, BootstrapFrameCodec::readData),
          new Form<>(
              Confirm.class,
              (frame, out) -> out.int64(frame.received()),
              in -> new Confirm(in.int64("received"))),
          new Form<>(
              Resume.class,
              (frame, out) -> out.raw(frame.session()).int64(frame.received()),
              in -> new Resume(in.raw("session", NONCE_BYTES), in.int64("received"))),
          empty(Attach.class, new Attach()),
          empty(Goodbye.class, new Goodbye()),
          new Form<>(
              DumpRequest.class,
              (frame, out) -> out.bool(frame.all()),
              in -> new DumpRequest(in.bool("all"))),
          new Form<>(
              DumpReply.class,
              (frame, out) -> out.bytes(frame.content()),
              in -> new DumpReply(in.bytes("content", CONTROL_LIMIT))),
          ofRoster(DumpMembers.class, DumpMembers::roster, DumpMembers::new),
          new Form<>(
              DumpMissing.class,
              (frame, out) -> writeRanks(frame.missing(), out),
              in -> new DumpMissing(readRanks(in))),
          new Form<>(Join.class, BootstrapFrameCodec::writeJoin, BootstrapFrameCodec::readJoin),
          new Form<>(
              Waiting.class, BootstrapFrameCodec::writeWaiting, BootstrapFrameCodec::readWaiting),
          new Form<>(
              Redirect.class,
              (frame, out) ->
                  UniqueId.writeAddress(frame.coordinator(), writeTerm(frame.term(), out)),
              in -> new Redirect(readTerm(in), UniqueId.readAddress(in))),
          new Form<>(
              Propose.class,
              (frame, out) ->
                  writeRoster(
                      frame.roster(), writeNonce(frame.base(), writeTerm(frame.term(), out))),
              in -> new Propose(readTerm(in), readNonce(in), readRoster(in))),
          ofTerm(Accept.class, Accept::term, Accept::new),
          ofTerm(Refuse.class, Refuse::promised, Refuse::new),
          ofRoster(Formed.class, Formed::roster, Formed::new),
          new Form<>(
              Missed.class,
              (frame, out) -> UniqueId.writeAddress(frame.member(), out.int64(frame.epoch())),
              in -> new Missed(readEpoch(in), UniqueId.readAddress(in))),
          new Form<>(
              Rejected.class,
              (frame, out) -> writeFailure(frame.failure(), out),
              in -> new Rejected(readFailure(in))),
          new Form<>(
              Hello.class,
              (frame, out) -> out.header(MAGIC, VERSION),
              in -> {
                readVersion(in);
                return new Hello();
              }),
          new Form<>(Beat.class, BootstrapFrameCodec::writeBeat, BootstrapFrameCodec::readBeat),
          new Form<>(
              Failed.class,
              (frame, out) -> writeFailure(frame.failure(), writeNonce(frame.base(), out)),
              in -> new Failed(readNonce(in), readFailure(in))),
          new Form<>(
              Departed.class,
              (frame, out) -> writeRanks(frame.ranks(), writeNonce(frame.base(), out)),
              in -> new Departed(readNonce(in), readRanks(in))),
          new Form<>(
              FormedAsProposed.class,
              (frame, out) -> writeNonce(frame.roster(), out),
              in -> new FormedAsProposed(readNonce(in))));

  private BootstrapFrameCodec() {}

  /** Returns the longest frame of a connection that carries messages up to a limit. */
  static int frameLimit(int messageLimit) {
    return Math.max(CONTROL_LIMIT, messageLimit + DATA_OVERHEAD);
  }

  private static <F extends BootstrapFrame> Form<F> empty(Class<F> type, F frame) {
    return new Form<>(type, (unused, out) -> {}, in -> frame);
  }

  private static <F extends BootstrapFrame> Form<F> ofTerm(
      Class<F> type, Function<F, Term> term, Function<Term, F> frame) {
    return new Form<>(
        type,
        (written, out) -> writeTerm(term.apply(written), out),
        in -> frame.apply(readTerm(in)));
  }

  private static <F extends BootstrapFrame> Form<F> ofRoster(
      Class<F> type, Function<F, Roster> roster, Function<Roster, F> frame) {
    return new Form<>(
        type,
        (written, out) -> writeRoster(roster.apply(written), out),
        in -> frame.apply(readRoster(in)));
  }

  /** Returns the frame without its length. Refers to the bytes of a message without a copy. */
  static ByteBuf encode(BootstrapFrame frame) {
    int type = 0;
    while (FORMS.get(type).type() != frame.getClass()) {
      type++;
    }
    WireWriter out = new WireWriter().uint8(type);
    FORMS.get(type).write(frame, out);
    byte[] tail = frame instanceof Data data ? data.message() : BootstrapFrame.NO_BYTES;
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

  // ---- the handshake ----

  private static void writeProof(Proof proof, WireWriter out) {
    UniqueId.writeAddress(proof.address(), writeEnum(out, proof.kind()));
    out.int64(proof.id()).int64(proof.target()).raw(proof.nonce()).raw(proof.mac());
  }

  private static Proof readProof(WireReader in) {
    return new Proof(
        readEnum(in, "kind", LinkKind.values()),
        UniqueId.readAnyAddress(in),
        in.int64("id"),
        in.int64("target"),
        in.raw("nonce", NONCE_BYTES),
        in.raw("mac", MAC_BYTES));
  }

  private static void writeVerdict(Verdict verdict, WireWriter out) {
    UniqueId.writeAddress(verdict.address(), writeEnum(out, verdict.admission()));
    out.int64(verdict.id()).raw(verdict.mac());
  }

  private static Verdict readVerdict(WireReader in) {
    return new Verdict(
        readEnum(in, "admission", Admission.values()),
        UniqueId.readAnyAddress(in),
        in.int64("id"),
        in.raw("mac", MAC_BYTES));
  }

  // ---- messages of a group ----

  // The bytes of the message follow; see encode.
  private static void writeData(Data data, WireWriter out) {
    writeEnum(writeNonce(data.roster(), out).int64(data.group()), data.space());
    out.int64(data.channel()).int32(data.sequence());
  }

  private static Data readData(WireReader in) {
    Nonce roster = readNonce(in);
    long group = in.int64("group");
    StreamKey.Space space = readEnum(in, "space", StreamKey.Space.values());
    long channel = in.int64("channel");
    int sequence = in.int32("sequence");
    byte[] message = in.raw("message", in.remaining());
    return new Data(roster, group, space, channel, sequence, message);
  }

  // ---- joining ----

  private static void writeJoin(Join join, WireWriter out) {
    writeContact(join.member(), out);
    writeTerm(join.term(), writeNonce(join.base(), out.int64(join.epoch())));
    writeBallot(join.ballot(), out);
    writeRequest(join.request(), out);
    writeRanks(join.lost(), out);
  }

  private static Join readJoin(WireReader in) {
    return new Join(
        readContact(in),
        readEpoch(in),
        readNonce(in),
        readTerm(in),
        readBallot(in),
        readRequest(in),
        readRanks(in));
  }

  private static void writeRequest(JoinRequest request, WireWriter out) {
    writeEnum(out, request.kind()).int32(request.rank()).int32(request.size());
    writeTime(request.replacementTimeout(), out.int32(request.least()));
    writeTime(request.limit(), out).int32(request.settings().size());
    request.settings().forEach((name, value) -> out.string(name).string(value));
  }

  private static JoinRequest readRequest(WireReader in) {
    return new JoinRequest(
        readEnum(in, "kind", JoinRequest.Kind.values()),
        in.int32("rank", FluxCclException.NO_RANK, MAX_RANKS - 1),
        in.int32("size", 1, MAX_RANKS),
        in.int32("least", 1, MAX_RANKS),
        readTime(in, "replacementTimeout"),
        readTime(in, "limit"),
        readSettings(in));
  }

  private static Map<String, String> readSettings(WireReader in) {
    int count = in.int32("settings", 0, MAX_SETTINGS);
    Map<String, String> settings = new HashMap<>();
    for (int i = 0; i < count; i++) {
      String name = in.string("name", MAX_SETTING_NAME_BYTES);
      String before = settings.put(name, in.string("value", MAX_SETTING_BYTES));
      in.check(before == null, "name", name + " twice");
    }
    return settings;
  }

  private static void writeWaiting(Waiting waiting, WireWriter out) {
    writeNonce(waiting.base(), writeTerm(waiting.term(), out)).bool(waiting.standby());
    writeRanks(waiting.missing(), out).int32(waiting.others().size());
    waiting.others().forEach(each -> UniqueId.writeAddress(each, out));
    out.bytes(shorten(waiting.note(), MAX_REASON_BYTES));
  }

  private static Waiting readWaiting(WireReader in) {
    return new Waiting(
        readTerm(in),
        readNonce(in),
        in.bool("standby"),
        readRanks(in),
        readList(in, 0, MIN_ADDRESS_BYTES, UniqueId::readAddress),
        in.string("note", MAX_REASON_BYTES));
  }

  private static void writeBeat(Beat beat, WireWriter out) {
    writeNonce(beat.base(), out.int64(beat.epoch()));
    writeRanks(beat.left(), writeRanks(beat.silent(), out)).bool(beat.newcomers());
  }

  private static Beat readBeat(WireReader in) {
    return new Beat(
        readEpoch(in), readNonce(in), readRanks(in), readRanks(in), in.bool("newcomers"));
  }

  // ---- their parts ----

  private static WireWriter writeTerm(Term term, WireWriter out) {
    return out.int64(term.epoch()).int32(term.attempt()).int32(term.rank());
  }

  private static Term readTerm(WireReader in) {
    return new Term(
        readEpoch(in),
        in.int32("attempt", 0, Integer.MAX_VALUE),
        in.int32("rank", FluxCclException.NO_RANK, MAX_RANKS - 1));
  }

  private static long readEpoch(WireReader in) {
    return in.int64("epoch", 0, Long.MAX_VALUE);
  }

  private static WireWriter writeNonce(Nonce nonce, WireWriter out) {
    return out.int64(nonce.high()).int64(nonce.low());
  }

  private static Nonce readNonce(WireReader in) {
    return new Nonce(in.int64("nonce"), in.int64("nonce"));
  }

  private static void writeContact(Contact contact, WireWriter out) {
    UniqueId.writeAddress(contact.address(), out);
    out.int64(contact.id()).int64(contact.host());
    out.int64(contact.hostHash()).int64(contact.processHash());
    out.bytes(shorten(contact.process(), MAX_PROCESS_BYTES));
  }

  private static Contact readContact(WireReader in) {
    return new Contact(
        UniqueId.readAddress(in),
        in.int64("id"),
        in.int64("host"),
        in.int64("hostHash"),
        in.int64("processHash"),
        in.string("process", MAX_PROCESS_BYTES));
  }

  /** The latest roster that was written: a coordinator sends it to all its members. */
  private static volatile EncodedRoster encoded =
      new EncodedRoster(Roster.NONE, BootstrapFrame.NO_BYTES);

  private record EncodedRoster(Roster roster, byte[] bytes) {}

  private static void writeRoster(Roster roster, WireWriter out) {
    EncodedRoster latest = encoded;
    if (latest.roster != roster) {
      latest = new EncodedRoster(roster, encode(roster));
      encoded = latest;
    }
    out.raw(latest.bytes);
  }

  private static byte[] encode(Roster roster) {
    WireWriter out = writeNonce(roster.nonce(), writeTerm(roster.term(), new WireWriter()));
    out.int32(roster.size());
    roster.members().forEach(each -> writeContact(each, out));
    writeRanks(roster.previousRanks(), out);
    return out.toBytes();
  }

  private static Roster readRoster(WireReader in) {
    Term term = readTerm(in);
    Nonce nonce = readNonce(in);
    List<Contact> members = readList(in, 1, MIN_CONTACT_BYTES, BootstrapFrameCodec::readContact);
    List<Integer> previousRanks =
        readList(
            in,
            members.size(),
            Integer.BYTES,
            each -> each.int32("previousRank", Roster.NEWCOMER, MAX_RANKS - 1));
    int count = previousRanks.size();
    in.check(count == members.size(), "previousRanks", count + " of " + members.size());
    return new Roster(term, nonce, members, previousRanks);
  }

  /** Writes a ballot as a message that only this version reads. */
  static byte[] encode(Ballot ballot) {
    WireWriter out = new WireWriter().header(MAGIC, VERSION);
    writeBallot(ballot, out);
    return out.toBytes();
  }

  /**
   * Reads what {@link #encode(Ballot)} wrote.
   *
   * @throws TransportFailure if the bytes are anything else
   */
  static Ballot decodeBallot(byte[] bytes) {
    WireReader in = new WireReader(bytes, BootstrapFrameCodec::malformed).header(MAGIC, VERSION);
    Ballot ballot = readBallot(in);
    in.end();
    return ballot;
  }

  private static void writeBallot(Ballot ballot, WireWriter out) {
    writeTerm(ballot.accepted(), writeTerm(ballot.promised(), out)).bool(ballot.hasRoster());
    if (ballot.hasRoster()) {
      writeRoster(ballot.roster(), out);
    }
  }

  private static Ballot readBallot(WireReader in) {
    Term promised = readTerm(in);
    Term accepted = readTerm(in);
    return new Ballot(promised, accepted, in.bool("hasRoster") ? readRoster(in) : Roster.NONE);
  }

  static void writeFailure(Failure failure, WireWriter out) {
    writeEnum(out, failure.code()).int32(failure.rank());
    out.bytes(shorten(failure.message(), MAX_REASON_BYTES));
  }

  static Failure readFailure(WireReader in) {
    return new Failure(
        readEnum(in, "code", ErrorCode.values()),
        in.int32("rank", FluxCclException.NO_RANK, MAX_RANKS - 1),
        in.string("message", MAX_REASON_BYTES));
  }

  private static WireWriter writeTime(Duration time, WireWriter out) {
    return out.int64((time.compareTo(MAX_TIME) < 0 ? time : MAX_TIME).toMillis());
  }

  private static Duration readTime(WireReader in, String field) {
    return Duration.ofMillis(in.int64(field, 0, MAX_TIME.toMillis()));
  }

  private static WireWriter writeRanks(List<Integer> ranks, WireWriter out) {
    out.int32(ranks.size());
    ranks.forEach(out::int32);
    return out;
  }

  private static List<Integer> readRanks(WireReader in) {
    return readList(in, 0, Integer.BYTES, each -> each.int32("rank", 0, MAX_RANKS - 1));
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
    if (ordinal >= count) {
      in.check(false, field, ordinal + ", expected 0.." + (count - 1));
    }
    return ordinal;
  }

  /** Returns a reason as it is sent: truncated if it is too long. */
  static String shortened(String message) {
    return new String(shorten(message, MAX_REASON_BYTES), StandardCharsets.UTF_8);
  }

  private static byte[] shorten(String text, int most) {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    if (bytes.length <= most) {
      return bytes;
    }
    int end = most;
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
