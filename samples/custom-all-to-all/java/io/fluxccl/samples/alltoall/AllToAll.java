// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.alltoall;

import io.fluxccl.channel.ProxyChannel;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceHandle;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.samples.common.SampleMappedPeers;
import io.fluxccl.samples.common.Timing;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.transport.RegisteredMemory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;

/**
 * One rank's all-to-alls of one chunk size, in four ways, over memory as all_to_all.cu lays it out.
 */
final class AllToAll implements AutoCloseable {
  private static final int THREADS = 512;
  private static final int SYNCER_LENGTH = 128;
  private static final int BLOCKS_PER_RANK = 16;
  private static final int BLOCKS_PER_RANK_FOR_PACKETS = 4;
  private static final long BYTES_PER_BLOCK = 8192;
  private static final Duration FLUSH_TIMEOUT = Duration.ofSeconds(30);

  private final LocalRank rank;
  private final CudaModule kernels;
  private final int chunk;
  private final DeviceBuffer memory;
  private final DeviceBuffer arrived;
  private final DeviceBuffer syncer;
  private final SampleMappedPeers peers;
  private final ProxyService proxies;
  private final DeviceBuffer proxyChannels;

  AllToAll(LocalRank rank, CudaModule kernels, int chunk, int tag) {
    this.rank = rank;
    this.kernels = kernels;
    this.chunk = chunk;
    int nRanks = rank.nRanks();
    // Input, two outputs, and packets of twice the length for each output.
    this.memory = rank.device().allocate(7L * nRanks * chunk);
    this.arrived = rank.device().allocate((long) nRanks * Integer.BYTES);
    this.syncer = rank.device().allocate(SYNCER_LENGTH);
    this.peers = new SampleMappedPeers(rank.communicator(), memory, tag);
    this.proxies = new ProxyService(rank.communicator());
    this.proxyChannels = DeviceHandle.upload(rank.device(), proxyChannels());
  }

  /** Makes a channel to each other rank, by rank, and starts the proxy. */
  private List<ProxyChannel> proxyChannels() {
    Map<Integer, Integer> semaphores = new TreeMap<>();
    peers
        .connections()
        .forEach(
            (peer, link) ->
                semaphores.put(peer, proxies.buildAndAddSemaphore(rank.communicator(), link)));
    rank.communicator().setup().join();
    int source = proxies.addMemory(peers.local());
    List<ProxyChannel> channels = new ArrayList<>(Collections.nCopies(rank.nRanks(), null));
    semaphores.forEach(
        (peer, semaphore) -> {
          int target = proxies.addMemory(peers.remote().get(peer));
          channels.set(peer, proxies.proxyChannel(semaphore, target, source));
        });
    proxies.startProxy();
    return channels;
  }

  /** The plain version: the host writes every chunk, waits until they are there, and meets all. */
  void byHost(int round) {
    CompletableFuture<?>[] flushes =
        peers.connections().entrySet().stream()
            .map(
                link -> {
                  RegisteredMemory theirs = peers.remote().get(link.getKey());
                  return link.getValue()
                      .write(
                          theirs,
                          output(round, rank.rank()),
                          peers.local(),
                          input(link.getKey()),
                          chunk)
                      .flush(FLUSH_TIMEOUT);
                })
            .toArray(CompletableFuture<?>[]::new);
    rank.stream().copy(memory, output(round, rank.rank()), memory, input(rank.rank()), chunk);
    CompletableFuture.allOf(flushes).join();
    Timing.finish(rank);
    Timing.meet(rank);
  }

  /** The kernel that puts and signals. */
  void byPuts(int round) {
    rank.stream()
        .launch(
            kernels.kernel("allToAll"),
            rank.nRanks() * blocksPerRank(BLOCKS_PER_RANK),
            THREADS,
            KernelArgs.of(
                peers.channels(),
                rank.rank(),
                rank.nRanks(),
                memory,
                arrived,
                (long) chunk,
                round));
  }

  /** The kernel that asks the proxies. */
  void byProxies(int round) {
    rank.stream()
        .launch(
            kernels.kernel("allToAllByProxies"),
            rank.nRanks() - 1,
            THREADS,
            KernelArgs.of(
                proxyChannels, syncer, rank.rank(), rank.nRanks(), memory, (long) chunk, round));
  }

  /** The kernel that sends packets; rounds grow, and begin above 0. */
  void byPackets(int round) {
    rank.stream()
        .launch(
            kernels.kernel("allToAllPackets"),
            rank.nRanks() * blocksPerRank(BLOCKS_PER_RANK_FOR_PACKETS),
            THREADS,
            KernelArgs.of(
                peers.channels(), rank.rank(), rank.nRanks(), memory, (long) chunk, round));
  }

  private int blocksPerRank(int most) {
    return (int) Math.max(1, Math.min(most, chunk / BYTES_PER_BLOCK));
  }

  /**
   * Runs one way once and checks every received word.
   *
   * @throws IllegalStateException if one is wrong
   */
  void check(String way, int round, Timing.Step step) {
    ByteBuffer words =
        ByteBuffer.allocateDirect(rank.nRanks() * chunk).order(ByteOrder.LITTLE_ENDIAN);
    for (int to = 0; to < rank.nRanks(); to++) {
      for (int i = 0; i < chunk / Integer.BYTES; i++) {
        words.putInt(word(rank.rank(), to, round, i));
      }
    }
    memory.upload(0, words.flip());
    step.run(round);
    Timing.finish(rank);
    words.clear();
    memory.download(output(round, 0), words);
    words.flip();
    for (int from = 0; from < rank.nRanks(); from++) {
      for (int i = 0; i < chunk / Integer.BYTES; i++) {
        int actual = words.getInt();
        if (actual != word(from, rank.rank(), round, i)) {
          throw new IllegalStateException(
              way + ": rank " + rank.rank() + ", word " + i + " from rank " + from + " is wrong");
        }
      }
    }
    Timing.meet(rank);
  }

  private static int word(int from, int to, int round, int index) {
    return index * 0x9e3779b1 ^ from * 0x01000193 ^ to * 0x5bd1e995 ^ round * 0x27d4eb2f;
  }

  private long input(int to) {
    return (long) to * chunk;
  }

  private long output(int round, int from) {
    return ((1L + (round & 1)) * rank.nRanks() + from) * chunk;
  }

  @Override
  public void close() {
    proxies.close();
    proxyChannels.close();
    peers.close();
    syncer.close();
    arrived.close();
    memory.close();
  }
}
