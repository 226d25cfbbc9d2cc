package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.channel.ProxyChannelDescriptor;
import io.fluxccl.channel.SmChannelDescriptor;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.proxy.ChannelTrigger;
import io.fluxccl.transport.RegisteredMemory;
import java.nio.ByteOrder;
import java.util.concurrent.CompletableFuture;
import org.agrona.MutableDirectBuffer;

/**
 * All-pairs all-reduce over channels on GPUs, in one kernel: {@link ChannelAllReduce}'s twin, told
 * of in all_reduce_channels.cuh. Its blocks are the lanes of the channels.
 */
final class GpuChannelAllReduce implements AllReduceAlgorithm {
  /** Sockets are full with fewer; semaphores cost a message each at set-up. */
  private static final int MAX_LANES = 8;

  /** A smaller part of a chunk is not worth a lane. */
  private static final int LEAST_PART = 32 << 10;

  private static final long MAX_PROXIED = 1L << 32;
  private static final int HANDLE_LENGTH = 48;

  private final PeerMesh mesh;
  private final int nRanks;
  private final DeviceBuffer buffer;
  private final DeviceBuffer memory;
  private final DeviceBuffer scratch;
  private final long slotLength;
  private final GpuGrid grid;
  private final int lanes;
  private final GpuKernels kernels;
  private final LaunchWindow window;
  private final PeerChannels channels;
  private final DeviceBuffer smChannels;
  private final DeviceBuffer proxyChannels;
  private volatile boolean ready;

  private GpuChannelAllReduce(PeerMesh mesh, DeviceBuffer buffer) {
    this.mesh = mesh;
    this.nRanks = mesh.nRanks();
    this.buffer = buffer;
    this.grid = GpuGrid.of(mesh.cards(), mesh.communicator().bootstrap());
    this.slotLength = Partition.maxChunkBytes(buffer.size(), nRanks);
    checkLimits();
    CudaDevice gpu = (CudaDevice) mesh.communicator().device();
    this.kernels = new GpuKernels(gpu, type -> "fluxccl_all_reduce_channels_" + type.label());
    this.lanes = lanesFor(buffer.size());
    this.window = new LaunchWindow(grid.ranksPerGpu());
    this.channels = new PeerChannels(mesh, lanes);
    try {
      long scratchLength = slotLength * Math.max(1, nRanks - 1);
      long smLength = channelCount() * (long) SmChannelDescriptor.LENGTH;
      long proxyLength = channelCount() * (long) ProxyChannelDescriptor.LENGTH;
      this.memory = gpu.allocate(scratchLength + smLength + proxyLength);
      this.scratch = memory.slice(0, scratchLength);
      this.smChannels = memory.slice(scratchLength, smLength);
      this.proxyChannels = memory.slice(scratchLength + smLength, proxyLength);
    } catch (RuntimeException e) {
      channels.close();
      throw e;
    }
  }

  static CompletableFuture<AllReduceAlgorithm> prepare(PeerMesh mesh, DeviceBuffer buffer) {
    GpuChannelAllReduce all = new GpuChannelAllReduce(mesh, buffer);
    return mesh.prepare(all, buffer, all.scratch, all.channels::addSemaphores, all::bind);
  }

  private void checkLimits() {
    if (nRanks > GpuGrid.MAX_THREADS) {
      throw new InvalidUsage(
          "allReduce of " + nRanks + " ranks on GPUs; at most " + GpuGrid.MAX_THREADS);
    }
    if (!mesh.allMapped() && slotLength * nRanks > MAX_PROXIED) {
      throw new InvalidUsage(
          "allReduce: a buffer of "
              + buffer.size()
              + " bytes between hosts; proxy channels reach the first "
              + MAX_PROXIED
              + ", so reduce it in parts");
    }
  }

  /** As many lanes as the largest run is worth, and semaphores there may be. */
  private int lanesFor(long bytes) {
    int bySemaphores = Math.max(1, ChannelTrigger.MAX_IDS / nRanks);
    return Math.min(lanesOfRun(bytes), bySemaphores);
  }

  private int lanesOfRun(long bytes) {
    return Math.min(MAX_LANES, grid.blocksFor(bytes / nRanks, LEAST_PART));
  }

  private int channelCount() {
    return lanes * nRanks * 2;
  }

  private void bind(RegisteredMemory[] memories, RegisteredMemory[] scratches) {
    channels.bind(buffer, memories, scratches);
    DeviceHandles.fill(
        smChannels, SmChannelDescriptor.LENGTH, channelCount(), this::writeSmChannel);
    DeviceHandles.fill(
        proxyChannels, ProxyChannelDescriptor.LENGTH, channelCount(), this::writeProxyChannel);
    ready = true;
  }

  private void writeSmChannel(MutableDirectBuffer out, int offset, int index) {
    int peer = index / 2 % nRanks;
    int lane = index / 2 / nRanks;
    if (channels.isMapped(peer)) {
      (index % 2 == 0 ? channels.smToScratch(lane, peer) : channels.smToBuffer(lane, peer))
          .writeHandle(out, offset);
    }
  }

  private void writeProxyChannel(MutableDirectBuffer out, int offset, int index) {
    int peer = index / 2 % nRanks;
    int lane = index / 2 / nRanks;
    if (channels.isProxied(peer)) {
      (index % 2 == 0 ? channels.proxyToScratch(lane, peer) : channels.proxyToBuffer(lane, peer))
          .writeHandle(out, offset);
    }
  }

  /** {@code ChannelRanks} of all_reduce_channels.cuh. */
  private final DeviceHandle handle =
      new DeviceHandle() {
        @Override
        public int handleLength() {
          return HANDLE_LENGTH;
        }

        @Override
        public void writeHandle(MutableDirectBuffer target, int offset) {
          target.putLong(offset, buffer.address(), ByteOrder.LITTLE_ENDIAN);
          target.putLong(offset + 8, scratch.address(), ByteOrder.LITTLE_ENDIAN);
          target.putLong(offset + 16, slotLength, ByteOrder.LITTLE_ENDIAN);
          target.putLong(offset + 24, smChannels.address(), ByteOrder.LITTLE_ENDIAN);
          target.putLong(offset + 32, proxyChannels.address(), ByteOrder.LITTLE_ENDIAN);
          target.putInt(offset + 40, mesh.rank(), ByteOrder.LITTLE_ENDIAN);
          target.putInt(offset + 44, nRanks, ByteOrder.LITTLE_ENDIAN);
        }
      };

  @Override
  public void enqueue(DeviceStream stream, long count, DataType type, ReduceOp op) {
    if (nRanks == 1) {
      // Any combination of one value is that value.
      return;
    }
    GpuKernels.checkAlignment(buffer.address(), type);
    window.enter(stream);
    stream.launch(
        kernels.of(type),
        Math.min(lanes, lanesOfRun(count * type.size())),
        GpuGrid.MAX_THREADS,
        KernelArgs.of(handle, count, Partition.chunkElements(count, type, nRanks), op.ordinal()));
  }

  @Override
  public String name() {
    return "all-pairs";
  }

  @Override
  public void close() {
    try {
      channels.close();
      memory.close();
    } finally {
      if (ready && mesh.communicator().failure() == null) {
        mesh.leave();
      } else {
        mesh.close();
      }
    }
  }
}
