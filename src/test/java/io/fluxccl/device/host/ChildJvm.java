// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.testing.Rounds;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Another JVM with this one's class path, killed when closed. */
public final class ChildJvm implements AutoCloseable {
  private static final long SECONDS = 120;

  private final Process process;
  private final BufferedReader output;

  private ChildJvm(Process process) {
    this.process = process;
    this.output =
        new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
  }

  public static ChildJvm start(Class<?> main, List<String> jvmArgs, String... args) {
    return start(main, jvmArgs, Map.of(), args);
  }

  public static ChildJvm start(
      Class<?> main, List<String> jvmArgs, Map<String, String> environment, String... args) {
    return start(
        main,
        List.of(System.getProperty("fluxccl.jvm.args", "").split(" ")),
        jvmArgs,
        environment,
        args);
  }

  /** Starts a JVM whose command line opens none of the JDK's packages. */
  public static ChildJvm startWithoutAccess(Class<?> main, List<String> jvmArgs) {
    return start(main, List.of(), jvmArgs, Map.of());
  }

  private static ChildJvm start(
      Class<?> main,
      List<String> access,
      List<String> jvmArgs,
      Map<String, String> environment,
      String... args) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    for (String arg : access) {
      if (!arg.isBlank()) {
        command.add(arg);
      }
    }
    command.add("-Dfluxccl.test.long=" + Rounds.LONG);
    command.add("-Xmx128m");
    command.add("-XX:+UseSerialGC");
    command.addAll(jvmArgs);
    command.add("-cp");
    command.add(System.getProperty("java.class.path"));
    command.add(main.getName());
    command.addAll(List.of(args));
    ProcessBuilder builder =
        new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
    builder.environment().putAll(environment);
    try {
      return new ChildJvm(builder.start());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  public long pid() {
    return process.pid();
  }

  /** The next line it prints, or null at its end. */
  public String readLine() throws Exception {
    return CompletableFuture.supplyAsync(
            () -> {
              try {
                return output.readLine();
              } catch (IOException e) {
                throw new UncheckedIOException(e);
              }
            })
        .get(SECONDS, TimeUnit.SECONDS);
  }

  /** Gives it a line on its standard input. */
  public void writeLine(String line) throws IOException {
    OutputStream input = process.getOutputStream();
    input.write((line + "\n").getBytes(StandardCharsets.UTF_8));
    input.flush();
  }

  /** As kill -9 does. */
  public void kill() throws InterruptedException {
    process.destroyForcibly();
    if (!process.waitFor(SECONDS, TimeUnit.SECONDS)) {
      throw new AssertionError("process " + process.pid() + " survives SIGKILL");
    }
  }

  @Override
  public void close() throws InterruptedException {
    kill();
  }
}
