// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.Aborted;
import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.NonblockingFuture;
import io.fluxccl.ReduceOp;
import io.fluxccl.channel.PacketType;
import io.fluxccl.channel.ProxyChannelDeviceHandle;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.channel.SmChannel;
import io.fluxccl.channel.SmChannelDeviceHandle;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.time.Duration;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The code of docs/3-kernels-and-channels.md. */
@Timeout(60)
class KernelsAndChannelsTest {
  static final HostKernel DOUBLE =
      HostKernel.of(
          "double",
          (thread, args) -> {
            long data = args.get(0, DeviceBuffer.class).address();
            long count = args.getLong(1);
            long begin = count * thread.threadIdx() / thread.blockDim();
            long end = count * (thread.threadIdx() + 1) / thread.blockDim();
            long mine = data + begin;
            thread.reduction().reduce(DataType.INT8, ReduceOp.SUM, mine, mine, mine, end - begin);
          });

  @Test
  void shouldRunAKernel() {
    try (HostDevice device = HostDevice.create();
        DeviceStream stream = device.createStream("work");
        DeviceBuffer buffer = device.allocate(1000)) {
      buffer.upload(999, new byte[] {21});
      stream.launch(DOUBLE, 1, 4, KernelArgs.of(buffer, 1000L));
      stream.completion().join();
      byte[] last = new byte[1];
      buffer.download(999, last);
      assertThat(last[0]).isEqualTo((byte) 42);
    }
  }

  /** A connection, this rank's buffer and the peer's, which both kinds of channel need. */
  record Ends(
      Connection connection, DeviceBuffer buffer, RegisteredMemory mine, RegisteredMemory theirs) {
    static Ends of(Communicator communicator, int peer, Transport transport) {
      DeviceBuffer buffer = communicator.device().allocate(4096);
      RegisteredMemory mine = communicator.registerMemory(buffer, TransportFlags.of(transport));
      NonblockingFuture<Connection> link =
          communicator.connectOnSetup(peer, 0, EndpointConfig.of(transport));
      communicator.sendMemoryOnSetup(mine, peer, 0);
      NonblockingFuture<RegisteredMemory> theirs = communicator.recvMemoryOnSetup(peer, 0);
      communicator.setup().join();
      return new Ends(link.join(), buffer, mine, theirs.join());
    }
  }

  static void give(boolean there) {
    if (!there) {
      throw new Aborted(Aborted.NO_RANK, "gave up: the communicator has failed");
    }
  }

  static void smChannel(Communicator communicator, DeviceStream stream, Ends ends) {
    SmDevice2DeviceSemaphore semaphore =
        new SmDevice2DeviceSemaphore(communicator, ends.connection());
    communicator.setup().join();
    SmChannelDeviceHandle channel =
        new SmChannel(semaphore, ends.theirs(), ends.buffer()).deviceHandle();
    HostKernel kernel =
        HostKernel.of(
            "swap-halves",
            (thread, args) -> {
              channel.put(2048, 0, 2048, thread.threadIdx(), thread.blockDim());
              give(thread.syncThreads());
              if (thread.threadIdx() == 0) {
                channel.signal();
                give(channel.await());
              }
              give(thread.syncThreads());
            });
    stream.launch(kernel, 1, 2, KernelArgs.of(communicator.abortFlag()));
    communicator.inFlight(stream.completion()).join();
    semaphore.close();
  }

  static void packets(Communicator communicator, DeviceStream stream, Ends ends) {
    SmDevice2DeviceSemaphore semaphore =
        new SmDevice2DeviceSemaphore(communicator, ends.connection());
    communicator.setup().join();
    SmChannelDeviceHandle channel =
        new SmChannel(semaphore, ends.theirs(), ends.buffer(), ends.buffer()).deviceHandle();
    int flag = 1;
    HostKernel kernel =
        HostKernel.of(
            "packets",
            (thread, args) -> {
              int id = thread.threadIdx();
              int n = thread.blockDim();
              channel.putPackets(PacketType.LL16, 2048, 0, 64, id, n, flag);
              give(channel.getPackets(PacketType.LL16, 2048, 1024, 64, id, n, flag));
            });
    stream.launch(kernel, 1, 2, KernelArgs.of(communicator.abortFlag()));
    communicator.inFlight(stream.completion()).join();
    semaphore.close();
  }

  static void proxyChannel(Communicator communicator, DeviceStream stream, Ends ends) {
    try (ProxyService service = new ProxyService(communicator)) {
      int semaphore = service.buildAndAddSemaphore(communicator, ends.connection());
      communicator.setup().join();
      int target = service.addMemory(ends.theirs());
      int source = service.addMemory(ends.mine());
      ProxyChannelDeviceHandle channel =
          service.proxyChannel(semaphore, target, source).deviceHandle();
      service.startProxy();
      HostKernel kernel =
          HostKernel.of(
              "swap-by-proxy",
              (thread, args) -> {
                give(channel.putWithSignal(2048, 0, 2048));
                give(channel.await());
                give(channel.flush());
              });
      stream.launch(kernel, 1, 1, KernelArgs.of(communicator.abortFlag()));
      communicator.inFlight(stream.completion()).join();
      communicator.bootstrap().barrier(Deadline.after(Duration.ofSeconds(30))).join();
    }
  }

  private static void check(LocalRank rank, Ends ends, Runnable swap, int at) {
    byte[] mine = new byte[4096];
    mine[0] = (byte) (10 + rank.rank());
    ends.buffer().upload(0, mine);
    rank.awaitAll();
    swap.run();
    byte[] got = new byte[1];
    ends.buffer().download(at, got);
    assertThat(got[0]).isEqualTo((byte) (11 - rank.rank()));
  }

  @Test
  @Ranks(value = 2, leakCheck = false)
  void shouldSwapThroughMappedMemory(LocalRank rank) {
    Communicator communicator = rank.communicator();
    Ends ends = Ends.of(communicator, 1 - rank.rank(), Transport.SHM);
    check(rank, ends, () -> smChannel(communicator, rank.stream(), ends), 2048);
    check(rank, ends, () -> packets(communicator, rank.stream(), ends), 1024);
  }

  @Test
  @Ranks(value = 2, hosts = 2, leakCheck = false)
  void shouldSwapThroughTheProxyBetweenHosts(LocalRank rank) {
    Communicator communicator = rank.communicator();
    Ends ends = Ends.of(communicator, 1 - rank.rank(), Transport.ETHERNET);
    check(rank, ends, () -> proxyChannel(communicator, rank.stream(), ends), 2048);
  }

  @Test
  @Ranks(value = 3, leakCheck = false)
  void shouldGatherAllParts(LocalRank rank) {
    DeviceBuffer buffer = rank.device().allocate(3 * 1000);
    AllGather gather = AllGather.prepare(rank.communicator(), rank.stream(), buffer);
    for (int round = 0; round < 20; round++) {
      buffer.upload(1000L * rank.rank(), filled(round + rank.rank()));
      gather.run().block(Duration.ofSeconds(30));
      for (int part = 0; part < 3; part++) {
        byte[] got = new byte[1000];
        buffer.download(1000L * part, got);
        assertThat(got).isEqualTo(filled(round + part));
      }
    }
  }

  private static byte[] filled(int value) {
    byte[] bytes = new byte[1000];
    Arrays.fill(bytes, (byte) value);
    return bytes;
  }
}
