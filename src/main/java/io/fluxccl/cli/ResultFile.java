// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/**
 * A file that a run writes. Each write replaces the whole file at once, so that it is complete
 * whenever the run ends.
 *
 * @param option the option that names the file, for messages
 * @param path where it is
 */
record ResultFile(String option, Path path) {
  /**
   * Checks that the file can be written, because a failure after the measurements would lose them.
   *
   * @throws InvalidUsage if it can't
   */
  void requireWritable() {
    if (Files.exists(path) && !Files.isRegularFile(path)) {
      throw new InvalidUsage(option + "=" + path + " can't be written: it is no regular file");
    }
    try {
      Files.writeString(temporary(), "");
    } catch (IOException e) {
      throw refused(e);
    } finally {
      temporary().toFile().delete();
    }
  }

  /**
   * Replaces the content.
   *
   * @throws InvalidUsage if the file can't be written
   */
  void write(String content) {
    try {
      Files.writeString(temporary(), content);
      Files.move(
          temporary(), path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    } catch (IOException e) {
      throw refused(e);
    } finally {
      temporary().toFile().delete(); // there only after a failure
    }
  }

  private Path temporary() {
    return path.resolveSibling("." + path.getFileName() + "." + ProcessHandle.current().pid());
  }

  private InvalidUsage refused(IOException e) {
    return new InvalidUsage(option + "=" + path + " can't be written: " + e, e);
  }
}
