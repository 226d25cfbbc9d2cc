// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.cuda;

import io.fluxccl.collective.KernelStruct;
import io.fluxccl.collective.PeerConnections;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.RegisteredMemory;
import java.util.concurrent.CompletableFuture;

/**
 * Memory of every rank for calls on registered buffers of up to some size: sentinel packets for the
 * smaller calls, slots for the others. It lives as long as its set, because recorded graphs that
 * use it may be launched again.
 */
final class Scratch implements AutoCloseable {
  private static final long LARGEST = 1L << 30;
  private static final long LEAST_PER_BLOCK = 8 << 10;
  private static final long PACKETS_PER_BLOCK = 256 << 10;
  private static final long CACHE_LINE = 64;

  /** The bytes by which a slot exceeds a slice of a part; ranges are multiples of it. */
  private static final long GRAIN = 512;

  /** The size of the largest registered buffer that this is for. */
  final long bytes;

  /** The area of the sentinel packets, at the place of {@link #forPackets}. */
  final PacketArea packets;

  /** The bytes of a slot of {@link #forSlots}. */
  final long slotBytes;

  private final DeviceBuffer memory;
  private long[] memories = {};
  Handle forPackets;
  Handle forSlots;

  private Scratch(PeerConnections peers, long bytes, GpuGrid grid) {
    int n = peers.nRanks();
    long inPackets = Math.min(bytes, PACKETS_PER_BLOCK * grid.maxBlocks());
    this.bytes = bytes;
    this.packets = PacketArea.of(PacketArea.Kind.SENTINEL, 0, 1, n, inPackets / n + CACHE_LINE);
    this.slotBytes = slotBytes(bytes / n + CACHE_LINE);
    this.memory = peers.communicator().device().allocate(packets.end() + n * slotBytes);
  }

  /**
   * The argument of a kernel with the addresses of the ranks' scratch: the twin of {@code
   * scratch.cuh}, which defines the layout.
   */
  static final class Handle extends KernelStruct {
    private static final int SLOT_BYTES_OFFSET = MappedPeers.MAX_RANKS * Long.BYTES;
    private static final int LENGTH = SLOT_BYTES_OFFSET + 2 * Long.BYTES;

    /**
     * Creates the argument.
     *
     * @param memories addresses of the memories, by rank
     * @param offset from their start
     * @param slotBytes bytes of a slot
     * @param staged whether results go through scratch, too
     */
    Handle(long[] memories, long offset, long slotBytes, boolean staged) {
      super(LENGTH);
      for (long memory : memories) {
        putLong(memory + offset);
      }
      at(SLOT_BYTES_OFFSET).putLong(slotBytes).putInt(staged ? 1 : 0);
    }
  }

  /** Returns the bytes of a slot for slices of a part. */
  static long slotBytes(long slice) {
    return (slice + GRAIN - 1) / GRAIN * GRAIN + GRAIN;
  }

  /**
   * Returns the size of the scratch for a registered buffer, the same on every rank; 0 if such a
   * buffer needs none.
   */
  static long sizeFor(long bytes, GpuGrid grid) {
    if (bytes < LEAST_PER_BLOCK * grid.maxBlocks()) {
      return 0;
    }
    return bytes >= LARGEST ? LARGEST : Long.highestOneBit(2 * bytes - 1);
  }

  /** Allocates and exchanges scratch; every rank calls this. */
  static CompletableFuture<Scratch> create(PeerConnections peers, long bytes, GpuGrid grid) {
    return CompletableFuture.supplyAsync(() -> allocate(peers, bytes, grid), BlockingTasks.EXECUTOR)
        .thenCompose(
            scratch ->
                peers
                    .exchange(scratch.memory)
                    .thenApply(scratch::bind)
                    .whenComplete(PeerConnections.onFailure(scratch::close)));
  }

  private static Scratch allocate(PeerConnections peers, long bytes, GpuGrid grid) {
    Scratch scratch = new Scratch(peers, bytes, grid);
    try {
      scratch.packets.fill(scratch.memory, 0);
    } catch (RuntimeException | Error e) {
      scratch.close();
      throw e;
    }
    return scratch;
  }

  private Scratch bind(RegisteredMemory[] all) {
    memories = MappedPeers.addresses(all, 0);
    forPackets = new Handle(memories, 0, 0, false);
    forSlots = new Handle(memories, packets.end(), slotBytes, false);
    return this;
  }

  /** Returns this rank's address of a rank's slots. */
  long slotsOn(int rank) {
    return memories[rank] + packets.end();
  }

  @Override
  public void close() {
    memory.close();
  }
}
