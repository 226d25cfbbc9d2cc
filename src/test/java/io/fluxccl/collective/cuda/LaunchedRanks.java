// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import static io.fluxccl.DataType.UINT8;
import static io.fluxccl.testing.FinalMocks.mockFinal;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.ArgumentMatchers.anyInt;
import static org.mockito.Mockito.when;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.GpuKernels;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Two ranks on one GPU whose kernels a test launches directly, in an order that it chooses. */
final class LaunchedRanks implements AutoCloseable {
  static final int RANKS = 2;

  final CudaDevice gpu = CudaDevice.open(0);
  final List<DeviceBuffer> states = new ArrayList<>();
  final List<DeviceBuffer> inputs = new ArrayList<>();
  final List<DeviceBuffer> outputs = new ArrayList<>();
  private final List<DeviceBuffer> others = new ArrayList<>();
  private final List<AbortFlag> aborts = new ArrayList<>();
  private final List<DeviceStream> streams = new ArrayList<>();
  private final List<MappedPeers> peers = new ArrayList<>();

  /**
   * Creates ranks without launches; outputs are zeros.
   *
   * @param stateBytes of each rank's state
   * @param bytes of each rank's input and output
   */
  LaunchedRanks(long stateBytes, int bytes) {
    for (int rank = 0; rank < RANKS; rank++) {
      states.add(gpu.allocate(stateBytes));
      inputs.add(gpu.allocate(bytes));
      outputs.add(gpu.allocate(bytes));
      aborts.add(new AbortFlag(gpu));
      streams.add(gpu.createStream("rank" + rank));
    }
    for (int rank = 0; rank < RANKS; rank++) {
      peers.add(new MappedPeers(topology(rank), addresses(states), aborts.get(rank)));
    }
  }

  static long[] addresses(List<DeviceBuffer> buffers) {
    return buffers.stream().mapToLong(DeviceBuffer::address).toArray();
  }

  /** Allocates memory of the GPU and fills it with a byte. */
  DeviceBuffer allocate(int bytes, int value) {
    DeviceBuffer buffer = gpu.allocate(bytes);
    others.add(buffer);
    byte[] content = new byte[bytes];
    Arrays.fill(content, (byte) value);
    buffer.upload(0, content);
    return buffer;
  }

  /** A call of a rank, whose peer knows its output if that is registered. */
  BoundCall bind(int rank, CollectiveCall call, boolean isRegistered) {
    return new BoundCall(call, topology(rank), null, isRegistered ? registration(rank) : null, 0);
  }

  private Registration registration(int rank) {
    Registration registration = mockFinal(Registration.class);
    when(registration.buffer()).thenReturn(outputs.get(rank));
    when(registration.addressOn(anyInt()))
        .thenAnswer(asked -> outputs.get(asked.getArgument(0, Integer.class)).address());
    return registration;
  }

  private static RankTopology topology(int rank) {
    return new RankTopology(rank, RANKS, DeviceKind.CUDA, List.of(0, 0), true, 4, 0, 90, RANKS);
  }

  /** Returns the argument of the kernels for short exchanges. */
  ShortExchange shortExchange(int rank) {
    return new ShortExchange(addresses(states), rank, aborts.get(rank));
  }

  MappedPeers peers(BoundCall bound) {
    return peers.get(bound.rank()).bind(bound);
  }

  void abort(int rank) {
    aborts.get(rank).set();
  }

  /** Returns the ring of exchanges in packets of a kind. */
  static ExchangeRing ring(String kind) {
    return kind.endsWith("ll8")
        ? ExchangeRing.ll8(MappedPeers.AREAS_OFFSET, RANKS)
        : ExchangeRing.ll128(MappedPeers.AREAS_OFFSET, RANKS);
  }

  /** Launches an exchange of whole buffers with the peer, by a kernel of any or short messages. */
  CompletableFuture<Void> exchange(
      int rank, String kernel, DeviceBuffer input, DeviceBuffer output, int blocks, int threads) {
    int peer = 1 - rank;
    long bytes = input.size();
    ExchangeRing ring = ring(kernel);
    ExchangeParts parts =
        new ExchangeParts().clear(ring).add(peer, input.address(), bytes, output.address(), bytes);
    CudaKernel exchange = GpuKernels.one(gpu, "exchange_" + kernel, 0);
    if (kernel.startsWith("short")) {
      ShortExchange call = shortExchange(rank);
      assertThat(call.fill(parts, ring)).isTrue();
      return launch(rank, exchange, blocks, threads, call);
    }
    CollectiveCall call =
        CollectiveCall.sendReceive(input, bytes, peer, output, bytes, peer, UINT8);
    return launch(rank, exchange, blocks, threads, peers(bind(rank, call, false)), parts);
  }

  CompletableFuture<Void> launch(
      int rank, CudaKernel kernel, int blocks, int threads, Object... arguments) {
    streams.get(rank).launch(kernel, blocks, threads, KernelArgs.of(arguments));
    return streams.get(rank).completion();
  }

  /** The number of a rank's last launch, as its first block counts them; far off if aborted. */
  int epoch(int rank) {
    ByteBuffer epoch = ByteBuffer.allocateDirect(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    states.get(rank).download(0, epoch);
    return epoch.getInt(0);
  }

  @Override
  public void close() {
    streams.forEach(DeviceStream::close);
    aborts.forEach(AbortFlag::close);
    List.of(states, inputs, outputs, others).forEach(l -> l.forEach(DeviceBuffer::close));
    gpu.close();
  }
}
