// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.Deadline;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.collective.KernelStruct;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.group.RankGroup;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Memory through which GPUs of one host exchange rows. A kernel adds them where it needs the sum
 * ({@code Peers} of llama.cu), and so replaces an all-reduce and the kernels around it. For few
 * rows, because every rank receives the rows of all others.
 */
final class PeerSums implements AutoCloseable {
  /** System property: {@code false} leaves all sums to all-reduces. */
  static final String PROPERTY = "inference.peerSums";

  private static final int MOST_RANKS = 8;

  /** Rows that a rank gives, to all others together. */
  private static final int MOST_ROWS = 64;

  private static final int PACKET_BYTES = 16;
  private static final int ELEMENTS_OF_PACKET = 4;
  private static final int SETS = 2;
  private static final int TAG = 20;

  private final int rows;
  private final KernelStruct struct;

  /** The last one that was opened comes first. */
  private final List<Runnable> closing = new ArrayList<>();

  /** Returns whether the ranks of a group can share memory like that. */
  static boolean areFor(RankGroup group) {
    int nRanks = group.nRanks();
    return nRanks > 1
        && nRanks <= MOST_RANKS
        && group.bootstrap().nRanksPerNode() == nRanks
        && !"false".equals(System.getProperty(PROPERTY));
  }

  /** Sets the sums up with all ranks of the group. Blocks until each rank has called this. */
  PeerSums(RankGroup group, int maxRows, int width) {
    Communicator communicator = group.communicator();
    int nRanks = group.nRanks();
    int rank = group.rank();
    rows = Math.min(maxRows, MOST_ROWS / (nRanks - 1));
    int fours = width / ELEMENTS_OF_PACKET;
    long bytes = (long) SETS * nRanks * rows * fours * PACKET_BYTES;
    DeviceBuffer counts = allocate(group, rows * Integer.BYTES);
    DeviceBuffer area = allocate(group, SETS * nRanks * rows * fours * PACKET_BYTES);
    struct = new KernelStruct(MOST_RANKS * Long.BYTES + 2 * Long.BYTES + 6 * Integer.BYTES);
    struct.at(MOST_RANKS * Long.BYTES).putLong(counts.address());
    struct.putLong(communicator.abortFlag().deviceAddress());
    struct.putInt(rank).putInt(nRanks).putInt(rows).putInt(fours);
    try {
      struct.putInt(share((CudaDevice) group.device(), communicator) ? 1 : 0);
      map(communicator, area);
    } catch (RuntimeException | Error e) {
      close();
      throw e;
    }
  }

  private DeviceBuffer allocate(RankGroup group, int bytes) {
    DeviceBuffer buffer = group.device().allocate(bytes);
    closing.add(0, buffer::close);
    buffer.upload(0, new byte[bytes]);
    return buffer;
  }

  /**
   * Returns whether two ranks have the same GPU, when all are there: others may still load their
   * weights, which may take longer than the limit of a set-up.
   */
  private static boolean share(CudaDevice device, Communicator communicator) {
    byte[] mine = device.pciBusId().getBytes(StandardCharsets.US_ASCII);
    List<byte[]> all =
        communicator.inFlight(communicator.bootstrap().allGather(mine, Deadline.never())).join();
    return all.stream().map(ByteBuffer::wrap).distinct().count() < all.size();
  }

  private void map(Communicator communicator, DeviceBuffer area) {
    int rank = communicator.bootstrap().rank();
    RegisteredMemory mine =
        communicator.registerMemory(area, TransportFlags.of(Transport.CUDA_IPC));
    closing.add(0, mine::close);
    Map<Integer, NonblockingFuture<Connection>> links = new HashMap<>();
    Map<Integer, NonblockingFuture<RegisteredMemory>> memories = new HashMap<>();
    EndpointConfig config = EndpointConfig.of(Transport.CUDA_IPC);
    for (int peer = 0; peer < communicator.bootstrap().nRanks(); peer++) {
      if (peer != rank) {
        links.put(peer, communicator.connectOnSetup(peer, TAG, config));
        communicator.sendMemoryOnSetup(mine, peer, TAG);
        memories.put(peer, communicator.recvMemoryOnSetup(peer, TAG));
      }
    }
    communicator.setup().join();
    struct.at(rank * Long.BYTES).putLong(area.address());
    links.values().forEach(link -> closing.add(0, link.join()::close));
    memories.forEach(
        (peer, memory) -> {
          closing.add(0, memory.join()::close);
          struct.at(peer * Long.BYTES).putLong(memory.join().address());
        });
  }

  /** Returns for how many rows there is room. */
  int rows() {
    return rows;
  }

  /** Returns the {@code Peers} of this rank. */
  KernelStruct struct() {
    return struct;
  }

  /** No kernel may use it any more. */
  @Override
  public void close() {
    closing.forEach(Runnable::run);
  }
}
