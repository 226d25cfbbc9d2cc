// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.DeviceFailure;
import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.OpenFiles;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.agrona.BufferUtil;
import org.agrona.CloseHelper;
import org.agrona.IoUtil;

/**
 * Memory that processes of one host share. It has no name in the file system: peers open it through
 * the owner's process, by its {@link SegmentName}, while the owner runs. A process that has mapped
 * it keeps it, even if the owner is killed. After the last process has ended, no file remains.
 *
 * <p>Counts its users. It starts with one user and stays mapped until the last user releases it,
 * which unmaps it. The addresses are page-aligned. Thread-safe.
 */
@Experimental
public final class SharedSegment extends HostRange {
  /**
   * The largest size: one page less than 2 GiB, the most that Java maps at once. Allocate several
   * buffers for more.
   */
  public static final long MAX_SIZE = Integer.MAX_VALUE - 4095L;

  /** Segments that this process owns; keeps the garbage collector from unmapping them. */
  private static final ConcurrentHashMap<SegmentName, SharedSegment> OWNED =
      new ConcurrentHashMap<>();

  /** Segments of other processes; keeps the garbage collector from unmapping them. */
  private static final Set<SharedSegment> OPENED = ConcurrentHashMap.newKeySet();

  private final SegmentName name;
  private final MappedByteBuffer mapped;
  private final FileChannel ownersChannel;
  private final long address;
  private volatile boolean named;

  /**
   * Takes over a mapping.
   *
   * @param ownersChannel stays open while other processes may map it; null for another process's
   *     segment
   */
  SharedSegment(SegmentName name, MappedByteBuffer mapped, FileChannel ownersChannel) {
    this.name = name;
    this.mapped = mapped;
    this.ownersChannel = ownersChannel;
    this.address = BufferUtil.address(mapped);
  }

  /**
   * Returns a new segment of zeros, owned by this process.
   *
   * @param size bytes, 1 to {@link #MAX_SIZE}
   * @return the segment, with one user
   * @throws InvalidUsage if the size is out of range
   * @throws DeviceFailure if there is not enough shared memory; the message names the available
   *     amount
   */
  public static SharedSegment create(long size) {
    if (size < 1 || size > MAX_SIZE) {
      throw InvalidUsage.of(
          "size=%s is outside 1 to %s, the most that one buffer of the host device can"
              + " have; allocate several",
          size, MAX_SIZE);
    }
    SharedSegment segment = uninterrupted(() -> SegmentFile.create(size));
    OWNED.put(segment.name, segment);
    return segment;
  }

  /**
   * Runs an action without a pending interrupt, which would close its channel, and restores the
   * interrupt.
   */
  private static SharedSegment uninterrupted(Supplier<SharedSegment> open) {
    boolean interrupted = Thread.interrupted();
    try {
      return open.get();
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /**
   * Returns the segment of this process that has the given name, with one more user.
   *
   * @param name the name that a peer sent
   * @return the segment, or empty if this process owns none of that name
   */
  public static Optional<SharedSegment> retainOwned(SegmentName name) {
    SharedSegment segment = OWNED.get(name);
    return segment != null && segment.tryRetain() ? Optional.of(segment) : Optional.empty();
  }

  /**
   * Maps a segment of another process.
   *
   * @param name the name that the owner sent
   * @return the segment, with one user
   * @throws DeviceFailure if the owner has ended or denies access, or has another file open at that
   *     descriptor
   */
  public static SharedSegment open(SegmentName name) {
    SharedSegment segment = uninterrupted(() -> map(name));
    OPENED.add(segment);
    return segment;
  }

  private static SharedSegment map(SegmentName name) {
    Path path = Path.of("/proc/" + name.pid() + "/fd/" + name.descriptor());
    try {
      verify(name, path);
      try (FileChannel channel =
          FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
        // Again, in case the owner closed that descriptor and opened another file in between.
        verify(name, path);
        if (channel.size() != name.size()) {
          throw refused(name, "it has " + channel.size() + " bytes", null);
        }
        return new SharedSegment(
            name, channel.map(FileChannel.MapMode.READ_WRITE, 0, name.size()), null);
      }
    } catch (IOException e) {
      String why =
          e instanceof NoSuchFileException
              ? " has ended or closed it, or is in another process namespace (docker --pid)"
              : " does not permit access to it (run both as the same user, with the same"
                  + " capabilities)";
      throw refused(name, OpenFiles.explain(e, "process " + name.pid() + why), e);
    }
  }

  /** Returns whether its owner, another process, still has a segment of that name. */
  public static boolean isOpen(SegmentName name) {
    try {
      verify(name, Path.of("/proc/" + name.pid() + "/fd/" + name.descriptor()));
      return true;
    } catch (IOException | DeviceFailure gone) {
      return false;
    }
  }

  private static void verify(SegmentName name, Path path) throws IOException {
    long inode = (Long) Files.getAttribute(path, "unix:ino");
    long device = (Long) Files.getAttribute(path, "unix:dev");
    long size = (Long) Files.getAttribute(path, "unix:size");
    if (inode != name.inode() || device != name.device() || size != name.size()) {
      throw refused(name, "there is inode=" + inode + " device=" + device + " size=" + size, null);
    }
  }

  private static DeviceFailure refused(SegmentName name, String why, IOException cause) {
    return new DeviceFailure(0, "SHARED_MEMORY", "opening " + name + " failed: " + why, cause);
  }

  /** Returns the name by which other processes find it. The caller may send it to one. */
  public SegmentName name() {
    named = true;
    return name;
  }

  /**
   * Returns whether other processes may have mapped it, and may not have been notified that it is
   * closed.
   */
  boolean isNamed() {
    return named;
  }

  @Override
  public long address() {
    return address;
  }

  /** Returns its length in bytes. */
  public long size() {
    return name.size();
  }

  /** Returns whether this process created it. */
  public boolean isOwned() {
    return ownersChannel != null;
  }

  @Override
  protected void lastUserLeft() {
    OWNED.remove(name, this);
    OPENED.remove(this);
    IoUtil.unmap(mapped);
    CloseHelper.close(
        problem -> SegmentDirectory.LOG.warn("closing {} failed", this, problem), ownersChannel);
  }

  /** Returns a view of a part; the caller holds a user for as long as it uses the view. */
  ByteBuffer view(long offset, long size) {
    ByteBuffer view = mapped.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    return view.position((int) offset).limit((int) (offset + size));
  }

  @Override
  Optional<ByteBuffer> asByteBuffer(long offset, long size) {
    return Optional.of(view(offset, size).slice());
  }

  @Override
  void put(long offset, ByteBuffer source) {
    view(offset, source.remaining()).put(source);
  }

  @Override
  void get(long offset, ByteBuffer target) {
    target.put(view(offset, target.remaining()));
  }

  @Override
  public String toString() {
    return "SharedSegment(" + name + ")";
  }
}
