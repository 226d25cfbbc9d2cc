package io.fluxccl.cli;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Properties;
import picocli.CommandLine.IVersionProvider;

/** The version that the build wrote down. */
final class Version implements IVersionProvider {
  private static final String RESOURCE = "build.properties";

  @Override
  public String[] getVersion() {
    return new String[] {"fluxccl " + current()};
  }

  /** The version, for example {@code 0.1.0}. */
  static String current() {
    Properties build = new Properties();
    try (InputStream in = Version.class.getResourceAsStream(RESOURCE)) {
      if (in != null) {
        build.load(in);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(RESOURCE + " can't be read", e);
    }
    return build.getProperty("version", "unknown");
  }
}
