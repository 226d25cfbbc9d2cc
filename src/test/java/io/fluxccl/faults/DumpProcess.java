// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static org.awaitility.Awaitility.await;

import io.fluxccl.cli.Main;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * {@code fluxccl dump} as a process of its own, for what belongs to a process: its host, its
 * environment, and classes that are not loaded yet.
 *
 * @param prefix what its command starts with; may be empty
 * @param variables of its environment
 */
record DumpProcess(List<String> prefix, Map<String, String> variables) {
  private static final Duration PATIENCE = Duration.ofSeconds(40);

  /** Asks until an answer matches, and returns the match. */
  Matcher verdict(String target, String pattern) {
    Pattern expected = Pattern.compile(pattern);
    List<Matcher> said = new ArrayList<>();
    await(pattern)
        .atMost(PATIENCE)
        .untilAsserted(
            () -> {
              String out = run(target);
              Matcher matcher = expected.matcher(out);
              said.add(matcher);
              if (!matcher.find()) {
                throw new AssertionError(out);
              }
            });
    return said.get(said.size() - 1);
  }

  private String run(String target) throws Exception {
    List<String> command = new ArrayList<>(prefix);
    command.add(ProcessHandle.current().info().command().orElse("java"));
    Arrays.stream(System.getProperty("fluxccl.jvm.args", "").trim().split("\\s+"))
        .filter(each -> !each.isEmpty())
        .forEach(command::add);
    command.addAll(List.of("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"));
    command.addAll(List.of(System.getProperty("java.class.path"), Main.class.getName()));
    // On a machine that does much else, ranks need long for their part of TLS.
    command.addAll(List.of("dump", "--limit", "4000", target));
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().putAll(variables);
    Process process = builder.start();
    String out = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    if (!process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
      process.destroyForcibly();
    }
    return out;
  }
}
