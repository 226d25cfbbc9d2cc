// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceKind;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntFunction;
import reactor.core.publisher.Flux;

/** Ranks in plain memory, with exact arithmetic, one of which may be faulty. */
class FakeBackend implements PerfBackend {
  enum Fault {
    /** After every call, these elements of the result are wrong, one byte of each. */
    CORRUPTS,
    /** After every call, this element of the output buffer has changed. */
    SCRIBBLES,
    /** Each rank writes one byte past the end. */
    OVERRUNS,
    /** The rank fails after this number of calls. */
    FAILS,
    /** The rank pauses once for 100 ms, after this number of calls. */
    PAUSES,
    /** No call of the rank completes. */
    HANGS
  }

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

  @Override
  public PerfRank fromEnvironment(RankOptions options) {
    throw new UnsupportedOperationException("these ranks share one JVM");
  }

  @Override
  public Flux<Generation> generations(RankOptions options) {
    throw new UnsupportedOperationException("these ranks form no generations");
  }

  @Override
  public IntFunction<PerfRank> inProcess(int nRanks, RankOptions options) {
    Job job = new Job(new Phaser(nRanks), new ExactRank[nRanks], new byte[nRanks][]);
    return rank -> new ExactRank(job, rank);
  }

  @Override
  public List<String> devices() {
    return List.of("fake device 0");
  }

  @Override
  public List<String> algorithms() {
    return List.of("exact");
  }

  private record Job(Phaser barrier, ExactRank[] ranks, byte[][] messages) {}

  private final class ExactRank extends FakeRank {
    /** Longer than a busy machine keeps a thread waiting. */
    private static final long SLOWLY_NANOS = 100_000_000;

    private final Job job;
    private int operations;
    private boolean slowly;
    private boolean closed;

    ExactRank(Job job, int rank) {
      super(rank, job.ranks.length);
      this.job = job;
      job.ranks[rank] = this;
      open.incrementAndGet();
    }

    private boolean has(Fault what) {
      return fault == what && (rank() == faultyRank || what == Fault.OVERRUNS);
    }

    /** Returns an element of the input, wherever that lies. */
    private long input(PerfCase shape, BufferAliasing placement, long index) {
      boolean part =
          shape.collective() == Collective.ALL_GATHER || shape.collective() == Collective.GATHER;
      boolean inPlace = placement == BufferAliasing.IN_PLACE;
      long at = inPlace && part ? rank() * shape.count() + index : index;
      return ExactReduction.read(buffers[inPlace ? 1 : 0], (int) at, shape.type());
    }

    @Override
    public Optional<MeasuredLibrary> peer() {
      return comparing ? Optional.of(new Idle()) : Optional.empty();
    }

    @Override
    public List<String> algorithms(PerfCase shape, BufferAliasing placement) {
      return List.of("slow", "exact");
    }

    @Override
    public void prefer(PerfCase shape, Optional<String> algorithm) {
      slowly = algorithm.equals(Optional.of("slow"));
    }

    @Override
    public RankTopology topology() {
      List<Integer> hosts = Collections.nCopies(nRanks(), 0);
      return new RankTopology(rank(), nRanks(), DeviceKind.HOST, hosts, true, 0, 0, 1, 1);
    }

    @Override
    CompletableFuture<Void> run(PerfCase shape, BufferAliasing placement, int times) {
      if (has(Fault.HANGS)) {
        return new CompletableFuture<>();
      }
      try {
        for (int i = 0; i < times; i++) {
          boolean isTime = faultAt.length > 0 && operations++ == faultAt[0];
          if (has(Fault.FAILS) && isTime) {
            // Fails ranks that wait at the barrier, and ranks that reach it later.
            job.barrier.forceTermination();
            throw new TransportFailure(rank(), "the fake cable was cut");
          }
          if (has(Fault.PAUSES) && isTime) {
            LockSupport.parkNanos(SLOWLY_NANOS);
          }
          call(shape, placement);
        }
        return CompletableFuture.completedFuture(null);
      } catch (RuntimeException e) {
        return CompletableFuture.failedFuture(e);
      }
    }

