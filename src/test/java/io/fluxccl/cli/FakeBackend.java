// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.TransportFailure;
import io.fluxccl.cli.MeasuredLibrary.PreparedCalls;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.transport.Overlay;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.IntFunction;
import java.util.function.Supplier;

/** Ranks of the library on the host, one of which may be faulty. */
class FakeBackend implements PerfBackend {
  enum Fault {
    /** After its calls, these elements of the result are wrong, one byte of each. */
    CORRUPTS,
    /** After its calls, this element of the output buffer has changed. */
    SCRIBBLES,
    /** Each rank writes one byte past the end. */
    OVERRUNS,
    /** The rank fails after this number of calls. */
    FAILS,
    /** A call takes 100 ms, after this number of calls; others take 10 us. */
    PAUSES,
    /** No call of the rank completes. */
    HANGS,
    /** The process of the rank exits with code 7. */
    EXITS
  }

  private final PerfBackend library = new GroupBackend();
  private final AtomicInteger open = new AtomicInteger();
  private Fault fault;
  private int faultyRank = -1;
  private int[] faultAt = {};
  private boolean comparing;

  void setFault(Fault what, int rank, int... at) {
    fault = what;
    faultyRank = rank;
    faultAt = at;
  }

  /** Adds a library to compare with, whose calls do nothing. */
  void compare() {
    comparing = true;
  }

  /** Number of open ranks. */
  int openRanks() {
    return open.get();
  }

  @Override
  public boolean compares() {
    return comparing;
  }

  private static RankOptions onHost(RankOptions options) {
    return new RankOptions(
        from -> options.joining().apply(from).withDevice(DeviceChoice.HOST),
        options.timeout(),
        options.register(),
        options.memory());
  }

  private PerfRank faulty(PerfRank rank) {
    open.incrementAndGet();
    return Overlay.of(PerfRank.class, new FaultyRank(rank), rank);
  }

  @Override
  public PerfRank fromEnvironment(RankOptions options) {
    return faulty(library.fromEnvironment(onHost(options)));
  }

  @Override
  public IntFunction<PerfRank> inProcess(int nRanks, RankOptions options) {
    IntFunction<PerfRank> ranks = library.inProcess(nRanks, onHost(options));
    return rank -> faulty(ranks.apply(rank));
  }

  /** Replaces methods of a rank. */
  private final class FaultyRank {
    private static final long CALL_NANOS = 10_000;
    private static final long SLOWLY_NANOS = 100_000_000;

    private final PerfRank rank;
    private int operations;
    private boolean slowly;
    private boolean closed;

    /** The time that calls have taken; a busy machine does not change it. */
    private long nanos;

    FaultyRank(PerfRank rank) {
      this.rank = rank;
    }

    private boolean has(Fault what) {
      return fault == what && (rank.rank() == faultyRank || what == Fault.OVERRUNS);
    }

    long nanoTime() {
      return nanos;
    }

    List<MeasuredLibrary> peers() {
      return comparing ? List.of(new Idle()) : List.of();
    }

    List<String> algorithms(PerfCase shape, BufferAliasing placement) {
      return List.of("slow", "exact");
    }

    void prefer(PerfCase shape, Optional<String> algorithm) {
      slowly = algorithm.equals(Optional.of("slow"));
    }

    MeasuredLibrary library() {
      return Overlay.of(MeasuredLibrary.class, this, rank.library());
    }

    boolean supports(PerfCase shape, BufferAliasing placement) {
      return true;
    }

    PreparedCalls prepare(PerfCase shape, BufferAliasing placement, int length, boolean graph) {
      PreparedCalls calls = rank.library().prepare(shape, placement, length, graph);
      return new PreparedCalls(
          times ->
              run(length * times, () -> calls.run(times))
                  .thenRun(
                      () -> spoil(new DataLayout(shape, rank.rank(), rank.nRanks()), placement)),
          calls::close);
    }

    private CompletableFuture<Void> run(int count, Supplier<CompletableFuture<Void>> calls) {
      operations += count;
      boolean isTime =
          faultAt.length > 0 && operations - count <= faultAt[0] && faultAt[0] < operations;
      if (has(Fault.HANGS)) {
        return new CompletableFuture<>();
      }
      if (has(Fault.EXITS)) {
        Runtime.getRuntime().halt(7);
      }
      if (has(Fault.FAILS) && isTime) {
        return CompletableFuture.failedFuture(
            new TransportFailure(rank.rank(), "the fake cable was cut"));
      }
      boolean pauses = slowly || has(Fault.PAUSES) && isTime;
      nanos += count * CALL_NANOS + (pauses ? SLOWLY_NANOS : 0);
      return calls.get();
    }

    private void spoil(DataLayout layout, BufferAliasing placement) {
      int size = layout.shape().type().size();
      long output = layout.outputOffset(placement) * size;
      for (int element : faultAt) {
        if (has(Fault.CORRUPTS)) {
          spoil(output + element * size, 1);
        }
        if (has(Fault.SCRIBBLES)) {
          spoil(element * size, 1);
        }
      }
      if (has(Fault.OVERRUNS)) {
        spoil(layout.hasOutput() ? output + layout.outputExtent() * size : 0, 0xff);
      }
    }

    /** Changes these bits of a byte of the output buffer. */
    private void spoil(long at, int bits) {
      ByteBuffer one = ByteBuffer.allocateDirect(1);
      rank.download(PerfRank.Buffer.OUTPUT, at, one);
      rank.upload(PerfRank.Buffer.OUTPUT, at, one.put(0, (byte) (one.get(0) ^ bits)).flip());
    }

    void close() {
      if (!closed) {
        closed = true;
        rank.close();
        open.decrementAndGet();
      }
    }

    /** A library whose calls complete at once. */
    private final class Idle implements MeasuredLibrary {
      @Override
      public String name() {
        return "Idle 1.0";
      }

      @Override
      public boolean supports(PerfCase shape, BufferAliasing placement) {
        return placement == BufferAliasing.OUT_OF_PLACE;
      }

      @Override
      public PreparedCalls prepare(
          PerfCase shape, BufferAliasing placement, int length, boolean graph) {
        return new PreparedCalls(
            times -> {
              nanos += (long) times * length * CALL_NANOS;
              return CompletableFuture.completedFuture(null);
            });
      }
    }
  }
}
