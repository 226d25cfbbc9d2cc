// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.ErrorCode;
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
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Accept;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Beat;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Failure;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Formed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Join;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Missed;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Propose;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Redirect;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Refuse;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Rejected;
import io.fluxccl.bootstrap.BootstrapFrame.JoinMessage.Waiting;
import io.fluxccl.bootstrap.BootstrapFrame.LinkKind;
import io.fluxccl.bootstrap.BootstrapFrame.Proof;
import io.fluxccl.bootstrap.BootstrapFrame.Resume;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.fluxccl.bootstrap.Gather.Answer.Blocks;
import io.fluxccl.bootstrap.Gather.Answer.Ended;
import io.fluxccl.bootstrap.Gather.Answer.Missing;
import io.fluxccl.bootstrap.JoinRequest.Kind;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.Mailboxes.StreamKey;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.bootstrap.Roster.Nonce;
import io.fluxccl.bootstrap.Roster.Term;
import io.fluxccl.wire.WireWriter;
import io.netty.buffer.Unpooled;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.ByteArrayOutputStream;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.Example;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.Size;

class BootstrapFrameCodecTest {

  private static final Arbitrary<Boolean> FLAG = Arbitraries.of(true, false);
  private static final Arbitrary<Long> LONG = Arbitraries.longs();
  private static final Arbitrary<Long> EPOCH = Arbitraries.longs().greaterOrEqual(0);
  private static final Arbitrary<Integer> COUNT =
      Arbitraries.integers().between(1, BootstrapFrameCodec.MAX_RANKS);
  private static final Arbitrary<Integer> RANK = COUNT.map(count -> count - 1);
  private static final Arbitrary<Integer> RANK_OR_NONE = COUNT.map(count -> count - 2);
  private static final Arbitrary<List<Integer>> RANKS = RANK.list().ofMaxSize(40);
  private static final Arbitrary<String> PROCESS = Arbitraries.strings().ascii().ofMaxLength(100);
  private static final Arbitrary<Nonce> NONCE = Combinators.combine(LONG, LONG).as(Nonce::new);
  private static final Arbitrary<Term> TERM =
      Combinators.combine(EPOCH, Arbitraries.integers().greaterOrEqual(0), RANK_OR_NONE)
          .as(Term::new);
  private static final Arbitrary<Duration> TIME =
      Arbitraries.longs().between(0, 1L << 40).map(Duration::ofMillis);

  @Provide
  Arbitrary<BootstrapFrame> frames() {
    return Arbitraries.oneOf(List.of(handshake(), dumps(), linkFrames(), answers(), joins()));
  }

  private static Arbitrary<BootstrapFrame> handshake() {
    Arbitrary<InetSocketAddress> address =
        Arbitraries.oneOf(addresses(), Arbitraries.just(Links.NOWHERE));
    Arbitrary<Resume> resume = Combinators.combine(bytes(32), LONG).as(Resume::new);
    return Arbitraries.oneOf(
        Arbitraries.just(new Hello()),
        bytes(32).map(Greeting::new),
        Combinators.combine(
                Arbitraries.of(LinkKind.class), address, LONG, LONG, bytes(32), resume, bytes(32))
            .as(Proof::new),
        Combinators.combine(Arbitraries.of(Admission.class), address, LONG, LONG, bytes(32))
            .as(Verdict::new));
  }

  private static Arbitrary<BootstrapFrame> dumps() {
    return Arbitraries.oneOf(
        FLAG.map(DumpRequest::new),
        Arbitraries.bytes().array(byte[].class).ofMaxSize(1000).map(DumpReply::new),
        rosters().map(DumpMembers::new),
        RANKS.map(DumpMissing::new));
  }

  private static Arbitrary<BootstrapFrame> linkFrames() {
    return Arbitraries.oneOf(
        Arbitraries.of(new Goodbye(), new Attach()),
        LONG.map(Confirm::new),
        Combinators.combine(
                NONCE, keys(), Arbitraries.bytes().array(byte[].class).ofMaxSize(10_000))
            .as(Data::new));
  }

  private static Arbitrary<StreamKey> keys() {
    Arbitrary<Integer> number = Arbitraries.integers();
    return Combinators.combine(LONG, number, Arbitraries.of(StreamKey.Space.class), LONG, number)
        .as(StreamKey::new);
  }

