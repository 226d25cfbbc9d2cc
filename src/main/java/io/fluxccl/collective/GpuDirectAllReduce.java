package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.transport.RegisteredMemory;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * All-reduce on GPUs that map each other's memory: {@link DirectAllReduce}'s twin, with packets for
 * what is small. The size of each run chooses the kernel; which launch it is, the kernels count
 * themselves, so the host keeps nothing between runs.
 */
final class GpuDirectAllReduce implements AllReduceAlgorithm {
  private final PeerMesh mesh;
  private final int nRanks;
  private final MappedState layout;
  private final DeviceBuffer state;
  private final GpuGrid grid;
  private final LaunchWindow window;
  private final Map<MappedKernel, GpuKernels> kernels = new EnumMap<>(MappedKernel.class);
  private DeviceHandle handle;

  // What all buffers' addresses have in common: a multiple of an element's size?
  private long addressBits;

  private GpuDirectAllReduce(PeerMesh mesh, DeviceBuffer buffer) {
    this.mesh = mesh;
    this.nRanks = mesh.nRanks();
    this.grid = GpuGrid.of(mesh.cards(), mesh.communicator().bootstrap());
    this.window = new LaunchWindow(grid.ranksPerGpu());
    CudaDevice gpu = (CudaDevice) mesh.communicator().device();
    for (MappedKernel each : MappedKernel.values()) {
      kernels.put(each, new GpuKernels(gpu, each::kernelName));
    }
    this.layout = MappedState.forBuffer(buffer.size(), nRanks);
    this.state = gpu.allocate(layout.length());
  }

  static CompletableFuture<AllReduceAlgorithm> prepare(PeerMesh mesh, DeviceBuffer buffer) {
    GpuDirectAllReduce direct = new GpuDirectAllReduce(mesh, buffer);
    return mesh.prepare(direct, buffer, direct.state, () -> {}, direct::bind);
  }

  private void bind(RegisteredMemory[] memories, RegisteredMemory[] states) {
    long[] buffers = addresses(memories);
    addressBits = Arrays.stream(buffers).reduce(0, (bits, address) -> bits | address);
    handle =
        layout.handle(mesh.rank(), buffers, addresses(states), mesh.communicator().abortFlag());
  }

  private static long[] addresses(RegisteredMemory[] memories) {
    return Arrays.stream(memories).mapToLong(RegisteredMemory::address).toArray();
  }

  @Override
  public void enqueue(DeviceStream stream, long count, DataType type, ReduceOp op) {
    if (nRanks == 1) {
      // Any combination of one value is that value.
      return;
    }
    GpuKernels.checkAlignment(addressBits, type);
    long bytes = count * type.size();
    MappedKernel kernel = MappedKernel.forSize(bytes);
    KernelArgs args =
        kernel == MappedKernel.ONE_SHOT
            ? KernelArgs.of(handle, count, op.ordinal())
            : KernelArgs.of(
                handle, count, Partition.chunkElements(count, type, nRanks), op.ordinal());
    window.enter(stream);
    stream.launch(
        kernels.get(kernel).of(type),
        kernel.blocks(bytes, nRanks, grid),
        kernel.threads(nRanks),
        args);
  }

  @Override
  public String name() {
    return "direct";
  }

  @Override
  public void close() {
    state.close();
    mesh.close();
  }
}
