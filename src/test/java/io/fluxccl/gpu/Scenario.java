// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import static io.fluxccl.transport.Transport.CUDA_IPC;
import static io.fluxccl.transport.Transport.ETHERNET;

import io.fluxccl.channel.PacketType;
import io.fluxccl.transport.Transport;

/**
 * Scenarios of two ranks, on one GPU or two, in one process or two. Each name states the expected
 * behavior.
 */
enum Scenario implements GpuRanks.Body {
  SM_CHANNELS_PLAY_PING_PONG(SmChannelScenarios::playPingPong),
  SM_CHANNELS_PLAY_PING_PONG_BY_WHOLE_GRIDS(SmChannelScenarios::playPingPongByGrids),
  SM_CHANNELS_GET_WHAT_THE_PEER_HAS(SmChannelScenarios::getWhatThePeerHas),
  SM_CHANNELS_NEVER_SHOW_A_SIGNAL_BEFORE_ITS_DATA(SmChannelScenarios::keepOrder),
  SM_CHANNELS_PUT_ANY_RANGE(rank -> SmChannelScenarios.moveAnyRange(rank, false)),
  SM_CHANNELS_GET_ANY_RANGE(rank -> SmChannelScenarios.moveAnyRange(rank, true)),
  SM_CHANNELS_LEAVE_THE_REMAINDER_UNLESS_ASKED(SmChannelScenarios::leaveTheRemainder),
  SM_CHANNELS_EXCHANGE_LL8_PACKETS(
      rank -> SmChannelScenarios.exchangePackets(rank, PacketType.LL8)),
  SM_CHANNELS_EXCHANGE_LL16_PACKETS(
      rank -> SmChannelScenarios.exchangePackets(rank, PacketType.LL16)),
  SM_CHANNELS_READ_AND_WRITE_WORDS(SmChannelScenarios::readAndWriteWords),
  KERNELS_COUNT_SIGNALS_OF_KERNELS(SmChannelScenarios::countSignals),

  PROXY_CHANNELS_PLAY_PING_PONG_OVER_CUDA_IPC(ProxyChannelScenarios::playPingPong, CUDA_IPC),
  PROXY_CHANNELS_PLAY_PING_PONG_OVER_ETHERNET(ProxyChannelScenarios::playPingPong, ETHERNET),
  PROXY_CHANNELS_KEEP_ORDER_OVER_CUDA_IPC(ProxyChannelScenarios::keepOrder, CUDA_IPC),
  PROXY_CHANNELS_KEEP_ORDER_OVER_ETHERNET(ProxyChannelScenarios::keepOrder, ETHERNET),
  FOUR_THREADS_FLUSH_ONE_CHANNEL_OVER_CUDA_IPC(ProxyChannelScenarios::flushOneChannel, CUDA_IPC),
  FOUR_THREADS_FLUSH_ONE_CHANNEL_OVER_ETHERNET(ProxyChannelScenarios::flushOneChannel, ETHERNET),
  FOUR_BLOCKS_FLUSH_FOUR_CHANNELS_OVER_CUDA_IPC(ProxyChannelScenarios::flushFourChannels, CUDA_IPC),
  FOUR_BLOCKS_FLUSH_FOUR_CHANNELS_OVER_ETHERNET(ProxyChannelScenarios::flushFourChannels, ETHERNET),
  PROXY_CHANNELS_PUT_ANY_RANGE_OVER_CUDA_IPC(ProxyChannelScenarios::putAnyRange, CUDA_IPC),
  PROXY_CHANNELS_PUT_ANY_RANGE_OVER_ETHERNET(ProxyChannelScenarios::putAnyRange, ETHERNET),
  ONLY_THE_CHANNEL_FAILS_WHOSE_PUT_IS_IMPOSSIBLE(ProxyChannelScenarios::failAlone),
  HOSTS_SIGNAL_KERNELS_OVER_CUDA_IPC(ProxyChannelScenarios::signalFromHost, CUDA_IPC),
  HOSTS_SIGNAL_KERNELS_OVER_ETHERNET(ProxyChannelScenarios::signalFromHost, ETHERNET);

  /** The files that the kernels are in. */
  private static final String[] KERNELS = {"sm_channel", "semaphore", "proxy_channel", "ranges"};

  private final GpuRanks.Body body;

  Scenario(GpuRanks.Body body) {
    this.body = body;
  }

  Scenario(OverTransport body, Transport transport) {
    this(rank -> body.run(rank, transport));
  }

  /** The code that each rank runs over a transport. */
  private interface OverTransport {
    void run(GpuRank rank, Transport transport) throws Exception;
  }

  @Override
  public void run(GpuRank rank) throws Exception {
    TestKernels.prepare(rank.device(), KERNELS);
    rank.barrier();
    body.run(rank);
    // No rank releases memory that the other one still reads.
    rank.barrier();
  }
}
