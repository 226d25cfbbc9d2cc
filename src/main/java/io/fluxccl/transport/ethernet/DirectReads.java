package io.fluxccl.transport.ethernet;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.ChannelConfig;
import io.netty.channel.RecvByteBufAllocator;
import io.netty.util.UncheckedBooleanSupplier;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/**
 * Lets a channel's handler say, before each read of the socket, where the bytes go: that is how a
 * payload reaches its destination without a copy. One instance a channel.
 */
final class DirectReads implements RecvByteBufAllocator {
  /** After so many reads other sockets of the event loop get their turn. */
  private static final int MAX_READS_IN_A_ROW = 16;

  private final Supplier<ByteBuf> nextRead;
  private final BooleanSupplier paused;

  /**
   * @param nextRead gives the window for the next read
   * @param paused whether there is to be none for now
   */
  DirectReads(Supplier<ByteBuf> nextRead, BooleanSupplier paused) {
    this.nextRead = nextRead;
    this.paused = paused;
  }

  @Override
  @SuppressWarnings("deprecation")
  public Handle newHandle() {
    return new ReadHandle();
  }

  private final class ReadHandle implements ExtendedHandle {
    private boolean autoRead;
    private int reads;
    private int attempted;
    private int last;

    @Override
    public ByteBuf allocate(ByteBufAllocator allocator) {
      return nextRead.get();
    }

    @Override
    public int guess() {
      return MemoryWindow.MAX_LENGTH;
    }

    @Override
    public void reset(ChannelConfig config) {
      autoRead = config.isAutoRead();
      reads = 0;
      attempted = 0;
      last = 0;
    }

    @Override
    public void incMessagesRead(int count) {
      reads += count;
    }

    @Override
    public void lastBytesRead(int bytes) {
      last = bytes;
    }

    @Override
    public int lastBytesRead() {
      return last;
    }

    @Override
    public void attemptedBytesRead(int bytes) {
      attempted = bytes;
    }

    @Override
    public int attemptedBytesRead() {
      return attempted;
    }

    @Override
    public boolean continueReading() {
      return mayRead() && last == attempted;
    }

    @Override
    public boolean continueReading(UncheckedBooleanSupplier maybeMoreData) {
      return mayRead() && maybeMoreData.get();
    }

    private boolean mayRead() {
      return autoRead && reads < MAX_READS_IN_A_ROW && last > 0 && !paused.getAsBoolean();
    }

    @Override
    public void readComplete() {}
  }
}
