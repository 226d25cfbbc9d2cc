package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.channel.ProxyChannelDeviceHandle;
import io.fluxccl.channel.SmChannelDeviceHandle;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.HostReduction;
import io.fluxccl.device.host.KernelThread;
import io.fluxccl.transport.RegisteredMemory;
import java.util.concurrent.CompletableFuture;

/**
 * All-pairs all-reduce over channels, for ranks of which some can't map each other's memory: SM
 * channels inside a host, proxy channels between hosts.
 *
 * <pre>
 *   put chunk[j] into this rank's slot of peer j's scratch, signal      for every peer j
 *   wait for all; reduce chunk[rank] and the slots, in rank order
 *   put chunk[rank] into every peer's buffer, signal; wait for all; flush
 * </pre>
 *
 * <p>No barrier is needed between runs: a peer's slot is written again only after that peer's
 * second signal, which it sends behind reading the slot. The flush at the end is for the source:
 * the caller may overwrite the buffer then.
 */
final class ChannelAllReduce implements AllReduceAlgorithm {
  private final PeerMesh mesh;
  private final int rank;
  private final int nRanks;
  private final DeviceBuffer buffer;
  private final DeviceBuffer scratch;
  private final long slotLength;
  private final PeerChannels channels;
  private final ChannelPair[] peers;
  private final HostReduction reduction = new HostReduction();
  private final long[] sources;
  private final long[] target = new long[1];
  private final long[] flushes;
  private volatile boolean ready;
  private volatile boolean released;
  private final HostKernel kernel = HostKernel.of("all-reduce-channels", this::run);

  /** The channels to one peer, over buffer and over scratch, of whichever kind. */
  private interface ChannelPair {
    void putToScratch(long targetOffset, long sourceOffset, long size);

    /** Gives what to wait for until the source may be overwritten. */
    long putToBuffer(long offset, long size);

    boolean await();

    boolean awaitFlush(long flush);
  }

  private ChannelAllReduce(PeerMesh mesh, DeviceBuffer buffer) {
    this.mesh = mesh;
    this.rank = mesh.rank();
    this.nRanks = mesh.nRanks();
    this.buffer = buffer;
    this.slotLength = Partition.maxChunkBytes(buffer.size(), nRanks);
    this.scratch = mesh.communicator().device().allocate(slotLength * (nRanks - 1));
    this.channels = new PeerChannels(mesh, 1);
    this.peers = new ChannelPair[nRanks];
    this.sources = new long[nRanks];
    this.flushes = new long[nRanks];
  }

  static CompletableFuture<AllReduceAlgorithm> prepare(PeerMesh mesh, DeviceBuffer buffer) {
    ChannelAllReduce all = new ChannelAllReduce(mesh, buffer);
    return mesh.prepare(all, buffer, all.scratch, all.channels::addSemaphores, all::bind);
  }

  private void bind(RegisteredMemory[] memories, RegisteredMemory[] scratches) {
    channels.bind(buffer, memories, scratches);
    for (int peer = 0; peer < nRanks; peer++) {
      if (peer != rank) {
        peers[peer] = channels.isMapped(peer) ? smPair(peer) : proxyPair(peer);
      }
    }
    ready = true;
  }

  private ChannelPair smPair(int peer) {
    SmChannelDeviceHandle toBuffer = channels.smToBuffer(0, peer).deviceHandle();
    SmChannelDeviceHandle toScratch = channels.smToScratch(0, peer).deviceHandle();
    return new ChannelPair() {
      @Override
      public void putToScratch(long targetOffset, long sourceOffset, long size) {
        toScratch.put(targetOffset, sourceOffset, size, 0, 1);
        toScratch.signal();
      }

      @Override
      public long putToBuffer(long offset, long size) {
        toBuffer.put(offset, offset, size, 0, 1);
        toBuffer.signal();
        return 0;
      }

      @Override
      public boolean await() {
        return toBuffer.await();
      }

      @Override
      public boolean awaitFlush(long flush) {
        return true;
      }
    };
  }

  private ChannelPair proxyPair(int peer) {
    ProxyChannelDeviceHandle toBuffer = channels.proxyToBuffer(0, peer).deviceHandle();
    ProxyChannelDeviceHandle toScratch = channels.proxyToScratch(0, peer).deviceHandle();
    return new ChannelPair() {
      @Override
      public void putToScratch(long targetOffset, long sourceOffset, long size) {
        toScratch.putWithSignal(targetOffset, sourceOffset, size);
      }

      @Override
      public long putToBuffer(long offset, long size) {
        return toBuffer.putWithSignalAndRequestFlush(offset, offset, size);
      }

      @Override
      public boolean await() {
        return toBuffer.await();
      }

      @Override
      public boolean awaitFlush(long flush) {
        return toBuffer.awaitFlush(flush);
      }
    };
  }

  @Override
  public void enqueue(DeviceStream stream, long count, DataType type, ReduceOp op) {
    stream.launch(kernel, 1, 1, KernelArgs.of(count, type, op));
  }

  @Override
  public String name() {
    return "all-pairs";
  }

  private void run(KernelThread thread, KernelArgs args) {
    // As in DirectAllReduce: the memory may be gone if this was enqueued while somebody closed.
    if (released || mesh.communicator().failure() != null) {
      return;
    }
    long count = args.getLong(0);
    DataType type = args.get(1, DataType.class);
    ReduceOp op = args.get(2, ReduceOp.class);
    long size = type.size();
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      long begin = Partition.begin(count, type, nRanks, peer);
      long length = Partition.begin(count, type, nRanks, peer + 1) - begin;
      peers[peer].putToScratch(slot(rank, peer), begin * size, length * size);
    }
    if (!awaitAll()) {
      return;
    }
    long begin = Partition.begin(count, type, nRanks, rank);
    long length = Partition.begin(count, type, nRanks, rank + 1) - begin;
    for (int peer = 0; peer < nRanks; peer++) {
      sources[peer] = scratch.address() + slot(peer, rank);
    }
    target[0] = buffer.address() + begin * size;
    sources[rank] = target[0];
    reduction.reduce(type, op, sources, nRanks, target, 1, length, nRanks);
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      flushes[peer] = peers[peer].putToBuffer(begin * size, length * size);
    }
    if (!awaitAll()) {
      return;
    }
    for (int i = 1; i < nRanks; i++) {
      int peer = (rank + i) % nRanks;
      if (!peers[peer].awaitFlush(flushes[peer])) {
        return;
      }
    }
  }

  /** Where a rank's part lies in the scratch memory of another, which has no slot for itself. */
  private long slot(int from, int at) {
    return (from < at ? from : from - 1) * slotLength;
  }

  private boolean awaitAll() {
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
    try {
      channels.close();
      scratch.close();
    } finally {
      if (ready && mesh.communicator().failure() == null) {
        mesh.leave();
      } else {
        mesh.close();
      }
    }
  }
}
