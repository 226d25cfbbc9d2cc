// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.testing.FinalMocks.mockFinal;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.AbortFlag;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RegisteredMemory;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.concurrent.CompletableFuture;
import java.util.function.LongFunction;
import org.junit.jupiter.api.Test;

/**
 * The algorithms that ranks on GPUs of 132 multiprocessors choose for calls of many sizes. {@code
 * choices.txt} has them: change it only together with an estimate or with what an algorithm
 * supports.
 */
@EmulatedGpus
class ChoiceTableEmulatedTest {
  private static final Path TABLE = Path.of("src/test/resources/io/fluxccl/collective/choices.txt");
  private static final int[] RANKS = {2, 3, 4, 8, 16};
  private static final int LEAST_BITS = 6;
  private static final int MOST_BITS = 30;
  private static final int MULTIPROCESSORS = 132;
  private static final int CAPABILITY = 90;

  /** The size of registered buffers: scratch of that size is allocated. */
  private static final long REGISTERED = 64 << 20;

  /** Calls of a number of bytes: of the input of a reduction, of the output of another. */
  private enum Kind {
    ALL_REDUCE_HALF,
    ALL_REDUCE_INT64,
    REDUCE_SCATTER,
    REDUCE,
    ALL_GATHER,
    ALL_TO_ALL,
    ALL_TO_ALL_IN_PLACE,
    BROADCAST,
    GATHER,
    SCATTER,
    SEND_RECEIVE;

    CollectiveCall call(DeviceBuffer input, DeviceBuffer output, long bytes, int nRanks) {
      long floats = Math.max(1, bytes / Float.BYTES);
      long share = Math.max(1, floats / nRanks);
      DataType type = DataType.FLOAT32;
      return switch (this) {
        case ALL_REDUCE_HALF ->
            CollectiveCall.allReduce(
                input, output, Math.max(1, bytes / 2), DataType.FLOAT16, ReduceOp.SUM);
        case ALL_REDUCE_INT64 ->
            CollectiveCall.allReduce(
                input, output, Math.max(1, bytes / 8), DataType.INT64, ReduceOp.MAX);
        case REDUCE_SCATTER ->
            CollectiveCall.reduceScatter(input, output, share, type, ReduceOp.SUM);
        case REDUCE -> CollectiveCall.reduce(input, output, floats, type, ReduceOp.SUM, 0);
        case ALL_GATHER -> CollectiveCall.allGather(input, output, share, type);
        case ALL_TO_ALL -> CollectiveCall.allToAll(input, output, share, type);
        case ALL_TO_ALL_IN_PLACE -> CollectiveCall.allToAll(input, input, share, type);
        case BROADCAST -> CollectiveCall.broadcast(input, output, floats, type, 0);
        case GATHER -> CollectiveCall.gather(input, output, share, type, 0);
        case SCATTER -> CollectiveCall.scatter(input, output, share, type, 0);
        case SEND_RECEIVE ->
            CollectiveCall.sendReceive(input, floats, 1, output, floats, nRanks - 1, type);
      };
    }
  }

  @Test
  void shouldChooseTheAlgorithmsOfTheTable() throws IOException {
    assertThat(table()).isEqualTo(Files.readAllLines(TABLE));
  }

  /** Returns a line for each kind of call: the algorithms, each from its least size on. */
  static List<String> table() {
    List<String> lines = new ArrayList<>();
    try (CudaDevice gpu = CudaDevice.open(0)) {
      for (int nRanks : RANKS) {
        for (String link : new String[] {"", "PCIe"}) {
          addLines(lines, gpu, nRanks, link);
        }
      }
    }
    return lines;
  }