  private static Arbitrary<BootstrapFrame> joins() {
    Arbitrary<Map<String, String>> settings =
        Arbitraries.maps(
                Arbitraries.strings().ascii().ofMaxLength(64),
                Arbitraries.strings().ascii().ofMaxLength(256))
            .ofMaxSize(BootstrapFrameCodec.MAX_SETTINGS);
    Arbitrary<JoinRequest> request =
        Combinators.combine(
                Arbitraries.of(Kind.class), RANK_OR_NONE, COUNT, COUNT, TIME, TIME, settings)
            .as(JoinRequest::new);
    Arbitrary<Ballot> ballot =
        Arbitraries.oneOf(
            Combinators.combine(TERM, TERM, rosters()).as(Ballot::new),
            TERM.map(Ballot::promise),
            Arbitraries.just(Ballot.EMPTY));
    return Combinators.combine(contacts(), EPOCH, NONCE, TERM, ballot, request, RANKS)
        .as(Join::new);
  }

  private static Arbitrary<BootstrapFrame> answers() {
    return Arbitraries.oneOf(
        List.of(
            Combinators.combine(TERM, NONCE, FLAG, RANKS, addresses().list().ofMaxSize(9), PROCESS)
                .as(Waiting::new),
            Combinators.combine(TERM, addresses()).as(Redirect::new),
            Combinators.combine(TERM, NONCE, rosters()).as(Propose::new),
            TERM.map(Accept::new),
            TERM.map(Refuse::new),
            rosters().map(Formed::new),
            NONCE.map(FormedAsProposed::new),
            Combinators.combine(EPOCH, addresses().list().ofMaxSize(3)).as(Missed::new),
            failures().map(Rejected::new),
            Combinators.combine(EPOCH, NONCE, RANKS, RANKS, FLAG).as(Beat::new),
            Combinators.combine(NONCE, failures()).as(Failed::new),
            Combinators.combine(NONCE, RANKS).as(Departed::new)));
  }

  private static Arbitrary<byte[]> bytes(int length) {
    return Arbitraries.bytes().array(byte[].class).ofSize(length);
  }

  private static Arbitrary<InetSocketAddress> addresses() {
    return Combinators.combine(
            Arbitraries.oneOf(bytes(4), bytes(16)), Arbitraries.integers().between(1, 65535))
        .as((ip, port) -> new InetSocketAddress(UniqueId.addressOf(ip, 0), port));
  }

  private static Arbitrary<Contact> contacts() {
    return Combinators.combine(addresses(), LONG, LONG, LONG, LONG, PROCESS).as(Contact::new);
  }

  private static Arbitrary<Roster> rosters() {
    return Combinators.combine(
            TERM, NONCE, contacts().list().ofMinSize(1).ofMaxSize(20), RANK_OR_NONE)
        .as(
            (term, nonce, members, before) ->
                new Roster(term, nonce, members, Collections.nCopies(members.size(), before)));
  }

  private static Arbitrary<Failure> failures() {
    return Combinators.combine(
            Arbitraries.of(ErrorCode.class), RANK_OR_NONE, Arbitraries.strings().ofMaxLength(200))
        .as((code, rank, text) -> new Failure(code, rank, BootstrapFrameCodec.shortened(text)));
  }

  private static BootstrapFrame decode(byte[] bytes, int length) {
    return BootstrapFrameCodec.decode(Unpooled.wrappedBuffer(bytes, 4, length - 4));
  }

  @Property(tries = 500)
  void shouldDecodeEncodedFrames(@ForAll("frames") BootstrapFrame frame) {
    byte[] bytes = TcpRanks.encode(frame);
    assertThat(decode(bytes, bytes.length)).usingRecursiveComparison().isEqualTo(frame);
  }

  @Property(tries = 300)
  void shouldReadFramesHoweverTheNetworkCutsThem(
      @ForAll("frames") BootstrapFrame first,
      @ForAll("frames") BootstrapFrame second,
      @ForAll @IntRange(min = 1, max = 50) int piece) {
    EmbeddedChannel channel = new EmbeddedChannel(new Frames.Decoder(1 << 20));
    ByteArrayOutputStream both = new ByteArrayOutputStream();
    both.writeBytes(TcpRanks.encode(first));
    both.writeBytes(TcpRanks.encode(second));
    byte[] bytes = both.toByteArray();
    for (int at = 0; at < bytes.length; at += piece) {
      channel.writeInbound(Unpooled.copiedBuffer(bytes, at, Math.min(piece, bytes.length - at)));
    }
    assertThat(channel.<BootstrapFrame>readInbound()).usingRecursiveComparison().isEqualTo(first);
    assertThat(channel.<BootstrapFrame>readInbound()).usingRecursiveComparison().isEqualTo(second);
    channel.finishAndReleaseAll();
  }

