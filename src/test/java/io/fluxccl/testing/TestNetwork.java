// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.transport.plugin.NetTransport;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** Makes the plugin of {@link TestNet} what transport NET uses, for the tests of one class. */
public final class TestNetwork implements BeforeAllCallback, AfterAllCallback {
  @Override
  public void beforeAll(ExtensionContext context) throws Exception {
    Path folder = Files.createTempDirectory("testnet");
    folder.toFile().deleteOnExit();
    Path library = TestNet.library(folder, 11);
    library.toFile().deleteOnExit();
    System.setProperty(NetTransport.LIBRARY_PROPERTY, library.toString());
  }

  @Override
  public void afterAll(ExtensionContext context) {
    System.clearProperty(NetTransport.LIBRARY_PROPERTY);
  }
}
