// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import static io.fluxccl.DataType.INT32;
import static io.fluxccl.ReduceOp.SUM;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.Rounds;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.List;

/** Checks the chunks of every chunkable collective, on any number of ranks. */
final class ChunkedContract {
  private static final Duration LONG = Duration.ofSeconds(120);
  private static final List<Collective> ALL =
      List.of(
          Collective.ALL_REDUCE,
          Collective.ALL_GATHER,
          Collective.REDUCE_SCATTER,
          Collective.BROADCAST,
          Collective.REDUCE,
          Collective.ALL_TO_ALL,
          Collective.GATHER,
          Collective.SCATTER);

  /** Emulated GPUs are slow: in the loop each call is made in place or out of place. */
  private static final boolean THIN = EmulatedGpus.HERE && !Rounds.LONG;

  private final CollectivesOptions options;
  private final int count;
  private final boolean registered;

  /**
   * Of that many elements, or one more or less.
   *
   * @param registered whether both buffers are
   */
  ChunkedContract(CollectivesOptions options, int count, boolean registered) {
    this.options = options.withTimeout(LONG);
    this.count = count;
    this.registered = registered;
  }

  void check(LocalRanks ranks) {
    check(ranks, ALL);
  }

  void check(LocalRanks ranks, List<Collective> which) {
    ranks.run(LONG, rank -> check(rank, which));
  }

  private void check(LocalRank rank, List<Collective> which) {
    int n = rank.communicator().bootstrap().nRanks();
    long bytes = (count + 1L) * n * Integer.BYTES;
    try (Collectives collectives = Collectives.create(rank.communicator(), options).join();
        DeviceBuffer one = rank.device().allocate(bytes);
        DeviceBuffer other = rank.device().allocate(bytes)) {
      List<Registration> registrations =
          registered
              ? List.of(collectives.register(one).join(), collectives.register(other).join())
              : List.of();
      for (Collective collective : which) {
        for (int of : new int[] {count - 1, count, count + 1}) {
          for (boolean inPlace : new boolean[] {false, true}) {
            if (THIN && inPlace == ((of + collective.ordinal()) % 2 == 0)) {
              continue;
            }
            new Case(rank.rank(), n, collective, of, (of + 1) % n, inPlace)
                .check(collectives, one, other);
          }
        }
      }
      registrations.forEach(Registration::close);
    }
  }

