// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Places files of another user of the machine, which only root can do. */
public final class OtherUser {
  /** A user of no name. */
  public static final int ID = 54321;

  private static final Path SETPRIV = Path.of("/usr/bin/setpriv");

  private OtherUser() {}

  /** Skips the test unless it runs as root. */
  public static void requireRoot() throws IOException {
    Object user = Files.getAttribute(Path.of("/proc/self"), "unix:uid");
    assumeTrue(user.equals(0), "only root can place files of another user");
  }

  /** Makes the other user the owner of a file, folder or link, and returns it. */
  public static Path give(Path file) throws IOException {
    requireRoot();
    Files.setAttribute(file, "unix:uid", ID, LinkOption.NOFOLLOW_LINKS);
    return file;
  }

  /** Starts a command as the other user. */
  public static Process start(String... command) throws IOException {
    requireRoot();
    assumeTrue(Files.isExecutable(SETPRIV), "there is no setpriv");
    List<String> all = new ArrayList<>(List.of(SETPRIV.toString(), "--reuid", "" + ID));
    all.add("--clear-groups");
    all.addAll(List.of(command));
    return new ProcessBuilder(all).start();
  }

  /** Makes a FIFO, which blocks a process that opens it to read, and returns it. */
  public static Path makeFifo(Path fifo) throws IOException, InterruptedException {
    int code = new ProcessBuilder("mkfifo", fifo.toString()).start().waitFor();
    assumeTrue(code == 0, "there is no mkfifo");
    return fifo;
  }
}
