// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.LocalFiles;
import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.communicator.CommunicatorOptions;
import io.fluxccl.trace.FlightRecorder;
import io.fluxccl.transport.TransportFlags;
import java.math.BigDecimal;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.function.BiFunction;
import java.util.regex.Pattern;

/**
 * The environment variables of a group's options, beside those of its place: FLUXCCL_NAME,
 * FLUXCCL_JOIN_TIMEOUT, FLUXCCL_TIMEOUT, FLUXCCL_DEVICE, FLUXCCL_TUNING, FLUXCCL_NETWORK,
 * FLUXCCL_CHECKS, FLUXCCL_CHECKSUM, FLUXCCL_INSECURE, FLUXCCL_LEAST_RANKS,
 * FLUXCCL_REPLACEMENT_TIMEOUT.
 *
 * @param byName the values, by name
 */
record GroupVariables(Map<String, String> byName) {
  private static final String PREFIX = "FLUXCCL_";
  private static final String NAME = "FLUXCCL_NAME";
  private static final String JOIN_TIMEOUT = "FLUXCCL_JOIN_TIMEOUT";
  private static final String TIMEOUT = "FLUXCCL_TIMEOUT";
  private static final String LEAST_RANKS = "FLUXCCL_LEAST_RANKS";
  private static final String REPLACEMENT_TIMEOUT = "FLUXCCL_REPLACEMENT_TIMEOUT";

  /** The former name of {@link #REPLACEMENT_TIMEOUT}, which takes precedence. */
  private static final String PATIENCE = "FLUXCCL_PATIENCE";

  private static final String LIVENESS_TIMEOUT = "FLUXCCL_LIVENESS_TIMEOUT";
  private static final String TUNING = "FLUXCCL_TUNING";
  private static final String NETWORK = "FLUXCCL_NETWORK";
  private static final String CHECKS = "FLUXCCL_CHECKS";
  private static final String CHECKSUM = "FLUXCCL_CHECKSUM";
  private static final String INSECURE = BootstrapOptions.INSECURE_VARIABLE;

  /** All variables of this prefix that any part of the library or its scripts reads. */
  private static final List<String> KNOWN =
      List.of(
          "ADDR CACHE_DIR CHECKS CHECKSUM CLASSPATH CUBLASLT DEVICE DEVICE_TIMES DUMP_DIR GPU_LINK HOSTID IB_DEVICES INSECURE",
          "JAVA_OPTS JOIN_TIMEOUT LEAST_RANKS LIVENESS_TIMEOUT LOCAL_RANK LOCAL_SIZE LOG NAME NCCL"
              + " NETWORK NRANKS NVRTC OVERLAP_LAUNCHES",
          "PARENT_PID PATIENCE PORT_RANGE PROXY_IDLE RANK RECORDER REPLACEMENT_TIMEOUT RUNTIME_DIR SECRET SECRET_FILE SHM_DIR TIMEOUT TLS"
              + " TLS_AUTHORITIES TLS_CERTIFICATE TLS_KEY TUNING UNIQUE_ID",
          "NET NET_CLASSPATH NET_DEVICES NET_IFNAME NET_JAVA_HOME NET_JAVA_OPTIONS NET_JMX",
          "NET_KEEP_LOADED NET_LATENCY NET_PORT_RANGE NET_SPEED NET_STREAMS NET_TABLE NET_THREADS"
              + " NET_TIMEOUT");

  /**
   * Matches the variables that Kubernetes sets for a service whose name begins with {@code
   * fluxccl}: NAME_SERVICE_HOST, NAME_SERVICE_PORT, NAME_PORT=tcp://..., NAME_PORT_80_TCP_ADDR and
   * the like.
   */
  private static final Pattern OF_SERVICE =
      Pattern.compile(
          "FLUXCCL_(?:\\w+_)?(?:SERVICE_(?:HOST|PORT(?:_\\w+)?)=.*"
              + "|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?=.*|=\\w+://.*))");

  /** Returns the variables of this process. */
  static GroupVariables ofProcess() {
    return new GroupVariables(System.getenv());
  }

