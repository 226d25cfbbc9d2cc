// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;

/**
 * A folder that only this user can read, deleted when it is closed.
 *
 * @param path of the folder
 */
record TemporaryFolder(Path path) implements AutoCloseable {
  static TemporaryFolder create(String prefix) throws IOException {
    return new TemporaryFolder(Files.createTempDirectory(prefix));
  }

  @Override
  public void close() {
    try (Stream<Path> tree = Files.walk(path)) {
      for (Path file : tree.sorted(Comparator.reverseOrder()).toList()) {
        Files.deleteIfExists(file);
      }
    } catch (IOException | UncheckedIOException e) {
      path.toFile().deleteOnExit(); // the operating system cleans its temporary directory
    }
  }
}