  @Property(tries = 500)
  void shouldRefuseAFrameThatEndsEarlyOrLate(
      @ForAll("frames") BootstrapFrame frame, @ForAll @IntRange(min = 1, max = 4) int off) {
    byte[] bytes = TcpRanks.encode(frame);
    boolean open = frame instanceof Data;
    if (bytes.length - 4 > off && !open) {
      assertThrows(TransportFailure.class, () -> decode(bytes, bytes.length - off));
    }
    if (!open) {
      byte[] longer = Arrays.copyOf(bytes, bytes.length + off);
      assertThrows(TransportFailure.class, () -> decode(longer, longer.length));
    }
  }

  @Property(tries = 1000)
  void shouldDecodeAnyBytesOrThrowTheTypedException(
      @ForAll @Size(max = 300) byte[] bytes, @ForAll @IntRange(min = 0, max = 25) int type) {
    if (bytes.length > 0) {
      bytes[0] = (byte) type;
    }
    try {
      assertThat(BootstrapFrameCodec.decode(Unpooled.wrappedBuffer(bytes))).isNotNull();
    } catch (TransportFailure expected) {
      assertThat(expected).hasMessageContaining("malformed");
    }
  }

  @Example
  void shouldRefuseInvalidLengthsBeforeThePayloadArrives() {
    for (int length : new int[] {Integer.MAX_VALUE, -1, 0, 257, Integer.MIN_VALUE}) {
      EmbeddedChannel channel = new EmbeddedChannel(new Frames.Decoder());
      assertThatThrownBy(() -> channel.writeInbound(Unpooled.buffer().writeInt(length)))
          .hasRootCauseInstanceOf(TransportFailure.class);
      channel.finishAndReleaseAll();
    }
  }

  private static final Term FIRST = new Term(1, 1, 0);
  private static final Nonce ID = new Nonce(1, 2);

  private static Contact contact(String process) {
    return new Contact(TcpRanks.loopback(1), 1, 2, 3, 4, process);
  }

  private static Formed formed(int nPreviousRanks, Contact... members) {
    List<Integer> previousRanks = Collections.nCopies(nPreviousRanks, Roster.NEWCOMER);
    return new Formed(new Roster(FIRST, ID, List.of(members), previousRanks));
  }

  private static Join join(int size, int least, Duration limit, Map<String, String> settings) {
    JoinRequest request =
        new JoinRequest(Kind.FIXED, 0, size, least, Duration.ZERO, limit, settings);
    return new Join(contact("a"), 0, ID, FIRST, Ballot.EMPTY, request, List.of());
  }

  private static Join joinWith(String name, String value) {
    return join(2, 1, Duration.ZERO, Map.of(name, value));
  }

  @Example
  void shouldRefuseValuesOutOfRange() {
    Map<String, String> tooMany =
        IntStream.rangeClosed(0, BootstrapFrameCodec.MAX_SETTINGS)
            .boxed()
            .collect(Collectors.toMap(each -> "name" + each, each -> "value"));
    Contact member = contact("a");
    List<BootstrapFrame> frames =
        List.of(
            new Missed(-1, List.of(TcpRanks.loopback(1))),
            new Missed(1, List.of(TcpRanks.loopback(0))),
            new Accept(new Term(1, -1, 0)),
            new Accept(new Term(1, 1, -2)),
            new Accept(new Term(1, 1, BootstrapFrameCodec.MAX_RANKS)),
            new Departed(ID, List.of(-1)),
            new Waiting(FIRST, ID, false, List.of(-1), List.of(), ""),
            formed(0),
            formed(0, member),
            formed(2, member),
            join(0, 1, Duration.ZERO, Map.of()),
            join(BootstrapFrameCodec.MAX_RANKS + 1, 1, Duration.ZERO, Map.of()),
            join(2, 0, Duration.ZERO, Map.of()),
            join(2, 1, Duration.ofMillis(-1), Map.of()),
            join(2, 1, Duration.ZERO, tooMany),
            joinWith("x".repeat(65), "1"),
            joinWith("x", "1".repeat(257)));
    assertThat(frames)
        .allSatisfy(
            each -> {
              byte[] bytes = TcpRanks.encode(each);
              assertThat(assertThrows(TransportFailure.class, () -> decode(bytes, bytes.length)))
                  .hasMessageContaining("malformed");
            });
  }

  @Example
  void shouldRefuseASettingThatIsSentTwice() {
    Map<String, String> twice = new IdentityHashMap<>();
    twice.put("name", "1");
    twice.put(new StringBuilder("name").toString(), "2");
    byte[] bytes = TcpRanks.encode(join(2, 1, Duration.ZERO, twice));
    assertThat(assertThrows(TransportFailure.class, () -> decode(bytes, bytes.length)))
        .hasMessageContaining("name twice");
  }

