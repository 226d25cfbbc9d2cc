package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.HostReduction;
import io.fluxccl.device.host.KernelThread;
import io.fluxccl.device.host.SpinWait;
import io.fluxccl.semaphore.SemaphoreDescriptor;
import io.fluxccl.semaphore.SemaphoreDeviceHandle;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.transport.RegisteredMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * All-reduce on mapped memory, in the kernel alone. Every rank reduces the chunk that bears its
 * number straight out of everybody's buffer into everybody's buffer: no scratch, one pass, the same
 * bits everywhere. Nobody else reads or writes that chunk meanwhile, so it works in place.
 *
 * <pre>
 *   signal all, wait for all      everybody's input is there
 *   reduce chunk[rank] of all buffers, in rank order, into all buffers
 *   signal all, wait for all      everybody's output is there
 * </pre>
 *
 * <p>Small inputs go in one shot: each rank copies its whole input to a slot of every peer, raises
 * the slot's epoch, and reduces what came. Two sets of slots alternate: who writes a set again has
 * seen every peer finish with it, because the peers' next epoch came after.
 */
final class DirectAllReduce implements AllReduceAlgorithm {
  /** Up to so many bytes in one shot: one hand-over instead of two, at the price of n copies. */
  static final int ONE_SHOT_LIMIT = 8 * 1024;

  private static final int CACHE_LINE = 64;
  private static final int SLOT_LENGTH = CACHE_LINE + ONE_SHOT_LIMIT;

  private final PeerMesh mesh;
  private final int rank;
  private final int nRanks;
  private final int threads;
  private final DeviceBuffer state;
  private final DeviceBuffer slots;
  private final DeviceBuffer handles;
  private final List<SmDevice2DeviceSemaphore> semaphores = new ArrayList<>();
  private final SemaphoreDeviceHandle[] peers;
  private final long[] buffers;
  private final long[] slotsOf;
  private final Worker[] workers;
  private final HostKernel kernel = HostKernel.of("all-reduce-direct", this::run);
  private long epoch;

  // Written by thread 0 before syncThreads(), read by all threads behind it.
  private boolean gaveUp;
  private volatile boolean released;

  private DirectAllReduce(PeerMesh mesh, int threads) {
    this.mesh = mesh;
    this.rank = mesh.rank();
    this.nRanks = mesh.nRanks();
    this.threads = threads;
    long slotsLength = 2L * nRanks * SLOT_LENGTH;
    long handlesLength = (long) nRanks * SemaphoreDescriptor.HANDLE_LENGTH;
    this.state = mesh.communicator().device().allocate(slotsLength + handlesLength);
    this.slots = state.slice(0, slotsLength);
    this.handles = state.slice(slotsLength, handlesLength);
    this.peers = new SemaphoreDeviceHandle[nRanks];
    this.buffers = new long[nRanks];
    this.slotsOf = new long[nRanks];
    this.workers = new Worker[threads];
    for (int i = 0; i < threads; i++) {
      workers[i] = new Worker(nRanks);
    }
  }

  /** What one kernel thread needs for itself, made once. */
  private static final class Worker {
    final HostReduction reduction = new HostReduction();
    final long[] sources;
    final long[] targets;

    Worker(int nRanks) {
      sources = new long[nRanks];
      targets = new long[nRanks];
    }
  }

  static CompletableFuture<AllReduceAlgorithm> prepare(
      PeerMesh mesh, DeviceBuffer buffer, int threads) {
    DirectAllReduce direct = new DirectAllReduce(mesh, threads);
    return mesh.prepare(direct, buffer, direct.slots, direct::addSemaphores, direct::bind);
  }

  private void addSemaphores() {
    for (int peer = 0; peer < nRanks; peer++) {
      if (peer != rank) {
        semaphores.add(new SmDevice2DeviceSemaphore(mesh.communicator(), mesh.connection(peer)));
      }
    }
  }