    private void call(PerfCase shape, BufferAliasing placement) {
      meet();
      for (long end = System.nanoTime() + SLOWLY_NANOS; slowly && System.nanoTime() < end; ) {
        LockSupport.parkNanos(end - System.nanoTime());
      }
      List<Long> result = result(shape, placement);
      int size = shape.type().size();
      int length = result.size() * size;
      ByteBuffer bytes = ByteBuffer.allocate(length + 1).order(ByteOrder.LITTLE_ENDIAN);
      for (int i = 0; i < result.size(); i++) {
        ExactReduction.write(bytes, i, shape.type(), result.get(i));
      }
      spoil(bytes, size, Fault.CORRUPTS);
      meet();
      boolean part =
          shape.collective() == Collective.REDUCE_SCATTER
              || shape.collective() == Collective.SCATTER;
      long offset = placement == BufferAliasing.IN_PLACE && part ? rank() * shape.count() : 0;
      output().put((int) offset * size, bytes, 0, length + (has(Fault.OVERRUNS) ? 1 : 0));
      spoil(output(), size, Fault.SCRIBBLES);
    }

    private void spoil(ByteBuffer bytes, int size, Fault what) {
      for (int element : has(what) ? faultAt : new int[0]) {
        bytes.put(element * size, (byte) (bytes.get(element * size) ^ 1));
      }
    }

    /** This rank's output by the definition of each collective. */
    private List<Long> result(PerfCase shape, BufferAliasing placement) {
      List<Long> result = new ArrayList<>();
      for (ExactRank peer : job.ranks) {
        long first = first(shape, peer.rank());
        for (long i = first; i < first + count(shape, peer.rank()); i++) {
          boolean reduces = shape.collective().reduces();
          result.add(reduces ? reduced(shape, placement, i) : peer.input(shape, placement, i));
        }
      }
      return result;
    }

    private long reduced(PerfCase shape, BufferAliasing placement, long index) {
      List<Long> inputs =
          Arrays.stream(job.ranks).map(each -> each.input(shape, placement, index)).toList();
      return ExactReduction.reduce(inputs, shape.type(), shape.op());
    }

    /** Returns how many elements this rank's output takes of a peer's input. */
    private long count(PerfCase shape, int peer) {
      boolean takes =
          switch (shape.collective()) {
            case ALL_REDUCE, REDUCE_SCATTER -> peer == 0;
            case REDUCE -> peer == 0 && rank() == shape.root();
            case BROADCAST, SCATTER -> peer == shape.root();
            case GATHER -> rank() == shape.root();
            case SEND_RECEIVE -> (peer + 1) % nRanks() == rank();
            default -> true;
          };
      boolean varies = shape.collective() == Collective.ALL_TO_ALL_V;
      return varies ? counts(shape, peer)[rank()] : takes ? shape.count() : 0;
    }

    /** Returns the first of these elements. */
    private long first(PerfCase shape, int peer) {
      return switch (shape.collective()) {
        case REDUCE_SCATTER, SCATTER, ALL_TO_ALL -> rank() * shape.count();
        case ALL_TO_ALL_V -> Arrays.stream(counts(shape, peer)).limit(rank()).sum();
        default -> 0;
      };
    }

    private long[] counts(PerfCase shape, int peer) {
      return new DataLayout(shape, peer, nRanks()).counts();
    }

    @Override
    public void barrier(Deadline deadline) {
      meet();
    }

    @Override
    public List<byte[]> allGather(byte[] mine, Deadline deadline) {
      job.messages[rank()] = mine;
      meet();
      List<byte[]> all = List.of(job.messages.clone());
      meet();
      return all;
    }

    private void meet() {
      try {
        int phase =
            job.barrier.awaitAdvanceInterruptibly(job.barrier.arrive(), 30, TimeUnit.SECONDS);
        if (phase < 0) {
          throw new RemoteFailure(faultyRank, "another rank is gone");
        }
      } catch (TimeoutException e) {
        throw new RemoteFailure(faultyRank, "another rank is gone");
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new RemoteFailure(rank(), "interrupted");
      }
    }

    @Override
    public void close() {
      if (!closed) {
        closed = true;
        open.decrementAndGet();
      }
    }
  }

  /** A library whose calls complete at once. */
  private static final class Idle implements MeasuredLibrary {
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
      return new PreparedCalls(times -> CompletableFuture.completedFuture(null));
    }
  }
}
