package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(120)
class FakeStagedIbFailureTest {
  private final IbRanks ranks = IbRanks.fakeStaged(IbMemoryHandle.PIECE);

  private void assertEnds(RegisteredMemory remote, RegisteredMemory source, String why)
      throws Exception {
    Connection living = ranks.connect(100).get(0);
    List<Connection> ends = ranks.connect(0);
    ends.get(0).write(remote, 0, source, 0, 64);
    FluxCclException reason = IbFailureContract.failureOf(ends.get(0).flush(ranks.limit()));
    assertThat(reason).isInstanceOf(TransportFailure.class);
    assertThat(reason.rank()).isEqualTo(1);
    assertThat(ranks.await(ends.get(1).failed()))
        .isInstanceOf(TransportFailure.class)
        .hasMessageContaining(why);
    RegisteredMemory target = ranks.memory(1, 64);
    living.write(ranks.seenByPeer(target), 0, source, 0, 64);
    ranks.await(living.flush(ranks.limit()));
    Contents.assertSame(target, 0, source, 0, 64);
  }

  @Test
  void shouldEndTheConnectionThatWritesToClosedMemory() throws Exception {
    try (ranks) {
      RegisteredMemory target = ranks.memory(1, 64);
      RegisteredMemory remote = ranks.seenByPeer(target);
      target.close();
      assertEnds(remote, ranks.filled(0, 64, 1), "closed, or never was registered");
    }
  }

  @Test
  void shouldEndTheConnectionThatWritesBeyondMemory() throws Exception {
    try (ranks) {
      RegisteredMemory target = ranks.memory(1, 32);
      RegisteredMemory remote = ranks.seenByPeer(target, target.handle(Transport.IB0).wire(), 64);
      assertEnds(remote, ranks.filled(0, 64, 1), "64 bytes at offset 0 of 32");
    }
  }

  @Test
  void shouldRefuseToConnectEndsOfWhichOneStages() throws Exception {
    try (ranks;
        IbRanks unlike = IbRanks.fake(IbMemoryHandle.PIECE, true, false)) {
      Endpoint staged = unlike.endpoint(0, 1, 0);
      Endpoint direct = unlike.endpoint(1, 0, 0);
      for (FluxCclException reason :
          List.of(
              IbFailureContract.failureOf(
                  staged.connect(direct.wire(), Deadline.after(unlike.limit()))),
              IbFailureContract.failureOf(
                  direct.connect(staged.wire(), Deadline.after(unlike.limit()))))) {
        assertThat(reason)
            .isInstanceOf(TransportFailure.class)
            .hasMessageContaining("rank 0 stages")
            .hasMessageContaining("nvidia-peermem");
      }
    }
  }
}