  private static void addLines(List<String> lines, CudaDevice gpu, int nRanks, String link) {
    RankTopology topology =
        new RankTopology(
            0,
            nRanks,
            DeviceKind.CUDA,
            Collections.nCopies(nRanks, 0),
            true,
            MULTIPROCESSORS,
            0,
            CAPABILITY,
            1,
            link);
    PeerConnections peers = peers(gpu, topology);
    List<AlgorithmSet> sets = prepare(peers);
    try {
      DeviceBuffer input = buffer(1L << 40);
      DeviceBuffer output = buffer(1L << 41);
      Registration[] registered = {registration(input), registration(output)};
      for (boolean isRegistered : new boolean[] {false, true}) {
        Registrations registrations = mockFinal(Registrations.class);
        when(registrations.bind(any()))
            .thenAnswer(
                asked ->
                    new BoundCall(
                        asked.getArgument(0),
                        topology,
                        isRegistered ? registered[0] : null,
                        isRegistered ? registered[1] : null,
                        0));
        AlgorithmSelector selector =
            new AlgorithmSelector(
                peers, registrations, sets, CollectivesOptions.DEFAULT, Tuning.NONE);
        for (Kind kind : Kind.values()) {
          lines.add(
              nRanks
                  + " ranks, "
                  + (link.isEmpty() ? "NVLink" : link)
                  + (isRegistered ? ", registered, " : ", ")
                  + kind
                  + ":"
                  + choices(selector, bytes -> kind.call(input, output, bytes, nRanks)));
        }
      }
    } finally {
      sets.forEach(AlgorithmSet::close);
    }
  }

  private static String choices(AlgorithmSelector selector, LongFunction<CollectiveCall> calls) {
    StringBuilder line = new StringBuilder();
    String last = "";
    for (int bits = LEAST_BITS; bits < MOST_BITS; bits++) {
      // Sizes whose parts are not whole cache lines, too.
      for (long bytes : new long[] {1L << bits, (3L << bits - 1) + 16}) {
        String name = choice(selector, calls.apply(bytes));
        if (!name.equals(last)) {
          line.append(' ').append(bytes).append(' ').append(name);
          last = name;
        }
      }
    }
    return line.toString();
  }

  /** Without NVLink, pipes of another family do the calls for which these have no algorithm. */
  private static String choice(AlgorithmSelector selector, CollectiveCall call) {
    try {
      return selector.nameFor(call);
    } catch (InvalidUsage e) {
      return "none";
    }
  }

  private static DeviceBuffer buffer(long address) {
    DeviceBuffer buffer = mock(DeviceBuffer.class);
    when(buffer.address()).thenReturn(address);
    when(buffer.size()).thenReturn(REGISTERED);
    return buffer;
  }

  private static Registration registration(DeviceBuffer buffer) {
    Registration registration = mockFinal(Registration.class);
    when(registration.buffer()).thenReturn(buffer);
    return registration;
  }

  /** Connections of a rank whose peers' memory is its own. */
  private static PeerConnections peers(CudaDevice gpu, RankTopology topology) {
    AbortFlag abort = new AbortFlag(gpu);
    Communicator communicator = mockFinal(Communicator.class);
    when(communicator.device()).thenReturn(gpu);
    when(communicator.abortFlag()).thenReturn(abort);
    PeerConnections peers = mockFinal(PeerConnections.class);
    when(peers.communicator()).thenReturn(communicator);
    when(peers.topology()).thenReturn(topology);
    when(peers.rank()).thenReturn(topology.rank());
    when(peers.nRanks()).thenReturn(topology.nRanks());
    when(peers.exchange(any(DeviceBuffer.class)))
        .thenAnswer(
            asked -> {
              DeviceBuffer own = asked.getArgument(0);
              MemoryOrigin origin = new MemoryOrigin(0, 0, 0, own.address(), own.size());
              RegisteredMemory memory = RegisteredMemory.local(origin, own, Map.of());
              return CompletableFuture.completedFuture(
                  Collections.nCopies(topology.nRanks(), memory).toArray(RegisteredMemory[]::new));
            });
    return peers;
  }

  private static List<AlgorithmSet> prepare(PeerConnections peers) {
    List<AlgorithmSet> sets = new ArrayList<>();
    ServiceLoader.load(AlgorithmFamily.class).stream()
        .map(ServiceLoader.Provider::get)
        .filter(family -> family.supports(peers.topology()) && !family.name().equals("channel"))
        .sorted(Comparator.comparing(AlgorithmFamily::name))
        .forEach(family -> sets.add(family.prepare(peers).join()));
    sets.forEach(set -> set.reserve(REGISTERED).join());
    return sets;
  }
}
