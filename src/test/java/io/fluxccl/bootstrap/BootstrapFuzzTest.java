// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import static org.assertj.core.api.Assertions.assertThat;

import com.code_intelligence.jazzer.junit.FuzzTest;
import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.JoinRules.Ballot;
import io.fluxccl.bootstrap.SessionKey.FrameMac;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.embedded.EmbeddedChannel;
import io.netty.handler.codec.DecoderException;
import java.nio.charset.StandardCharsets;

/** Decoding any bytes of a peer returns a value or throws the typed exception. */
class BootstrapFuzzTest {

  @FuzzTest(maxDuration = "75s")
  void frame(byte[] bytes) {
    try {
      BootstrapFrame frame = BootstrapFrameCodec.decode(Unpooled.wrappedBuffer(bytes));
      ByteBuf again = BootstrapFrameCodec.encode(frame);
      BootstrapFrameCodec.decode(again);
      again.release();
    } catch (TransportFailure expected) {
      return;
    }
  }

  @FuzzTest(maxDuration = "75s")
  void ballot(byte[] bytes) {
    try {
      Ballot ballot = BootstrapFrameCodec.decodeBallot(bytes);
      assertThat(BootstrapFrameCodec.decodeBallot(BootstrapFrameCodec.encode(ballot)))
          .isEqualTo(ballot);
    } catch (TransportFailure expected) {
      return;
    }
  }

  @FuzzTest(maxDuration = "75s")
  void stream(byte[] bytes) {
    EmbeddedChannel channel = new EmbeddedChannel(new Frames.Decoder());
    decode(() -> channel.writeInbound(Unpooled.wrappedBuffer(bytes)));
    decode(channel::finishAndReleaseAll);
  }

  /** Runs a step of a decoder, which may refuse what it gets. */
  private static void decode(Runnable step) {
    try {
      step.run();
    } catch (DecoderException e) {
      if (!(e.getCause() instanceof TransportFailure)) {
        throw e;
      }
    }
  }

  /** Answers of a gather, from its leader to another rank. */
  @FuzzTest(maxDuration = "75s")
  void gatherAnswer(byte[] bytes) {
    try {
      Gather.Answer answer = Gather.Answer.of(bytes, 1, 8);
      assertThat(Gather.Answer.of(answer.toBytes(), 1, 8)).hasSameClassAs(answer);
    } catch (TransportFailure expected) {
      assertThat(expected.rank()).isEqualTo(1);
    }
  }

  /** Frames with an authentication code from a sender without the key. */
  @FuzzTest(maxDuration = "75s")
  void authenticatedStream(byte[] bytes) {
    EmbeddedChannel channel = new EmbeddedChannel(new Frames.Decoder());
    Frames.verify(channel, new FrameMac(new byte[] {1}));
    decode(() -> channel.writeInbound(Unpooled.wrappedBuffer(bytes)));
    assertThat((Object) channel.readInbound()).isNull();
    channel.close();
  }

  @FuzzTest(maxDuration = "75s")
  void uniqueId(byte[] bytes) {
    try {
      UniqueId.fromBytes(bytes).toString();
    } catch (InvalidUsage expected) {
      try {
        UniqueId.fromBase64(new String(bytes, StandardCharsets.ISO_8859_1));
      } catch (InvalidUsage alsoExpected) {
        return;
      }
    }
  }

  @FuzzTest(maxDuration = "75s")
  void rootAddress(byte[] bytes) {
    try {
      String text = new String(bytes, StandardCharsets.UTF_8);
      RootAddress.parse(RootAddress.parse(text).toString());
    } catch (InvalidUsage expected) {
      return;
    }
  }
}
