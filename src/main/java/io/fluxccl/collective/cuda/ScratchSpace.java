package io.fluxccl.collective.cuda;

import io.fluxccl.collective.PeerConnections;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.RegisteredMemory;
import java.util.concurrent.CompletableFuture;
import reactor.core.scheduler.Schedulers;

/**
 * Scratch for calls on registered buffers of up to some size, on every rank: sentinel packets for
 * the smaller ones, slots for the others. It lives as long as its set, because graphs that were
 * recorded with it may be launched again.
 */
final class ScratchSpace implements AutoCloseable {
  private static final long LARGEST = 1L << 30;
  private static final long LEAST_PER_BLOCK = 8 << 10;
  private static final long PACKETS_PER_BLOCK = 256 << 10;
  private static final long CACHE_LINE = 64;

  private final long bytes;
  private final PacketArea packets;
  private final long slotBytes;
  private final DeviceBuffer memory;
  private RegisteredMemory[] everybodys;
  private Scratch forPackets;
  private Scratch forSlots;

  private ScratchSpace(PeerConnections peers, long bytes, GpuGrid grid) {
    int n = peers.nRanks();
    long inPackets = Math.min(bytes, PACKETS_PER_BLOCK * grid.maxBlocks());
    this.bytes = bytes;
    this.packets = PacketArea.of(PacketKind.SENTINEL, 0, 1, n, inPackets / n + CACHE_LINE);
    this.slotBytes = Scratch.slotBytes(bytes / n + CACHE_LINE);
    this.memory = peers.communicator().device().allocate(packets.end() + n * slotBytes);
  }

  /**
   * The size of the scratch for a registered buffer, the same on every rank.
   *
   * @return 0 if such a buffer needs none
   */
  static long sizeFor(long bytes, GpuGrid grid) {
    if (bytes < LEAST_PER_BLOCK * grid.maxBlocks()) {
      return 0;
    }
    return bytes >= LARGEST ? LARGEST : Long.highestOneBit(2 * bytes - 1);
  }

  /** Makes scratch on all ranks, each of which calls this. */
  static CompletableFuture<ScratchSpace> create(PeerConnections peers, long bytes, GpuGrid grid) {
    return CompletableFuture.supplyAsync(
            () -> {
              ScratchSpace space = new ScratchSpace(peers, bytes, grid);
              try {
                ReduceSet.fill(space.memory, space.packets.offset(), space.packets.length());
              } catch (RuntimeException | Error e) {
                space.close();
                throw e;
              }
              return space;
            },
            Schedulers.boundedElastic()::schedule)
        .thenCompose(
            space ->
                peers
                    .exchange(space.memory)
                    .thenApply(space::bind)
                    .whenComplete(
                        (done, failure) -> {
                          if (failure != null) {
                            space.close();
                          }
                        }));
  }

  private ScratchSpace bind(RegisteredMemory[] memories) {
    everybodys = memories;
    forPackets = new Scratch(memories, 0, 0, false);
    forSlots = new Scratch(memories, packets.end(), slotBytes, false);
    return this;
  }

  /** For registered buffers of up to so many bytes. */
  long bytes() {
    return bytes;
  }

  /** The sentinel packets, of which {@link #forPackets} is the place. */
  PacketArea packets() {
    return packets;
  }

  Scratch forPackets() {
    return forPackets;
  }

  Scratch forSlots() {
    return forSlots;
  }

  /** Bytes of a slot of {@link #forSlots}. */
  long slotBytes() {
    return slotBytes;
  }

  /** Where this rank reaches the slots of a rank. */
  long slotsOn(int rank) {
    return everybodys[rank].address() + packets.end();
  }

  @Override
  public void close() {
    memory.close();
  }
}
