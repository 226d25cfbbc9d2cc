// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.Device;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.transport.ConnectedRanks;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Contents;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RdmaOptions;
import io.fluxccl.transport.Transfer;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportEnvironment;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntFunction;

/** Two ranks of one JVM over queue pairs of IB0, and what a communicator would do. */
public final class IbRanks extends ConnectedRanks {
  private final List<IbContext> contexts;

  /** Opens two ranks whose memory is registered in parts of at most {@code piece} bytes. */
  interface Opener {
    IbRanks open(long piece);
  }

  /** On the host over real queue pairs of IB0, memory registered in one piece. */
  public IbRanks() {
    this(IbMemoryHandle.PIECE);
  }

  IbRanks(long piece) {
    this(VerbsLibrary.get(), ofIb0(), piece, rank -> HostDevice.create());
  }

  /** On one of this machine's RDMA devices. */
  IbRanks(RdmaDevices.Device device) {
    this(VerbsLibrary.get(), device, IbMemoryHandle.PIECE, rank -> HostDevice.create());
  }

  /** Closes the devices when it is closed. */
  IbRanks(Verbs verbs, RdmaDevices.Device rdma, long piece, IntFunction<Device> opener) {
    this(environments(opener.apply(0), opener.apply(1)), verbs, rdma, piece);
  }

  private IbRanks(
      List<TransportEnvironment> environments, Verbs verbs, RdmaDevices.Device rdma, long piece) {
    super(environments);
    contexts =
        environments.stream()
            .map(environment -> IbContext.open(Transport.IB0, environment, verbs, rdma, piece))
            .toList();
  }

  /** On the host, without an RDMA device. */
  static IbRanks fake(long piece) {
    return fake(new FakeVerbs(), piece);
  }

  static IbRanks fake(FakeVerbs verbs, long piece) {
    return new IbRanks(verbs, FakeVerbs.DEVICE, piece, rank -> HostDevice.create());
  }

  /** On a GPU each, without an RDMA device. */
  static IbRanks fakeOnGpus(long piece) {
    return fakeOnGpus(new FakeVerbs(), piece);
  }

  static IbRanks fakeOnGpus(FakeVerbs verbs, long piece) {
    return new IbRanks(verbs, FakeVerbs.DEVICE, piece, CudaDevice::open);
  }

  private static RdmaDevices.Device ofIb0() {
    return RdmaDevices.ofThisMachine().get(0);
  }

  /** Opens one rank of IB0 whose peer is in another process. */
  static IbContext context(int rank, Device device) {
    return IbContext.open(
        Transport.IB0,
        environment(rank, device),
        VerbsLibrary.get(),
        ofIb0(),
        IbMemoryHandle.PIECE);
  }

  @Override
  public IbContext context(int rank) {
    return contexts.get(rank);
  }

  static EndpointConfig config(RdmaOptions options) {
    return EndpointConfig.of(Transport.IB0).withRdma(options);
  }

  /** A connection of rank 0 to rank 1 with these options, and its other end. */
  List<Connection> connect(int tag, RdmaOptions options) throws Exception {
    return connect(0, 1, tag, config(options));
  }

  /** Blocks a rank's agent until the latch is counted down. */
  CountDownLatch block(int rank) throws Exception {
    return block(context(rank).agent()::execute);
  }

  /** Writes and signals in both directions, and connects a rank to itself. */
  void exchange(int size) throws Exception {
    List<Connection> ends = connect(0);
    for (int rank = 0; rank < 2; rank++) {
      Transfer transfer = transfer(ends, rank, size + 8);
      transfer.write(8, 0, size).signal(0, new AtomicLong(), 7).flush();
      transfer.assertWritten(8, 0, size);
      assertThat(Contents.getLong(transfer.target(), 0)).isEqualTo(7);
    }
    get(connect(0, 0, 1, config()).get(0).flush(LIMIT));
  }
}
