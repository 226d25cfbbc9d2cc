// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.ErrorCode;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.BootstrapFrame.Admission;
import io.fluxccl.bootstrap.BootstrapFrame.Attach;
import io.fluxccl.bootstrap.BootstrapFrame.Attend;
import io.fluxccl.bootstrap.BootstrapFrame.Convened;
import io.fluxccl.bootstrap.BootstrapFrame.Data;
import io.fluxccl.bootstrap.BootstrapFrame.Departed;
import io.fluxccl.bootstrap.BootstrapFrame.DumpReply;
import io.fluxccl.bootstrap.BootstrapFrame.DumpRequest;
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
import io.fluxccl.bootstrap.BootstrapFrame.Spare;
import io.fluxccl.bootstrap.BootstrapFrame.Verdict;
import io.fluxccl.bootstrap.BootstrapFrame.Waiting;
import io.fluxccl.bootstrap.GatherAnswer.Blocks;
import io.fluxccl.bootstrap.GatherAnswer.GaveUp;
import io.fluxccl.bootstrap.GatherAnswer.Missing;
import io.fluxccl.wire.WireWriter;
import io.netty.buffer.Unpooled;
import io.netty.channel.embedded.EmbeddedChannel;
import java.io.ByteArrayOutputStream;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.List;
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

  @Provide
  Arbitrary<BootstrapFrame> frames() {
    Arbitrary<Integer> anyInt = Arbitraries.integers();
    Arbitrary<Integer> rank = Arbitraries.integers().between(0, BootstrapFrameCodec.MAX_RANKS - 1);
    Arbitrary<List<Integer>> ranks = rank.list().ofMaxSize(40);
    Arbitrary<String> process = Arbitraries.strings().ascii().ofMaxLength(100);
    return Arbitraries.oneOf(
        bytes(32).map(Greeting::new),
        Combinators.combine(
                Arbitraries.of(LinkKind.class), anyInt, anyInt, anyInt, bytes(32), bytes(32))
            .as(Proof::new),
        Combinators.combine(Arbitraries.of(Admission.class), anyInt, bytes(32)).as(Verdict::new),
        Combinators.combine(members(), Arbitraries.of(true, false), process).as(Register::new),
        ranks.map(Waiting::new),
        ranks.map(Silent::new),
        Arbitraries.of(true, false).map(DumpRequest::new),
        Arbitraries.bytes().array(byte[].class).ofMaxSize(1000).map(DumpReply::new),
        ranks.map(Departed::new),
        Combinators.combine(
                bytes(16),
                Arbitraries.just(-1),
                process,
                members().list().ofMinSize(1).ofMaxSize(20))
            .as(Peers::new),
        Combinators.combine(
                Arbitraries.of(ErrorCode.class), rank, Arbitraries.strings().ofMaxLength(200))
            .as(
                (code, blame, text) ->
                    new Failed(code, blame, BootstrapFrameCodec.shortened(text))),
        Combinators.combine(
                Arbitraries.longs(),
                Arbitraries.of(StreamKey.Space.class),
                Arbitraries.longs(),
                anyInt,
                Arbitraries.bytes().array(byte[].class).ofMaxSize(10_000),
                Arbitraries.integers().between(-1, BootstrapFrameCodec.MAX_RANKS - 1))
            .as(
                (group, space, channel, sequence, payload, leftRank) ->
                    new Data(group, space, channel, sequence, new Message(payload, leftRank))),
        Combinators.combine(
                Arbitraries.longs().between(0, Long.MAX_VALUE),
                Arbitraries.integers().between(-1, 100),
                Arbitraries.integers().between(0, 100),
                ranks,
                Arbitraries.integers().between(1, 100),
                Arbitraries.longs())
            .as(Attend::new),
        Combinators.combine(
                Arbitraries.longs(), rank.list().ofMinSize(1).ofMaxSize(20), bytes(16), members())
            .as(
                (generation, previous, jobId, root) ->
                    new Convened(generation, previous.size() - 1, previous, jobId, root.address())),
        Arbitraries.of(new Spare(), new Ping(), new Pong(), new Goodbye(), new Attach()));
  }

  private static Arbitrary<byte[]> bytes(int length) {
    return Arbitraries.bytes().array(byte[].class).ofSize(length);
  }

  private static Arbitrary<Member> members() {
    Arbitrary<byte[]> ip = Arbitraries.oneOf(bytes(4), bytes(16));
    return Combinators.combine(
            ip, Arbitraries.integers().between(1, 65535), Arbitraries.longs(), Arbitraries.longs())
        .as(
            (address, port, host, process) ->
                new Member(
                    new InetSocketAddress(UniqueId.addressOf(address, 0), port), host, process));
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
    boolean open = frame instanceof Data || frame instanceof Failed;
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
      @ForAll @Size(max = 300) byte[] bytes, @ForAll @IntRange(min = 0, max = 15) int type) {
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

  @Example
  void shouldCutLongReasonsBetweenCharacters() {
    String reason = BootstrapFrameCodec.shortened("x" + "€".repeat(5000));
    assertThat(reason).startsWith("x€").endsWith("€").doesNotContain("\uFFFD");
    assertThat(reason.length()).isLessThan(2000);
  }

  private static GatherAnswer answerOfRank3(byte[] bytes) {
    return GatherAnswer.of(Message.of(bytes), 3, 2);
  }

  @Example
  void shouldReadAnAnswerOfAGatherAsWritten() {
    for (GatherAnswer each : List.of(new Missing(List.of(1, 5)), new GaveUp(1, "late"))) {
      assertThat(answerOfRank3(each.toMessage().bytes())).isEqualTo(each);
    }
  }

  @Example
  void shouldNameTheLeaderIfItsAnswerOfAGatherIsMalformed() {
    byte[] tooMany = new Blocks(List.of(new byte[1], new byte[1], new byte[1])).toMessage().bytes();
    byte[] negative = new WireWriter().uint8(0).int32(1).int32(-1).toBytes();
    byte[] noRank = new WireWriter().uint8(1).int32(0).toBytes();
    for (byte[] each : List.of(new byte[0], new byte[] {9}, tooMany, negative, noRank)) {
      assertThat(assertThrows(TransportFailure.class, () -> answerOfRank3(each)).rank())
          .isEqualTo(3);
    }
  }
}