  /**
   * Returns the options of a rank of that place.
   *
   * @throws InvalidUsage naming the variable that makes no sense
   */
  JoinOptions joinOptions(RankEnvironment place) {
    DeviceChoice device = DeviceChoice.from(System.getProperty(DeviceChoice.PROPERTY), byName);
    JoinOptions options =
        new JoinOptions(
            place,
            "",
            Deadline.DEFAULT_TIMEOUT,
            false,
            device,
            collectives(),
            0,
            Duration.ZERO,
            Duration.ZERO);
    // Communicators read these variables themselves; here wrong values are refused.
    read(FlightRecorder.VARIABLE, 0, (from, text) -> FlightRecorder.calls(text));
    read(CommunicatorOptions.DEVICE_TIMES, false, (from, text) -> flag(text));
    options = read(NAME, options, JoinOptions::withName);
    options = read(JOIN_TIMEOUT, options, (from, text) -> from.withJoinTimeout(seconds(text)));
    options = read(TIMEOUT, options, (from, text) -> from.withTimeout(seconds(text)));
    options = read(LEAST_RANKS, options, (from, text) -> from.withLeastRanks(count(text)));
    for (String name : List.of(PATIENCE, REPLACEMENT_TIMEOUT)) {
      options = read(name, options, (from, text) -> from.withReplacementTimeout(seconds(text)));
    }
    options =
        read(LIVENESS_TIMEOUT, options, (from, text) -> from.withLivenessTimeout(seconds(text)));
    return read(INSECURE, options, (from, text) -> from.withInsecure(flag(text)));
  }

  private CollectivesOptions collectives() {
    CollectivesOptions options = CollectivesOptions.DEFAULT;
    options = read(TUNING, options, (from, text) -> from.withTuning(LocalFiles.path("file", text)));
    options = read(CHECKS, options, (from, text) -> from.withChecks(flag(text)));
    options = read(CHECKSUM, options, (from, text) -> from.withChecksums(flag(text)));
    return read(NETWORK, options, (from, text) -> from.withNetworks(TransportFlags.parse(text)));
  }

  private <T> T read(String name, T options, BiFunction<T, String, T> change) {
    String text = byName.getOrDefault(name, "").strip();
    try {
      return text.isEmpty() ? options : change.apply(options, text);
    } catch (InvalidUsage e) {
      throw new InvalidUsage(name + "=" + text + ": " + e.getMessage(), e);
    }
  }

  private static boolean flag(String text) {
    if (!text.equals("0") && !text.equals("1")) {
      throw new InvalidUsage("give 0 or 1");
    }
    return text.equals("1");
  }

  private static int count(String text) {
    try {
      return Integer.parseInt(text);
    } catch (NumberFormatException e) {
      throw new InvalidUsage("give a number", e);
    }
  }

  private static Duration seconds(String text) {
    try {
      return Duration.ofNanos(new BigDecimal(text).movePointRight(9).longValueExact());
    } catch (ArithmeticException | NumberFormatException e) {
      throw new InvalidUsage("give seconds, for example 30 or 0.5", e);
    }
  }

  /**
   * Returns a line for each variable whose name begins with FLUXCCL_ and that nothing reads: most
   * probably a typing error. Variables that Kubernetes sets for a service are none.
   */
  List<String> unknown() {
    TreeSet<String> known = new TreeSet<>();
    KNOWN.forEach(line -> known.addAll(List.of(line.split(" "))));
    return byName.keySet().stream()
        .filter(name -> name.startsWith(PREFIX) && !known.contains(name.substring(PREFIX.length())))
        .filter(name -> !OF_SERVICE.matcher(name + "=" + byName.get(name)).matches())
        .sorted()
        .map(name -> name + " is set, which nothing reads; did you mean " + nearest(name, known))
        .toList();
  }

  private static String nearest(String name, TreeSet<String> known) {
    return known.stream()
        .map(each -> PREFIX + each)
        .min(Comparator.comparingInt(each -> distance(name, each)))
        .orElseThrow();
  }

  /** Returns how many characters must be put in, left out or changed to get from one to another. */
  private static int distance(String one, String other) {
    int[] row = new int[other.length() + 1];
    for (int j = 0; j < row.length; j++) {
      row[j] = j;
    }
    for (int i = 1; i <= one.length(); i++) {
      int diagonal = row[0];
      row[0] = i;
      for (int j = 1; j < row.length; j++) {
        int changed = diagonal + (one.charAt(i - 1) == other.charAt(j - 1) ? 0 : 1);
        diagonal = row[j];
        row[j] = Math.min(changed, 1 + Math.min(row[j], row[j - 1]));
      }
    }
    return row[other.length()];
  }
}