  private void bind(RegisteredMemory[] memories, RegisteredMemory[] slotMemories) {
    DeviceHandles.fill(
        handles,
        SemaphoreDescriptor.HANDLE_LENGTH,
        semaphores.size(),
        (out, offset, i) -> semaphores.get(i).writeHandle(out, offset));
    for (int peer = 0, i = 0; peer < nRanks; peer++) {
      buffers[peer] = memories[peer].address();
      slotsOf[peer] = slotMemories[peer].address();
      if (peer != rank) {
        peers[peer] =
            new SemaphoreDeviceHandle()
                .wrap(handles.address() + (long) SemaphoreDescriptor.HANDLE_LENGTH * i++);
      }
    }
  }

  @Override
  public void enqueue(DeviceStream stream, long count, DataType type, ReduceOp op) {
    boolean small = count * type.size() <= ONE_SHOT_LIMIT;
    stream.launch(kernel, 1, small ? 1 : threads, KernelArgs.of(count, type, op));
  }

  @Override
  public String name() {
    return "direct";
  }

  private void run(KernelThread thread, KernelArgs args) {
    // The memory may be gone if this was enqueued while somebody closed; whoever sees neither of
    // these was enqueued before, and is waited for.
    if (released || mesh.communicator().failure() != null) {
      return;
    }
    long count = args.getLong(0);
    DataType type = args.get(1, DataType.class);
    ReduceOp op = args.get(2, ReduceOp.class);
    if (count * type.size() <= ONE_SHOT_LIMIT) {
      oneShot(count, type, op);
    } else {
      twoPhase(thread, count, type, op);
    }
  }

  private void oneShot(long count, DataType type, ReduceOp op) {
    epoch++;
    long bytes = count * type.size();
    long set = (epoch & 1) * nRanks;
    long mySlot = (set + rank) * SLOT_LENGTH;
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      HostMemory.copy(slotsOf[peer] + mySlot + CACHE_LINE, buffers[rank], bytes);
      // Pairs with the acquire in the peer's awaitAtLeast below.
      HostMemory.putLongRelease(slotsOf[peer] + mySlot, epoch);
    }
    Worker worker = workers[0];
    for (int peer = 0; peer < nRanks; peer++) {
      worker.sources[peer] = slotsOf[rank] + (set + peer) * SLOT_LENGTH + CACHE_LINE;
    }
    worker.sources[rank] = buffers[rank];
    worker.targets[0] = buffers[rank];
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      SemaphoreDeviceHandle handle = peers[peer];
      if (!SpinWait.awaitAtLeast(
          slotsOf[rank] + (set + peer) * SLOT_LENGTH, epoch, handle.abortAddress(), peer)) {
        return;
      }
    }
    worker.reduction.reduce(type, op, worker.sources, nRanks, worker.targets, 1, count, nRanks);
  }

  private void twoPhase(KernelThread thread, long count, DataType type, ReduceOp op) {
    if (thread.threadIdx() == 0) {
      gaveUp = !meet();
    }
    // Who gave up must not touch the peers' buffers: they may be in use for something else by now.
    if (!thread.syncThreads() || gaveUp) {
      return;
    }
    long begin = Partition.begin(count, type, nRanks, rank);
    long length = Partition.begin(count, type, nRanks, rank + 1) - begin;
    long from = begin + Partition.begin(length, type, thread.blockDim(), thread.threadIdx());
    long to = begin + Partition.begin(length, type, thread.blockDim(), thread.threadIdx() + 1);
    Worker worker = workers[thread.threadIdx()];
    for (int i = 0; i < nRanks; i++) {
      worker.sources[i] = buffers[i] + from * type.size();
      worker.targets[i] = worker.sources[i];
    }
    worker.reduction.reduce(
        type, op, worker.sources, nRanks, worker.targets, nRanks, to - from, nRanks);
    if (thread.syncThreads() && thread.threadIdx() == 0) {
      meet();
    }
  }

  /**
   * A barrier of all ranks' kernels; what each wrote before it, all see after it. False when the
   * communicator was aborted.
   */
  private boolean meet() {
    for (int i = 1; i < nRanks; i++) {
      peers[(rank + i) % nRanks].signal();
    }
    for (int i = 1; i < nRanks; i++) {
      if (!peers[(rank + i) % nRanks].await()) {
        return false;
      }
    }
    return true;
  }

  @Override
  public void close() {
    released = true;
    semaphores.forEach(SmDevice2DeviceSemaphore::close);
    state.close();
    mesh.close();
  }
}
