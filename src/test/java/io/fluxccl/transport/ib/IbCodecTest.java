package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.Transport;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;

class IbCodecTest {
  private static final long SIZE = 5L << 30;
  private static final IbMemoryHandle.Place PLACE =
      new IbMemoryHandle.Place(0x7f00_0000_1000L, 1L << 30, new int[] {1, -2, 3, 4, 5});

  private static IbEndpoint.End end() {
    byte[] token = new byte[IbEndpoint.End.TOKEN_LENGTH];
    new Random(1).nextBytes(token);
    return new IbEndpoint.End(3, 7, new InetSocketAddress("10.9.9.1", 4791), token);
  }

  @Test
  void shouldReadMemoryAsWritten() {
    IbMemoryHandle.Place read = IbMemoryHandle.Place.decode(PLACE.encode(), SIZE, 0);
    assertThat(read.address()).isEqualTo(PLACE.address());
    assertThat(read.piece()).isEqualTo(PLACE.piece());
    assertThat(read.keys()).containsExactly(PLACE.keys());
  }

  @Test
  void shouldRefuseMemoryThatIsCutOrChangedOrOfAnotherSize() {
    byte[] wire = PLACE.encode();
    for (int length = 0; length < wire.length; length++) {
      byte[] cut = Arrays.copyOf(wire, length);
      assertThatThrownBy(() -> IbMemoryHandle.Place.decode(cut, SIZE, 4))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("rank 4");
    }
    for (int at : new int[] {0, 4, 14, 21, 22, 25}) {
      byte[] changed = wire.clone();
      changed[at] ^= (byte) 0x80;
      assertThatThrownBy(() -> IbMemoryHandle.Place.decode(changed, SIZE, 4))
          .as("byte %d", at)
          .isInstanceOf(TransportFailure.class);
    }
    for (long size : new long[] {0, -1, 4L << 30, (5L << 30) + 1, Long.MAX_VALUE}) {
      assertThatThrownBy(() -> IbMemoryHandle.Place.decode(wire, size, 4))
          .isInstanceOf(TransportFailure.class);
    }
  }

  @Test
  void shouldReadEndAsWritten() {
    IbEndpoint.End read = IbEndpoint.End.decode(end().encode(), 3);
    assertThat(read.tag()).isEqualTo(7);
    assertThat(read.address()).isEqualTo(end().address());
    assertThat(read.token()).isEqualTo(end().token());
  }

  @Test
  void shouldRefuseEndThatIsCutOrChangedOrOfAnotherRank() {
    byte[] wire = end().encode();
    for (int length = 0; length < wire.length; length++) {
      byte[] cut = Arrays.copyOf(wire, length);
      assertThatThrownBy(() -> IbEndpoint.End.decode(cut, 3)).isInstanceOf(TransportFailure.class);
    }
    for (int at : new int[] {0, 4, 6, 9}) {
      byte[] changed = wire.clone();
      changed[at] ^= (byte) 0x80;
      assertThatThrownBy(() -> IbEndpoint.End.decode(changed, 3))
          .as("byte %d", at)
          .isInstanceOf(TransportFailure.class);
    }
    assertThatThrownBy(() -> IbEndpoint.End.decode(wire, 2)).isInstanceOf(TransportFailure.class);
  }

  @Test
  void shouldNameStatusesAsVerbsDo() {
    assertThat(CompletionStatus.describe(10)).startsWith("IBV_WC_REM_ACCESS_ERR (");
    assertThat(CompletionStatus.describe(12)).startsWith("IBV_WC_RETRY_EXC_ERR (");
    assertThat(CompletionStatus.describe(99)).isEqualTo("ibv_wc_status 99");
  }

  @Test
  void shouldRoundTimeoutsUpToWhatDevicesKnow() {
    assertThat(RdmaOptions.DEFAULT.ackTimeoutExponent()).isEqualTo(16);
    RdmaOptions quick = RdmaOptions.DEFAULT.withRetries(1, Duration.ofMillis(1));
    assertThat(quick.ackTimeoutExponent()).isEqualTo(8);
    assertThatThrownBy(() -> RdmaOptions.DEFAULT.withRetries(0, Duration.ofMillis(1)))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("1 to 7");
    assertThatThrownBy(() -> RdmaOptions.DEFAULT.withSendQueueSize(100))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageContaining("power of two");
  }

  @Test
  void shouldSpreadRanksOverDevicesAlikeFromBothEnds() {
    for (int local = 0; local < 8; local++) {
      for (int remote = 0; remote < 8; remote++) {
        assertThat(IbTransport.rankToIbDevice(local, remote, 4))
            .isEqualTo(IbTransport.rankToIbDevice(remote, local, 4));
      }
    }
    assertThat(IbTransport.rankToIbDevice(3, 2, 4)).isEqualTo(Transport.IB1);
    assertThatThrownBy(() -> IbTransport.rankToIbDevice(0, 0, 9)).isInstanceOf(InvalidUsage.class);
  }
}
