// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.Deadline;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.cli.MeasuredLibrary.PreparedCalls;
import io.fluxccl.collective.Collective;
import io.fluxccl.collective.RankTopology;
import io.fluxccl.device.DeviceKind;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
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

/** Ranks in plain memory, with exact arithmetic, whose faults can be configured. */
final class FakeBackend implements PerfBackend {
  private final AtomicInteger open = new AtomicInteger();
  private long[] corrupted = {};
  private int corruptedRank = -1;
  private int scribblingRank = -1;
  private int scribbledElement;
  private boolean overrunning;
  private int failingRank = -1;
  private int operationsBeforeFailure;
  private int hangingRank = -1;
  private boolean comparing;
  private int pausingRank = -1;
  private int operationsBeforePause;

  /** Makes these elements (one byte of each) wrong on one rank after every call. */
  FakeBackend corrupting(int rank, long... elements) {
    corruptedRank = rank;
    corrupted = elements;
    return this;
  }

  /**
   * Makes one rank change an element of its output buffer after every call, whatever that holds.
   */
  FakeBackend scribbling(int rank, int element) {
    scribblingRank = rank;
    scribbledElement = element;
    return this;
  }

  /** Makes every rank write one byte past the end. */
  FakeBackend overrunning() {
    overrunning = true;
    return this;
  }

  /** Makes a rank fail after {@code afterOperations} calls. */
  FakeBackend failing(int rank, int afterOperations) {
    failingRank = rank;
    operationsBeforeFailure = afterOperations;
    return this;
  }

  /** Makes a rank pause once for 100 ms, after {@code afterOperations} calls. */
  FakeBackend pausing(int rank, int afterOperations) {
    pausingRank = rank;
    operationsBeforePause = afterOperations;
    return this;
  }

  /** Makes a rank never complete. */
  FakeBackend hanging(int rank) {
    hangingRank = rank;
    return this;
  }

  /** Adds a library to compare with, whose calls do nothing. */
  FakeBackend comparing() {
    comparing = true;
    return this;
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
    throw new UnsupportedOperationException("these ranks share one JVM");
  }

  @Override
  public IntFunction<PerfRank> inProcess(int nRanks, RankOptions options) {
    Job job = new Job(nRanks);
    return rank -> new FakeRank(job, rank);
  }

  @Override
  public List<String> devices() {
    return List.of("fake device 0");
  }

  @Override
  public List<String> algorithms() {
    return List.of("exact");
  }

  private static final class Job {
    final Phaser barrier;
    final ByteBuffer[][] buffers;
    final byte[][] messages;

    Job(int nRanks) {
      barrier = new Phaser(nRanks);
      buffers = new ByteBuffer[nRanks][2];
      messages = new byte[nRanks][];
    }

    /** An element of a rank's input, wherever that lies. */
    long input(PerfCase shape, BufferAliasing placement, int rank, long index) {
      boolean part =
          shape.collective() == Collective.ALL_GATHER || shape.collective() == Collective.GATHER;
      boolean inPlace = placement == BufferAliasing.IN_PLACE;
      ByteBuffer buffer = buffers[rank][inPlace ? 1 : 0];
      long at = inPlace && part ? rank * shape.count() + index : index;
      return ExactReduction.read(buffer, (int) at, shape.type());
    }
  }

  private final class FakeRank implements PerfRank {
    /** Longer than a busy machine keeps a thread waiting. */
    private static final long SLOWLY_NANOS = 100_000_000;

    private final Job job;
    private final int rank;
    private final int nRanks;
    private int operations;
    private boolean slowly;
    private boolean closed;

    FakeRank(Job job, int rank) {
      this.job = job;
      this.rank = rank;
      this.nRanks = job.buffers.length;
      open.incrementAndGet();
    }

    @Override
    public int rank() {
      return rank;
    }

    @Override
    public int nRanks() {
      return nRanks;
    }

    @Override
    public String device() {
      return "fake device " + rank;
    }

    @Override
    public void prepare(long bytes) {
      for (int i = 0; i < 2; i++) {
        job.buffers[rank][i] = ByteBuffer.allocate((int) bytes).order(ByteOrder.LITTLE_ENDIAN);
      }
    }

    @Override
    public void upload(PerfRank.Buffer buffer, long offset, ByteBuffer source) {
      int length = source.remaining();
      buffer(buffer).put((int) offset, source, source.position(), length);
      source.position(source.limit());
    }

    @Override
    public void download(PerfRank.Buffer buffer, long offset, ByteBuffer target) {
      target.put(buffer(buffer).slice((int) offset, target.remaining()));
    }

    private ByteBuffer buffer(PerfRank.Buffer buffer) {
      return job.buffers[rank][buffer.ordinal()];
    }

