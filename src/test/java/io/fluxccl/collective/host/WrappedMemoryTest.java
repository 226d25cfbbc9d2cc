// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import static io.fluxccl.DataType.INT64;
import static io.fluxccl.ReduceOp.SUM;
import static io.fluxccl.testing.Outcomes.refuses;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.RandomCollectiveCase;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testing.OnRanks;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Random;
import org.agrona.BufferUtil;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The host device on wrapped memory of the program. */
@Timeout(120)
@Tag("jdk")
@OnRanks
class WrappedMemoryTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int RANKS = 3;
  private static final int MAX_BYTES = 200_000;

  private static ByteBuffer direct(int size) {
    return ByteBuffer.allocateDirect(size).order(ByteOrder.nativeOrder());
  }

  @Test
  void shouldAccessTheMemoryOfTheWrappedByteBuffer() {
    try (HostDevice device = HostDevice.create()) {
      ByteBuffer bytes = direct(64);
      bytes.position(8).limit(40);
      HostBuffer whole = device.wrap(bytes);
      assertThat(whole.size()).isEqualTo(32);
      assertThat(whole.address()).isEqualTo(BufferUtil.address(bytes) + 8);
      assertThat(bytes.position()).isEqualTo(8);
      whole.upload(4, new byte[] {1, 2, 3});
      assertThat(bytes.get(13)).isEqualTo((byte) 2);
      bytes.putInt(20, 0x01020304);
      byte[] found = new byte[4];
      whole.slice(8, 16).download(4, found);
      assertThat(found).containsExactly(4, 3, 2, 1);
      assertThat(whole.asByteBuffer().get().getInt(12)).isEqualTo(0x01020304);
      HostBuffer byAddress = device.wrap(whole.address(), 32);
      byAddress.upload(31, new byte[] {9});
      assertThat(bytes.get(39)).isEqualTo((byte) 9);
      byAddress.download(12, found);
      assertThat(found).containsExactly(4, 3, 2, 1);
      assertThat(byAddress.asByteBuffer()).isEmpty();
      assertThat(whole.unshareableReason()).isPresent();
      whole.close();
      byAddress.close();
      refuses(() -> whole.download(0, found));
      assertThat(bytes.getInt(20)).isEqualTo(0x01020304);
    }
  }

  @Test
  void shouldRefuseHeapReadOnlyEmptyOrWronglyOrderedBuffers() {
    try (HostDevice device = HostDevice.create()) {
      refuses(() -> device.wrap(ByteBuffer.allocate(8).order(ByteOrder.nativeOrder())), "direct");
      refuses(() -> device.wrap(ByteBuffer.allocateDirect(8)), "big-endian");
      refuses(() -> device.wrap(direct(8).asReadOnlyBuffer().order(ByteOrder.nativeOrder())));
      refuses(() -> device.wrap(direct(0)));
      refuses(() -> device.wrap(null));
      refuses(() -> device.wrap(0, 8));
      refuses(() -> device.wrap(4096, 0));
      refuses(() -> device.wrap(4096, Long.MAX_VALUE));
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  @OnRanks(RANKS)
  void shouldDoAllKindsOfCallsOnIt(boolean registered, LocalRank rank, Collectives collectives) {
    HostDevice device = (HostDevice) rank.device();
    long size = RandomCollectiveCase.memory(RANKS, MAX_BYTES);
    DeviceBuffer memory =
        rank.rank() == 0 ? device.allocate(size) : device.wrap(direct((int) size));
    if (registered) {
      Registration registration = collectives.register(memory).join();
      assertThat(registration.stagedReason().get()).startsWith("rank 1: ");
      assertThat(registration.id()).isZero();
    }
    Random random = new Random(RANKS);
    for (int i = 0; i < 30; i++) {
      RandomCollectiveCase.Run run =
          RandomCollectiveCase.draw(random, RANKS, MAX_BYTES).on(rank.rank(), memory);
      collectives.run(run.call).block(LONG);
      collectives.barrier().block(LONG);
      run.verify();
      collectives.barrier().block(LONG);
    }
    DeviceBuffer own = device.allocate(1 << 20);
    Registration next = collectives.register(own).join();
    assertThat(next.stagedReason()).isEmpty();
    assertThat(next.id()).isEqualTo(registered ? 1 : 0);
  }

  @Test
  @OnRanks(1)
  void shouldRefuseToRegisterItForSharedMemoryAlone(LocalRank rank) {
    HostBuffer memory = ((HostDevice) rank.device()).wrap(direct(64));
    refuses(
        () -> rank.communicator().registerMemory(memory, TransportFlags.of(Transport.SHM)),
        "can't be mapped by other processes");
    rank.communicator().registerMemory(memory, TransportFlags.of(Transport.ETHERNET)).close();
  }

  @Test
  void shouldOpenALaneOnAStreamOfTheProgram(LocalRank rank) {
    DeviceBuffer x = ((HostDevice) rank.device()).wrap(direct(4096));
    try (Collectives collectives = rank.collectives()) {
      Collectives lane = collectives.lane(rank.stream()).join();
      assertThat(lane.stream()).isSameAs(rank.stream());
      rank.stream().writeValue(x, 0, rank.rank() + 1);
      lane.allReduce(x, INT64, SUM).block(LONG);
      lane.close();
      // The stream stays usable after the lane is closed.
      rank.stream().writeValue(x, 8, 77);
      assertThat(rank.stream().completion()).succeedsWithin(LONG);
    }
    byte[] found = new byte[9];
    x.download(0, found);
    assertThat(found[0]).isEqualTo((byte) 3);
    assertThat(found[8]).isEqualTo((byte) 77);
    x.close();
  }
}
