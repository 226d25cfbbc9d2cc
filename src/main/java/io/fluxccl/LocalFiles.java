// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.SecureDirectoryStream;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.UserPrincipal;
import java.util.EnumSet;
import java.util.Set;
import java.util.UUID;

/**
 * Reads and writes files in folders in which other users of the machine may also create files and
 * links, such as /tmp. Follows no link of another user, and never blocks on a FIFO. Stateless.
 */
@Experimental
public final class LocalFiles {
  /** The permissions of other users to change a file or a folder. */
  public static final Set<PosixFilePermission> OTHERS_WRITE =
      Set.of(PosixFilePermission.GROUP_WRITE, PosixFilePermission.OTHERS_WRITE);

  /** All permissions of other users. */
  public static final Set<PosixFilePermission> OTHERS_ALL =
      Set.of(
          PosixFilePermission.GROUP_READ,
          PosixFilePermission.GROUP_WRITE,
          PosixFilePermission.GROUP_EXECUTE,
          PosixFilePermission.OTHERS_READ,
          PosixFilePermission.OTHERS_WRITE,
          PosixFilePermission.OTHERS_EXECUTE);

  private static final Set<OpenOption> NEW =
      Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS);
  private static final int MOST_LINKS = 40;

  private LocalFiles() {}

  /**
   * Returns the path that a setting names.
   *
   * @param setting an environment variable, option or property, for the message
   * @param value of it
   * @throws InvalidUsage if it is no path in the encoding of this process's locale
   */
  public static Path path(String setting, String value) {
    try {
      return Path.of(value);
    } catch (InvalidPathException e) {
      String encoding = System.getProperty("sun.jnu.encoding", "unknown");
      throw new InvalidUsage(
          encoding.equals("UTF-8")
              ? Text.of("%s=%s is no path: %s", setting, value, e.getReason())
              : Text.of(
                  "%s=%s: file names of this process have the encoding %s, which lacks some of these"
                      + " characters; set LC_ALL=C.UTF-8",
                  setting, value, encoding),
          e);
    }
  }

  /** Returns the user of a process, by its id or {@code self}. */
  public static UserPrincipal userOf(String process) throws IOException {
    return Files.getOwner(Path.of("/proc", process));
  }

  /**
   * Returns the path, unless it contains a link of a user other than this one and root. Parts of it
   * may not exist.
   *
   * @throws IOException naming a link of another user
   */
  public static Path requireOwnLinks(Path path) throws IOException {
    requireOwnLinks(path.toAbsolutePath(), MOST_LINKS);
    return path;
  }

  private static void requireOwnLinks(Path path, int most) throws IOException {
    Path at = path.getRoot();
    for (Path name : path) {
      at = at.resolve(name);
      if (!Files.isSymbolicLink(at)) {
        continue;
      }
      UserPrincipal owner = Files.getOwner(at, LinkOption.NOFOLLOW_LINKS);
      if (!owner.equals(userOf("self")) && !owner.equals(Files.getOwner(Path.of("/")))) {
        throw new IOException(Text.of("%s is a link of user %s; it is not followed", at, owner));
      }
      if (most == 0) {
        throw new IOException(at + ": too many links");
      }
      requireOwnLinks(at.resolveSibling(Files.readSymbolicLink(at)), most - 1);
    }
  }

  /**
   * Opens a folder of one user. The caller closes it.
   *
   * @param folder the path
   * @param owner the user that it must belong to
   * @param forbidden permissions that it must not have
   * @throws IOException if the folder does not meet these conditions; the message names the problem
   */
  public static SecureDirectoryStream<Path> open(
      Path folder, UserPrincipal owner, Set<PosixFilePermission> forbidden) throws IOException {
    SecureDirectoryStream<Path> opened = open(requireOwnLinks(folder));
    try {
      PosixFileAttributes found =
          opened.getFileAttributeView(PosixFileAttributeView.class).readAttributes();
      Set<PosixFilePermission> excess = EnumSet.copyOf(forbidden);
      excess.retainAll(found.permissions());
      if (!found.owner().equals(owner) || !excess.isEmpty()) {
        throw new IOException(
            Text.of(
                "%s belongs to user %s%s; it must be of user %s alone",
                folder,
                found.owner(),
                excess.isEmpty() ? "" : ", and others have the permissions " + excess,
                owner));
      }
      return opened;
    } catch (IOException | RuntimeException e) {
      opened.close();
      throw e;
    }
  }

  private static SecureDirectoryStream<Path> open(Path folder) throws IOException {
    // Opening a FIFO itself would block, but the system refuses "." within it.
    DirectoryStream<Path> opened = Files.newDirectoryStream(folder.resolve("."));
    if (opened instanceof SecureDirectoryStream<Path> secure) {
      return secure;
    }
    opened.close();
    throw new IOException(folder + " is in a file system without openat");
  }

  /**
   * Returns the content of a file in an open folder.
   *
   * @param folder from {@link #open(Path, UserPrincipal, Set)}
   * @param name of the file
   * @param owner the user that it must belong to
   * @param most bytes that it may have
   * @throws IOException if it is a link, not a regular file, too large or belongs to another user
   */
  public static byte[] read(
      SecureDirectoryStream<Path> folder, Path name, UserPrincipal owner, int most)
      throws IOException {
    PosixFileAttributes found =
        folder
            .getFileAttributeView(name, PosixFileAttributeView.class, LinkOption.NOFOLLOW_LINKS)
            .readAttributes();
    if (!found.isRegularFile() || !found.owner().equals(owner)) {
      throw new IOException(Text.of("%s is no regular file of user %s", name, owner));
    }
    // The owner may meanwhile replace the file by a FIFO. Opened for reading and writing, it does
    // not block.
    Set<OpenOption> options =
        owner.equals(userOf("self"))
            ? Set.of(StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)
            : Set.of(StandardOpenOption.READ, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS);
    try (SeekableByteChannel channel = folder.newByteChannel(name, options)) {
      long size = channel.size();
      if (size > most) {
        throw new IOException(Text.of("%s has %d bytes, over %d", name, size, most));
      }
      ByteBuffer content = ByteBuffer.allocate((int) size);
      // Reads at a position fail on a FIFO.
      while (content.hasRemaining()
          && ((FileChannel) channel).read(content, content.position()) > 0) {
        continue;
      }
      if (content.hasRemaining()) {
        throw new IOException(name + " was cut while it was read");
      }
      return content.array();
    }
  }

  /**
   * Replaces a file of an open folder. A reader sees all of the content or none.
   *
   * @param folder an open one
   * @param name of the file
   * @param content its new content
   * @param attributes of the new file, such as its permissions
   */
  public static void replace(
      SecureDirectoryStream<Path> folder, Path name, byte[] content, FileAttribute<?>... attributes)
      throws IOException {
    Path temporary = Path.of(name + "." + UUID.randomUUID() + ".tmp");
    try (SeekableByteChannel channel = folder.newByteChannel(temporary, NEW, attributes)) {
      ByteBuffer rest = ByteBuffer.wrap(content);
      while (rest.hasRemaining()) {
        channel.write(rest);
      }
      folder.move(temporary, folder, name);
    } catch (IOException | RuntimeException e) {
      try {
        folder.deleteFile(temporary);
      } catch (IOException absent) {
        e.addSuppressed(absent);
      }
      throw e;
    }
  }

  /** {@link #replace(SecureDirectoryStream, Path, byte[], FileAttribute[])} by the file's path. */
  public static void replace(Path file, byte[] content) throws IOException {
    Path folder = file.toAbsolutePath().getParent();
    try (SecureDirectoryStream<Path> opened = open(requireOwnLinks(folder))) {
      replace(opened, file.getFileName(), content);
    }
  }
}
