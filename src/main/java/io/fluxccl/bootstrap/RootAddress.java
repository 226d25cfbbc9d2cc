// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.settings.Settings;
import io.netty.util.NetUtil;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalInt;
import java.util.function.Supplier;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The address of the root, as users write it: {@code host:port} or {@code interface:host:port}; an
 * IPv6 address stands in brackets.
 *
 * @param networkInterface the name of the network interface to use, or null
 */
record RootAddress(String networkInterface, String host, int port) {
  private static final Pattern FORM =
      Pattern.compile(
          "(?:([A-Za-z0-9_.@-]{1,64}):)?(\\[[0-9A-Fa-f:.%]+\\]|[^:\\[\\]\\s]+):(\\d{1,5})");
  private static final int MAX_LENGTH = 512;

  /**
   * Reads an address.
   *
   * @throws InvalidUsage if it has another form or the port is over 65535
   */
  static RootAddress parse(String text) {
    Matcher matcher = text == null || text.length() > MAX_LENGTH ? null : FORM.matcher(text);
    if (matcher == null || !matcher.matches()) {
      throw InvalidUsage.of(
          "address=%s; give ip:port or interface:ip:port, for example eth0:10.0.0.1:29500%s",
          matcher == null && text != null ? "(too long)" : text,
          matcher == null ? "" : adviceOnBrackets(text));
    }
    int port = Integer.parseInt(matcher.group(3));
    if (port > 65535) {
      throw InvalidUsage.of("address=%s: the port is over 65535", text);
    }
    String host = matcher.group(2);
    boolean bracketed = host.charAt(0) == '[';
    if (bracketed && !NetUtil.isValidIpV6Address(host)) {
      throw InvalidUsage.of("address=%s: %s is no IPv6 address", text, host);
    }
    return new RootAddress(
        matcher.group(1), bracketed ? host.substring(1, host.length() - 1) : host, port);
  }

  /**
   * Reads a list of addresses, separated by commas.
   *
   * @throws InvalidUsage as {@link #parse}
   */
  static List<RootAddress> parseList(String text) {
    return text == null
        ? List.of(parse(null))
        : Arrays.stream(text.split(",", -1)).map(RootAddress::parse).toList();
  }

  /**
   * Returns the IP address of the host. Blocks: a name server may take seconds.
   *
   * @throws InvalidUsage if the host is unknown
   */
  InetAddress resolve() {
    try {
      return InetAddress.getByName(host);
    } catch (UnknownHostException e) {
      throw new InvalidUsage("address=" + this + ": the host is unknown", e);
    }
  }

  /** Returns advice for an IPv6 address without brackets, or an empty text if there is none. */
  private static String adviceOnBrackets(String text) {
    for (int begin : new int[] {0, text.indexOf(':') + 1}) {
      String address = text.substring(begin);
      int end = address.lastIndexOf(':');
      // The port comes last; fd00::2:2950 is an address and a port, though it could be an address.
      boolean withPort = end >= 0 && NetUtil.isValidIpV6Address(address.substring(0, end));
      if (withPort || NetUtil.isValidIpV6Address(address)) {
        String ip = (withPort ? address.substring(0, end) : address).replaceAll("[\\[\\]]", "");
        String port = withPort ? address.substring(end + 1) : "29500";
        String right = Text.of("%s[%s]:%s", text.substring(0, begin), ip, port);
        return right.equals(text) ? "" : "; an IPv6 address stands in brackets: " + right;
      }
    }
    return "";
  }

  @Override
  public String toString() {
    return (networkInterface == null ? "" : networkInterface + ":")
        + (host.indexOf(':') >= 0 ? "[" + host + "]" : host)
        + ":"
        + port;
  }

  /**
   * The address of the root when the user gave none. Every rank of a job derives the same one by
   * itself, and two jobs on one host most probably different ones.
   *
   * @param text the address, or null when it can't be known
   * @param jobIdentity a text that no other job has, or empty
   */
  record Derived(String text, String jobIdentity) {
    static final String ONE_RANK = "127.0.0.1:0";

    private static final int FIRST_PORT = 20_000;
    private static final int PORTS = 10_000;

    /** Each pod has an address of its own. */
    private static final int KUBERNETES_PORT = 29500;

    // Each of them differs between jobs and is the same for all ranks of a job.
    private static final String IDENTITIES =
        "OMPI_MCA_orte_precondition_transports PMIX_NAMESPACE OMPI_MCA_ess_base_jobid"
            + " PMIX_SERVER_URI2 PMI_PORT";

    private static final int MAX_LIST = 4096;

    /** Between two hosts, not within a bracket. */
    private static final Pattern COMMA = Pattern.compile(",(?![^\\[]*\\])");

    private static final String NUMBERS = "[0-9]{1,18}(?:-[0-9]{1,18})?";
    private static final Pattern HOST =
        Pattern.compile("(?:[A-Za-z0-9_.-]++|\\[" + NUMBERS + "(?:," + NUMBERS + ")*+\\])++");
    private static final Pattern BRACKET = Pattern.compile("\\[([0-9]+)[^\\]]*\\]");

