package io.fluxccl.cli;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.ReduceOp;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;

/** Ranks in plain memory that reduce in exact arithmetic, and that can be told to misbehave. */
final class FakeBackend implements PerfBackend {
  private final AtomicInteger open = new AtomicInteger();
  private long[] corrupted = {};
  private int corruptedRank = -1;
  private boolean overrunning;
  private int failingRank = -1;
  private int operationsBeforeFailure;
  private int hangingRank = -1;

  /** Makes these elements (one byte of each) wrong on one rank after every all-reduce. */
  FakeBackend corrupting(int rank, long... elements) {
    corruptedRank = rank;
    corrupted = elements;
    return this;
  }

  /** Makes every rank write one byte past the end. */
  FakeBackend overrunning() {
    overrunning = true;
    return this;
  }

  /** Makes a rank fail once it has done so many all-reduces. */
  FakeBackend failing(int rank, int afterOperations) {
    failingRank = rank;
    operationsBeforeFailure = afterOperations;
    return this;
  }

  /** Makes a rank never complete. */
  FakeBackend hanging(int rank) {
    hangingRank = rank;
    return this;
  }

  /** How many ranks were opened and not closed. */
  int openRanks() {
    return open.get();
  }

  @Override
  public PerfRank fromEnvironment(RankOptions options) {
    throw new UnsupportedOperationException("these ranks share one JVM");
  }

  @Override
  public InProcessRanks inProcess(int nRanks, RankOptions options) {
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
    final CyclicBarrier barrier;
    final ByteBuffer[] buffers;
    final byte[][] messages;

    Job(int nRanks) {
      barrier = new CyclicBarrier(nRanks);
      buffers = new ByteBuffer[nRanks];
      messages = new byte[nRanks][];
    }
  }

  private final class FakeRank implements PerfRank {
    private final Job job;
    private final int rank;
    private final List<PerfPlan.Case> enqueued = new ArrayList<>();
    private int operations;
    private boolean closed;

    FakeRank(Job job, int rank) {
      this.job = job;
      this.rank = rank;
      open.incrementAndGet();
    }

    @Override
    public int rank() {
      return rank;
    }

    @Override
    public int nRanks() {
      return job.buffers.length;
    }

    @Override
    public String device() {
      return "fake device " + rank;
    }

    @Override
    public void prepare(long maxBytes) {
      job.buffers[rank] = ByteBuffer.allocate((int) maxBytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    @Override
    public void upload(long offset, ByteBuffer source) {
      int length = source.remaining();
      job.buffers[rank].put((int) offset, source, source.position(), length);
      source.position(source.limit());
    }

    @Override
    public void download(long offset, ByteBuffer target) {
      target.put(job.buffers[rank].slice((int) offset, target.remaining()));
    }

    @Override
    public void enqueueAllReduce(long count, DataType type, ReduceOp op) {
      enqueued.add(new PerfPlan.Case(count, type, op));
    }

    @Override
    public CompletableFuture<Void> completion(Duration limit) {
      if (rank == hangingRank) {
        return new CompletableFuture<>();
      }
      try {
        for (PerfPlan.Case next : enqueued) {
          if (rank == failingRank && operations++ == operationsBeforeFailure) {
            job.barrier.reset();
            throw new TransportFailure(rank, "the fake cable was cut");
          }
          reduce(next);
        }
        return CompletableFuture.completedFuture(null);
      } catch (RuntimeException e) {
        return CompletableFuture.failedFuture(e);
      } finally {
        enqueued.clear();
      }
    }

    private void reduce(PerfPlan.Case next) {
      meet();
      ByteBuffer result =
          ByteBuffer.allocate((int) next.bytes() + 1).order(ByteOrder.LITTLE_ENDIAN);
      for (int i = 0; i < next.count(); i++) {
        int index = i;
        List<Long> values =
            Arrays.stream(job.buffers)
                .map(buffer -> ExactReduction.read(buffer, index, next.type()))
                .toList();
        ExactReduction.write(
            result, i, next.type(), ExactReduction.reduce(values, next.type(), next.op()));
      }
      for (long element : rank == corruptedRank ? corrupted : new long[0]) {
        int at = (int) element * next.type().size();
        result.put(at, (byte) (result.get(at) ^ 1));
      }
      meet();
      result.limit((int) next.bytes() + (overrunning ? 1 : 0));
      job.buffers[rank].put(0, result, 0, result.limit());
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
        job.barrier.await(10, TimeUnit.SECONDS);
      } catch (BrokenBarrierException | TimeoutException e) {
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
}
