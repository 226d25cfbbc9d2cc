package io.fluxccl.transport.ib;

/** Memory that goes through pinned memory on both sides: slower, and otherwise the same. */
abstract class StagedIbConnectionContract extends IbConnectionContract {
  StagedIbConnectionContract(IbRanks.Opener opener) {
    super(opener);
  }

  @Override
  protected int signalRounds() {
    return 1000;
  }

  /** The host device's streams allocate what is enqueued, and not always on the same thread. */
  @Override
  protected long bytesPerOperation() {
    return 200;
  }

  @Override
  protected int manyWrites() {
    return 3000;
  }
}
