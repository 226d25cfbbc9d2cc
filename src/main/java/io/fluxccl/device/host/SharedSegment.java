// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Aborted;
import io.fluxccl.DeviceFailure;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.OpenFiles;
import io.fluxccl.Text;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
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

  private static final Path OWN_DESCRIPTORS = Path.of("/proc/self/fd");
  private static final int ZEROS_LENGTH = 256 * 1024;
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final Set<StandardOpenOption> OPTIONS =
      Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE);
  private static final FileAttribute<Set<PosixFilePermission>> PRIVATE =
      PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

  /** Number of descriptors that are tried before all are listed. */
  private static final int GUESSES = 4;

  /** The descriptor that the next file probably gets. Any thread may change it. */
  private static volatile int nextDescriptor;

  /** Segments that this process owns; keeps the garbage collector from unmapping them. */
  private static final ConcurrentHashMap<SegmentName, SharedSegment> OWNED =
      new ConcurrentHashMap<>();

  /** Segments of other processes; keeps the garbage collector from unmapping them. */
  private static final Set<SharedSegment> OPENED = ConcurrentHashMap.newKeySet();

  private final SegmentName name;
  private final MappedByteBuffer mapped;
  private final FileChannel ownersChannel;
  private volatile boolean named;

  /**
   * Takes over a mapping.
   *
   * @param ownersChannel stays open while other processes may map it; null for another process's
   *     segment
   */
  SharedSegment(SegmentName name, MappedByteBuffer mapped, FileChannel ownersChannel) {
    super(BufferUtil.address(mapped), mapped);
    this.name = name;
    this.mapped = mapped;
    this.ownersChannel = ownersChannel;
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
    SharedSegment segment = uninterrupted(() -> createFile(size));
    OWNED.put(segment.name, segment);
    return segment;
  }

  /**
   * Returns a segment with an open file of zeros. The file is created, found among this process's
   * descriptors, and unlinked at once. It exists only as long as a process has it open or mapped,
   * however the processes end. The calling thread must not be interrupted.
   */
  private static SharedSegment createFile(long size) {
    Path directory = SegmentDirectory.get();
    // Random, so that no other user of the directory can take the name first.
    Path path =
        directory.resolve(SegmentDirectory.fileName(Long.toUnsignedString(RANDOM.nextLong())));
    FileChannel channel = null;
    boolean done = false;
    try {
      channel = FileChannel.open(path, OPTIONS, PRIVATE);
      int descriptor = descriptorOf(path);
      Files.deleteIfExists(path);
      fill(channel, size, SegmentDirectory.space());
      Path open = OWN_DESCRIPTORS.resolve(Integer.toString(descriptor));
      SegmentName name =
          new SegmentName(
              ProcessHandle.current().pid(),
              descriptor,
              (Long) Files.getAttribute(open, "unix:ino"),
              (Long) Files.getAttribute(open, "unix:dev"),
              size);
      MappedByteBuffer mapped = channel.map(FileChannel.MapMode.READ_WRITE, 0, size);
      done = true;
      return new SharedSegment(name, mapped, channel);
    } catch (IOException e) {
      throw failure("creating", size, e);
    } finally {
      if (!done) {
        CloseHelper.quietClose(channel);
        path.toFile().delete();
      }
    }
  }

  /** Returns the descriptor of an open file of this process. Java has no method for it. */
  private static int descriptorOf(Path path) throws IOException {
    String real = path.toRealPath().toString();
    // The kernel assigns the lowest free descriptor, which often follows that of the last segment.
    int guess = nextDescriptor;
    for (int i = guess; i < guess + GUESSES; i++) {
      if (isOpenAs(OWN_DESCRIPTORS.resolve(Integer.toString(i)), real)) {
        nextDescriptor = i + 1;
        return i;
      }
    }
    try (DirectoryStream<Path> descriptors = Files.newDirectoryStream(OWN_DESCRIPTORS)) {
      for (Path descriptor : descriptors) {
        if (isOpenAs(descriptor, real)) {
          int number = Integer.parseInt(descriptor.getFileName().toString());
          nextDescriptor = number + 1;
          return number;
        }
      }
    }
    throw new IOException(
        "the open file is not listed in " + OWN_DESCRIPTORS + "; is /proc there?");
  }

  private static boolean isOpenAs(Path descriptor, String real) {
    String target = targetOf(descriptor);
    // A sweep in another PID namespace may have unlinked the file already; the kernel then appends
    // a mark.
    return target.equals(real) || target.equals(real + " (deleted)");
  }

  private static String targetOf(Path descriptor) {
    try {
      return Files.readSymbolicLink(descriptor).toString();
    } catch (IOException e) {
      return ""; // closed by another thread since it was listed
    }
  }

  /**
   * Writes zeros instead of setting a length, so that a full file system causes an exception here,
   * not a SIGBUS later.
   */
  static void fill(FileChannel channel, long size, SharedMemorySpace space) {
    space
        .claim(size)
        .ifPresent(
            shortage -> {
              throw failure("allocating", size, shortage, null);
            });
    ByteBuffer zeros = ByteBuffer.allocateDirect((int) Math.min(size, ZEROS_LENGTH));
    long left = size;
    try {
      while (left > 0) {
        zeros.position(0).limit((int) Math.min(zeros.capacity(), left));
        int written = channel.write(zeros, size - left);
        space.unclaim(written);
        left -= written;
      }
    } catch (IOException e) {
      throw failure("filling", size, e);
    } finally {
      space.unclaim(left);
      BufferUtil.free(zeros);
    }
  }

  private static FluxCclException failure(String step, long size, IOException cause) {
    if (cause instanceof ClosedByInterruptException) {
      return new Aborted(
          FluxCclException.NO_RANK,
          "the thread was interrupted while " + step + " shared memory of " + size + " bytes",
          cause);
    }
    String advice =
        Text.of(
            "%s (%s bytes are free); free some, raise its size (docker --shm-size, mount -o"
                + " remount,size=), or set %s to a larger directory",
            cause, SegmentDirectory.get().toFile().getUsableSpace(), SegmentDirectory.VARIABLE);
    return failure(step, size, OpenFiles.explain(cause, advice), cause);
  }

  private static DeviceFailure failure(String step, long size, String why, IOException cause) {
    String what = "%s shared memory of %d bytes in %s failed: %s";
    return new DeviceFailure(
        0, "SHARED_MEMORY", Text.of(what, step, size, SegmentDirectory.get(), why), cause);
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

  @Override
  public String toString() {
    return "SharedSegment(" + name + ")";
  }
}
