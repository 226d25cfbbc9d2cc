// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.InvalidUsage;
import io.fluxccl.LocalFiles;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

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
    Path folder = path.toAbsolutePath().getParent();
    String problem =
        Files.exists(path) && !Files.isRegularFile(path)
            ? "it is no regular file"
            : Files.isDirectory(folder) && Files.isWritable(folder)
                ? null
                : "this user can create no file in " + folder;
    if (problem != null) {
      throw new InvalidUsage(option + "=" + path + " can't be written: " + problem);
    }
  }

  /**
   * Replaces the content.
   *
   * @throws InvalidUsage if the file can't be written
   */
  void write(String content) {
    try {
      LocalFiles.replace(path, content.getBytes(StandardCharsets.UTF_8));
    } catch (IOException e) {
      throw new InvalidUsage(option + "=" + path + " can't be written: " + e, e);
    }
  }
}
