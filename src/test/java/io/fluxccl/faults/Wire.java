// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import io.fluxccl.testing.NativePrograms;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A process that forwards packets between two hosts without a route: src/test/native/wire.c. */
final class Wire implements AutoCloseable {
  private static final int PATIENCE_SECONDS = 30;

  private final Process process;
  private final BufferedReader out;

  /**
   * Builds the program and lays a wire that does nothing to packets.
   *
   * @param folder for the program
   */
  Wire(TwoHosts hosts, Path folder) throws Exception {
    Path program = folder.resolve("wire");
    NativePrograms.compile(List.of("-o", program.toString(), "src/test/native/wire.c"));
    process =
        new ProcessBuilder(hosts.between(program.toString(), "to0", "to1"))
            .redirectErrorStream(true)
            .start();
    out = process.inputReader(StandardCharsets.US_ASCII);
    expect("ready");
  }

  private void expect(String line) throws IOException {
    String said = out.readLine();
    if (!line.equals(said)) {
      throw new AssertionError("the wire says " + said + ", not " + line);
    }
  }

  private void tell(String line) throws IOException {
    process.getOutputStream().write((line + "\n").getBytes(StandardCharsets.US_ASCII));
    process.getOutputStream().flush();
    expect("obeyed");
  }

  /** Delays each packet by this time. */
  void delay(int millis) throws IOException {
    tell("delay " + millis);
  }

  /** Drops this many of 1000 packets. */
  void lose(int permille) throws IOException {
    tell("drop " + permille);
  }

  /** Exchanges two words of each of the next long packets; waits until the first has passed. */
  void falsify(int packets) throws IOException {
    tell("swap " + packets);
    expect("swapped");
  }

  @Override
  public void close() throws InterruptedException {
    process.destroyForcibly();
    if (!process.waitFor(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
      throw new AssertionError("it survived SIGKILL");
    }
  }
}
