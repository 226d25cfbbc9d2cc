// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Aborted;
import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.OpenFiles;
import io.fluxccl.Text;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.util.Set;
import org.agrona.BufferUtil;
import org.agrona.CloseHelper;

/**
 * Creates the file of a segment that this process owns. The file is created, found among this
 * process's descriptors, and unlinked at once. It exists only as long as a process has it open or
 * mapped, however the processes end.
 */
final class SegmentFile {
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

  private SegmentFile() {}

  /**
   * Returns a segment with an open, unlinked file of zeros. The calling thread must not be
   * interrupted.
   */
  static SharedSegment create(long size) {
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
      throw failure("creating", directory, size, e);
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
      throw failure("filling", SegmentDirectory.get(), size, e);
    } finally {
      space.unclaim(left);
      BufferUtil.free(zeros);
    }
  }

  private static FluxCclException failure(
      String step, Path directory, long size, IOException cause) {
    if (cause instanceof ClosedByInterruptException) {
      return new Aborted(
          FluxCclException.NO_RANK,
          "the thread was interrupted while " + step + " shared memory of " + size + " bytes",
          cause);
    }
    return failure(step, size, OpenFiles.explain(cause, adviceOnSpace(directory, cause)), cause);
  }

  private static DeviceFailure failure(String step, long size, String why, IOException cause) {
    String what = "%s shared memory of %d bytes in %s failed: %s";
    return new DeviceFailure(
        0, "SHARED_MEMORY", Text.of(what, step, size, SegmentDirectory.get(), why), cause);
  }

  private static String adviceOnSpace(Path directory, IOException cause) {
    return Text.of(
        "%s (%s bytes are free); free some, raise its size (docker --shm-size, mount -o"
            + " remount,size=), or set %s to a larger directory",
        cause, directory.toFile().getUsableSpace(), SegmentDirectory.VARIABLE);
  }
}