  private static BootstrapFrame sent(BootstrapFrame frame) {
    byte[] bytes = TcpRanks.encode(frame);
    return decode(bytes, bytes.length);
  }

  @Example
  void shouldCutTextsAndTimesThatAreTooLong() {
    assertThat(sent(formed(1, contact("€".repeat(200)))))
        .isEqualTo(formed(1, contact("€".repeat(42))));
    assertThat(sent(new Waiting(FIRST, ID, true, List.of(), List.of(), "n".repeat(5000))))
        .isEqualTo(new Waiting(FIRST, ID, true, List.of(), List.of(), "n".repeat(4096)));
    assertThat(sent(new Rejected(new Failure(ErrorCode.ABORTED, 1, "n".repeat(5000)))))
        .isEqualTo(new Rejected(new Failure(ErrorCode.ABORTED, 1, "n".repeat(4096))));
    Join endless = (Join) sent(join(2, 1, Duration.ofSeconds(Long.MAX_VALUE), Map.of()));
    assertThat(endless.request().limit()).isEqualTo(Duration.ofDays(36_500));
    assertThat(endless.request().limit().toNanos()).isPositive();
  }

  /** The first frames of version 7: their numbers and fields never change. */
  @Example
  void shouldNameTheVersionOfAnotherRelease() {
    byte[] greeting =
        new WireWriter().uint8(0).header(BootstrapFrameCodec.MAGIC, 7).raw(new byte[32]).toBytes();
    byte[] hello = new WireWriter().uint8(21).header(BootstrapFrameCodec.MAGIC, 7).toBytes();
    for (byte[] each : List.of(greeting, hello)) {
      assertThat(
              assertThrows(
                  TransportFailure.class,
                  () -> BootstrapFrameCodec.decode(Unpooled.wrappedBuffer(each))))
          .hasMessageContaining("it has version 7 of the bootstrap's protocol")
          .hasMessageContaining("run the same version of FluxCCL on all ranks");
    }
    assertThat(TcpRanks.encode(new Hello())).startsWith(0, 0, 0, 7, 21);
    assertThat(TcpRanks.encode(new Greeting(new byte[32]))).startsWith(0, 0, 0, 39, 0);
  }

  @Example
  void shouldRefuseAnUnknownType() {
    byte[] bytes = {99, 1, 2};
    assertThat(
            assertThrows(
                TransportFailure.class,
                () -> BootstrapFrameCodec.decode(Unpooled.wrappedBuffer(bytes))))
        .hasMessageContaining("type=99, expected 0..24");
  }

  @Example
  void shouldFitAllFramesOfTheHandshakeIntoItsLimit() {
    InetSocketAddress address = new InetSocketAddress(UniqueId.addressOf(new byte[16], 0), 65535);
    byte[] mac = new byte[BootstrapFrameCodec.MAC_BYTES];
    List<BootstrapFrame> frames =
        List.of(
            new Proof(LinkKind.LINK, address, -1, -1, new byte[32], Resume.NONE, mac),
            new Verdict(Admission.LEAVING, address, -1, -1, mac));
    assertThat(frames)
        .allSatisfy(
            each ->
                assertThat(TcpRanks.encode(each))
                    .hasSizeLessThan(BootstrapFrameCodec.HANDSHAKE_LIMIT));
  }

  @Example
  void shouldCutLongReasonsBetweenCharacters() {
    String reason = BootstrapFrameCodec.shortened("x" + "€".repeat(5000));
    assertThat(reason).startsWith("x€").endsWith("€").doesNotContain("\uFFFD");
    assertThat(reason.length()).isLessThan(2000);
  }

  private static Gather.Answer answerOfRank3(byte[] bytes) {
    return Gather.Answer.of(bytes, 3, 2);
  }

  @Example
  void shouldReadAnAnswerOfAGatherAsWritten() {
    for (Gather.Answer each :
        List.of(new Missing(List.of(1, 5)), new Ended(new Failure(ErrorCode.TIMEOUT, 1, "late")))) {
      assertThat(answerOfRank3(each.toBytes())).isEqualTo(each);
    }
  }

  @Example
  void shouldNameTheLeaderIfItsAnswerOfAGatherIsMalformed() {
    byte[] tooMany = new Blocks(List.of(new byte[1], new byte[1], new byte[1])).toBytes();
    byte[] negative = new WireWriter().uint8(0).int32(1).int32(-1).toBytes();
    byte[] noRank = new WireWriter().uint8(1).int32(0).toBytes();
    for (byte[] each : List.of(new byte[0], new byte[] {9}, tooMany, negative, noRank)) {
      assertThat(assertThrows(TransportFailure.class, () -> answerOfRank3(each)).rank())
          .isEqualTo(3);
    }
  }
}
