// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

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

  PROXY_CHANNELS_PLAY_PING_PONG_OVER_CUDA_IPC(
      rank -> ProxyChannelScenarios.playPingPong(rank, Transport.CUDA_IPC)),
  PROXY_CHANNELS_PLAY_PING_PONG_OVER_ETHERNET(
      rank -> ProxyChannelScenarios.playPingPong(rank, Transport.ETHERNET)),
  PROXY_CHANNELS_NEVER_SHOW_A_SIGNAL_BEFORE_ITS_DATA_OVER_CUDA_IPC(
      rank -> ProxyChannelScenarios.keepOrder(rank, Transport.CUDA_IPC)),
  PROXY_CHANNELS_NEVER_SHOW_A_SIGNAL_BEFORE_ITS_DATA_OVER_ETHERNET(
      rank -> ProxyChannelScenarios.keepOrder(rank, Transport.ETHERNET)),
  FOUR_THREADS_FLUSH_ONE_CHANNEL_AT_ONCE_OVER_CUDA_IPC(
      rank -> ProxyChannelScenarios.flushOneChannel(rank, Transport.CUDA_IPC)),
  FOUR_THREADS_FLUSH_ONE_CHANNEL_AT_ONCE_OVER_ETHERNET(
      rank -> ProxyChannelScenarios.flushOneChannel(rank, Transport.ETHERNET)),
  FOUR_BLOCKS_FLUSH_FOUR_CHANNELS_AT_ONCE_OVER_CUDA_IPC(
      rank -> ProxyChannelScenarios.flushFourChannels(rank, Transport.CUDA_IPC)),
  FOUR_BLOCKS_FLUSH_FOUR_CHANNELS_AT_ONCE_OVER_ETHERNET(
      rank -> ProxyChannelScenarios.flushFourChannels(rank, Transport.ETHERNET)),
  PROXY_CHANNELS_PUT_ANY_RANGE_OVER_CUDA_IPC(
      rank -> ProxyChannelScenarios.putAnyRange(rank, Transport.CUDA_IPC)),
  PROXY_CHANNELS_PUT_ANY_RANGE_OVER_ETHERNET(
      rank -> ProxyChannelScenarios.putAnyRange(rank, Transport.ETHERNET)),
  ONLY_THE_CHANNEL_FAILS_WHOSE_PUT_IS_IMPOSSIBLE(ProxyChannelScenarios::failAlone),
  HOSTS_SIGNAL_KERNELS_OVER_CUDA_IPC(
      rank -> ProxyChannelScenarios.signalFromHost(rank, Transport.CUDA_IPC)),
  HOSTS_SIGNAL_KERNELS_OVER_ETHERNET(
      rank -> ProxyChannelScenarios.signalFromHost(rank, Transport.ETHERNET)),
  FOUR_THREADS_OF_THE_HOST_FLUSH_AT_ONCE_OVER_CUDA_IPC(
      rank -> ProxyChannelScenarios.flushFromHost(rank, Transport.CUDA_IPC)),
  FOUR_THREADS_OF_THE_HOST_FLUSH_AT_ONCE_OVER_ETHERNET(
      rank -> ProxyChannelScenarios.flushFromHost(rank, Transport.ETHERNET));

  /** The files that the kernels are in. */
  private static final String[] KERNELS = {"sm_channel", "semaphore", "proxy_channel", "ranges"};

  private final GpuRanks.Body body;

  Scenario(GpuRanks.Body body) {
    this.body = body;
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