  /** One call. Element i of rank r's input is 10 000 000 (r + 1) + i. */
  private record Case(
      int rank, int n, Collective collective, int count, int root, boolean inPlace) {
    void check(Collectives collectives, DeviceBuffer one, DeviceBuffer other) {
      DeviceBuffer whole = one.slice(0, (long) elementsOfLarger() * Integer.BYTES);
      DeviceBuffer input = part(whole, sharesOfInput());
      DeviceBuffer output = part(inPlace ? whole : other, sharesOfOutput());
      put(other, new int[count * n]);
      put(input, input(rank, count * sharesOfInput()));
      int chunk = Math.max(1, count / 3);
      collectives.barrier().block(LONG); // all ranks have filled their memory
      List<Chunk> chunks =
          collectives
              .chunked(call(input, output), chunk, 2)
              .doOnNext(done -> checkDone(output, done))
              .collectList()
              .block(LONG);
      assertThat(chunks).hasSize((count + chunk - 1) / chunk);
      checkDone(output, new Chunk(0, 0, count));
      collectives.barrier().block(LONG); // before any rank refills its buffer
    }

    private int elementsOfLarger() {
      return count * Math.max(sharesOfInput(), sharesOfOutput());
    }

    /** Returns a slice of {@code shares} shares; a single share is this rank's own. */
    private DeviceBuffer part(DeviceBuffer memory, int shares) {
      boolean mine = shares == 1 && Math.max(sharesOfInput(), sharesOfOutput()) == n;
      long size = (long) count * Integer.BYTES;
      return memory.slice(mine ? rank * size : 0, size * shares);
    }

    private int sharesOfInput() {
      return switch (collective) {
        case REDUCE_SCATTER, ALL_TO_ALL -> n;
        case SCATTER -> rank == root ? n : 1;
        default -> 1;
      };
    }

    private int sharesOfOutput() {
      return switch (collective) {
        case ALL_GATHER, ALL_TO_ALL -> n;
        case GATHER -> rank == root ? n : 1;
        default -> 1;
      };
    }

    private CollectiveCall call(DeviceBuffer input, DeviceBuffer output) {
      return switch (collective) {
        case ALL_REDUCE -> CollectiveCall.allReduce(input, output, count, INT32, SUM);
        case ALL_GATHER -> CollectiveCall.allGather(input, output, count, INT32);
        case REDUCE_SCATTER -> CollectiveCall.reduceScatter(input, output, count, INT32, SUM);
        case BROADCAST -> CollectiveCall.broadcast(input, output, count, INT32, root);
        case REDUCE -> CollectiveCall.reduce(input, output, count, INT32, SUM, root);
        case ALL_TO_ALL -> CollectiveCall.allToAll(input, output, count, INT32);
        case GATHER -> CollectiveCall.gather(input, output, count, INT32, root);
        case SCATTER -> CollectiveCall.scatter(input, output, count, INT32, root);
        default -> throw new IllegalArgumentException(collective.label());
      };
    }

    /** Checks the elements of a chunk in every share of the output. */
    private void checkDone(DeviceBuffer output, Chunk chunk) {
      if (rank != root && (collective == Collective.REDUCE || collective == Collective.GATHER)) {
        return;
      }
      for (int share = 0; share < sharesOfOutput(); share++) {
        int[] got = get(output, share * count + (int) chunk.offset(), (int) chunk.count());
        for (int i = 0; i < got.length; i++) {
          int at = (int) chunk.offset() + i;
          if (got[i] != expected(share, at)) {
            assertThat(got[i])
                .as("%s on rank %d: %s, share %d, element %d", this, rank, chunk, share, at)
                .isEqualTo(expected(share, at));
          }
        }
      }
    }

    private int expected(int share, int at) {
      return switch (collective) {
        case ALL_REDUCE, REDUCE -> sum(at);
        case REDUCE_SCATTER -> sum(rank * count + at);
        case ALL_GATHER, GATHER -> element(share, at);
        case ALL_TO_ALL -> element(share, rank * count + at);
        case BROADCAST -> element(root, at);
        case SCATTER -> element(root, rank * count + at);
        default -> throw new IllegalArgumentException(collective.label());
      };
    }

    private int sum(int at) {
      int sum = 0;
      for (int r = 0; r < n; r++) {
        sum += element(r, at);
      }
      return sum;
    }
  }

  private static int element(int rank, int at) {
    return 10_000_000 * (rank + 1) + at;
  }

  private static int[] input(int rank, int elements) {
    int[] all = new int[elements];
    for (int i = 0; i < elements; i++) {
      all[i] = element(rank, i);
    }
    return all;
  }

  private static void put(DeviceBuffer buffer, int[] values) {
    ByteBuffer bytes =
        ByteBuffer.allocateDirect(values.length * Integer.BYTES).order(ByteOrder.nativeOrder());
    bytes.asIntBuffer().put(values);
    buffer.upload(0, bytes);
  }

  private static int[] get(DeviceBuffer buffer, int from, int elements) {
    ByteBuffer bytes =
        ByteBuffer.allocateDirect(elements * Integer.BYTES).order(ByteOrder.nativeOrder());
    buffer.download((long) from * Integer.BYTES, bytes);
    int[] values = new int[elements];
    bytes.flip();
    bytes.order(ByteOrder.nativeOrder()).asIntBuffer().get(values);
    return values;
  }
}