    /** A range within a bracket. */
    private static final Pattern RANGE =
        Pattern.compile("(?<=[\\[,])([0-9]{1,18})-([0-9]{1,18})(?=[\\],])");

    /** Returns an address that the user gave, or null. */
    static Derived given(String text) {
      return new Derived(text, "");
    }

    /** Derives the address from the variables of a launcher. */
    static Derived of(
        String launcher,
        Settings from,
        int rank,
        int nRanks,
        OptionalInt localSize,
        Supplier<String> lastResort) {
      if (nRanks == 1) {
        return given(ONE_RANK);
      }
      return switch (launcher) {
        case "torchrun" -> given(ofTorchrun(from));
        case LauncherPlace.SLURM -> ofSlurm(from);
        case LauncherPlace.KUBERNETES -> given(ofKubernetes(from.text("HOSTNAME"), rank));
        default -> {
          // Only on one host: nothing is known of the ports of others.
          boolean oneHost = localSize.isEmpty() || localSize.getAsInt() == nRanks;
          String identity = from.firstSet(IDENTITIES);
          String text = identity == null ? lastResort.get() : from.text(identity);
          yield oneHost && text != null ? ofHost("127.0.0.1", text) : given(null);
        }
      };
    }

    /** Returns an address of a host whose port is derived from the job's identity. */
    private static Derived ofHost(String host, String identity) {
      return new Derived(host + ":" + portOf(identity), identity);
    }

    private static String ofTorchrun(Settings from) {
      String host = from.text("MASTER_ADDR");
      if (host == null || from.text("MASTER_PORT") == null) {
        return null;
      }
      int port = from.number("MASTER_PORT", 1, 65534).getAsInt();
      // Under torchrun its agent listens at that port itself.
      boolean taken = "True".equalsIgnoreCase(from.text("TORCHELASTIC_USE_AGENT_STORE"));
      boolean ipv6 = NetUtil.isValidIpV6Address(host);
      String bracketed = ipv6 && host.charAt(0) != '[' ? "[" + host + "]" : host;
      String address = bracketed + ":" + (port + (taken ? 1 : 0));
      if (!ipv6 && host.indexOf(':') >= 0) {
        throw noHost(host, null);
      }
      try {
        return RootAddress.parse(address).toString();
      } catch (InvalidUsage e) {
        throw noHost(host, e);
      }
    }

    private static InvalidUsage noHost(String host, Throwable cause) {
      return new InvalidUsage(
          "MASTER_ADDR=" + host + " is no host; give a name or an address, without a port", cause);
    }

    /**
     * Returns the address of the pod with index 0. The pods of an indexed Job have its name and
     * their index as host names; the headless service that makes these known has its name, too.
     */
    private static String ofKubernetes(String hostName, int rank) {
      String index = "-" + rank;
      if (hostName == null || !hostName.endsWith(index)) {
        return null;
      }
      String job = hostName.substring(0, hostName.length() - index.length());
      return job + "-0." + job + ":" + KUBERNETES_PORT;
    }

    private static Derived ofSlurm(Settings from) {
      String job = from.firstSet("SLURM_JOB_ID SLURM_JOBID");
      if (job == null) {
        return given(null);
      }
      String identity = from.text(job) + "." + from.text("SLURM_STEP_ID");
      String nodes = from.firstSet("SLURM_STEP_NUM_NODES SLURM_NNODES");
      if (nodes != null && from.text(nodes).equals("1")) {
        return ofHost("127.0.0.1", identity);
      }
      String name = from.firstSet("SLURM_STEP_NODELIST SLURM_NODELIST");
      return name == null ? given(null) : ofHost(firstHost(name, from.text(name)), identity);
    }

    /**
     * Returns the first host of a list such as {@code rack[1-2]node[003-010,012],login1}: each
     * bracket stands for its first number, with its zeros.
     */
    private static String firstHost(String variable, String list) {
      String[] hosts = list.length() > MAX_LIST ? new String[] {""} : COMMA.split(list, -1);
      for (String host : hosts) {
        if (!HOST.matcher(host).matches()
            || RANGE.matcher(host).results().anyMatch(Derived::falls)) {
          throw InvalidUsage.of(
              "%s=%s is no list of hosts, such as rack[1-2]node[01-04],login1; set %s=ip:port, an"
                  + " address of rank 0's host, on all ranks",
              variable, list, RankEnvironment.ADDRESS);
        }
      }
      return BRACKET.matcher(hosts[0]).replaceAll("$1");
    }

    private static boolean falls(MatchResult range) {
      return Long.parseLong(range.group(1)) > Long.parseLong(range.group(2));
    }

    static int portOf(String identity) {
      return FIRST_PORT + (int) Math.floorMod(HostIdentity.hash(identity), (long) PORTS);
    }

    /** Returns a text that is equal for all processes that one launcher started on one host. */
    static String ofParentProcess() {
      return ProcessHandle.current()
          .parent()
          .map(
              parent ->
                  Text.of(
                      "%s|%s",
                      parent.pid(),
                      parent.info().startInstant().map(Instant::toString).orElse("unknown")))
          .orElse(null);
    }
  }
}
