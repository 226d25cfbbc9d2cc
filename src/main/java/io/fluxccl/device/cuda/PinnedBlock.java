package io.fluxccl.device.cuda;

import io.fluxccl.InvalidUsage;
import io.fluxccl.concurrent.UseCount;
import org.agrona.concurrent.UnsafeBuffer;

/** {@link PinnedMemory} that is freed with its last user. */
final class PinnedBlock extends UseCount {
  private final PrimaryContext context;
  private final PinnedMemory memory;
  private final int size;

  private PinnedBlock(PrimaryContext context, int size) {
    this.context = context;
    this.memory = PinnedMemory.allocate(context, size);
    this.size = size;
  }

  static PinnedBlock allocate(PrimaryContext context, int size) {
    context.retain();
    try {
      return new PinnedBlock(context, size);
    } catch (RuntimeException | Error e) {
      context.release();
      throw e;
    }
  }

  @Override
  protected void lastUserLeft() {
    context
        .reaper()
        .execute(
            () -> {
              try {
                memory.free();
              } finally {
                context.release();
              }
            });
  }

  long deviceAddress() {
    return memory.deviceAddress();
  }

  /** How host threads see a part; the caller is a user for as long as it uses the view. */
  UnsafeBuffer view(long offset, int length) {
    if (offset < 0 || length < 0 || offset > size - length) {
      throw new InvalidUsage("offset=" + offset + " length=" + length + " in " + this);
    }
    return memory.view((int) offset, length);
  }

  @Override
  public String toString() {
    return "PinnedBlock(" + size + " bytes at 0x" + Long.toHexString(memory.address()) + ")";
  }
}