    @Override
    public MeasuredLibrary library() {
      return new MeasuredLibrary() {
        @Override
        public String name() {
          return "fake";
        }

        @Override
        public PreparedCalls prepare(
            PerfCase shape, BufferAliasing placement, int length, boolean graph) {
          return new PreparedCalls(times -> work(shape, placement, length * times));
        }
      };
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
      return new RankTopology(
          rank, nRanks, DeviceKind.HOST, Collections.nCopies(nRanks, 0), true, 0, 0, 1, 1);
    }

    private CompletableFuture<Void> work(PerfCase shape, BufferAliasing placement, int calls) {
      if (rank == hangingRank) {
        return new CompletableFuture<>();
      }
      try {
        for (int i = 0; i < calls; i++) {
          if (rank == failingRank && operations++ == operationsBeforeFailure) {
            // Fails ranks that wait at the barrier, and ranks that reach it later.
            job.barrier.forceTermination();
            throw new TransportFailure(rank, "the fake cable was cut");
          }
          if (rank == pausingRank && operations++ == operationsBeforePause) {
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
      ByteBuffer bytes =
          ByteBuffer.allocate(result.size() * size + 1).order(ByteOrder.LITTLE_ENDIAN);
      for (int i = 0; i < result.size(); i++) {
        ExactReduction.write(bytes, i, shape.type(), result.get(i));
      }
      for (long element : rank == corruptedRank ? corrupted : new long[0]) {
        int at = (int) element * size;
        bytes.put(at, (byte) (bytes.get(at) ^ 1));
      }
      meet();
      boolean part =
          shape.collective() == Collective.REDUCE_SCATTER
              || shape.collective() == Collective.SCATTER;
      long offset = placement == BufferAliasing.IN_PLACE && part ? rank * shape.count() : 0;
      buffer(PerfRank.Buffer.OUTPUT)
          .put((int) offset * size, bytes, 0, result.size() * size + (overrunning ? 1 : 0));
      if (rank == scribblingRank) {
        int at = scribbledElement * size;
        buffer(PerfRank.Buffer.OUTPUT).put(at, (byte) (buffer(PerfRank.Buffer.OUTPUT).get(at) ^ 1));
      }
    }

    /** This rank's output by the definition of each collective. */
    private List<Long> result(PerfCase shape, BufferAliasing placement) {
      List<Long> result = new ArrayList<>();
      long count = shape.count();
      boolean root = rank == shape.root();
      for (int peer = 0; peer < nRanks; peer++) {
        for (long i = 0; i < count; i++) {
          switch (shape.collective()) {
            case ALL_REDUCE -> addReduced(result, peer == 0, shape, placement, i);
            case REDUCE -> addReduced(result, peer == 0 && root, shape, placement, i);
            case REDUCE_SCATTER ->
                addReduced(result, peer == 0, shape, placement, rank * count + i);
            case BROADCAST -> add(result, peer == shape.root(), shape, placement, peer, i);
            case SCATTER ->
                add(result, peer == shape.root(), shape, placement, peer, rank * count + i);
            case ALL_GATHER -> add(result, true, shape, placement, peer, i);
            case GATHER -> add(result, root, shape, placement, peer, i);
            case ALL_TO_ALL -> add(result, true, shape, placement, peer, rank * count + i);
            case SEND_RECEIVE ->
                add(result, (peer + 1) % nRanks == rank, shape, placement, peer, i);
            default -> {}
          }
        }
        if (shape.collective() == Collective.ALL_TO_ALL_V) {
          long[] counts = new DataLayout(shape, peer, nRanks).counts();
          long before = 0;
          for (int i = 0; i < rank; i++) {
            before += counts[i];
          }
          for (long i = 0; i < counts[rank]; i++) {
            add(result, true, shape, placement, peer, before + i);
          }
        }
      }
      return result;
    }

    private void add(
        List<Long> result,
        boolean wanted,
        PerfCase shape,
        BufferAliasing placement,
        int peer,
        long i) {
      if (wanted) {
        result.add(job.input(shape, placement, peer, i));
      }
    }

    private void addReduced(
        List<Long> result, boolean wanted, PerfCase shape, BufferAliasing placement, long i) {
      if (wanted) {
        List<Long> values = new ArrayList<>();
        for (int peer = 0; peer < nRanks; peer++) {
          values.add(job.input(shape, placement, peer, i));
        }
        result.add(ExactReduction.reduce(values, shape.type(), shape.op()));
      }
    }

    @Override
    public void barrier(Deadline deadline) {
      meet();
    }

    @Override
    public List<byte[]> allGather(byte[] mine, Deadline deadline) {
      job.messages[rank] = mine;
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
          throw new RemoteFailure(failingRank, "another rank is gone");
        }
      } catch (TimeoutException e) {
        throw new RemoteFailure(failingRank, "another rank is gone");
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new RemoteFailure(rank, "interrupted");
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
