package io.fluxccl.cli;

import io.fluxccl.bootstrap.JobSecret;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.Map;

/**
 * The environment variables that tell a process which rank it is. The secret travels this way only:
 * a command line is for everybody to read.
 *
 * @param nRanks how many ranks there are
 * @param address where rank 0 listens, as host:port
 * @param secret what admits a process to the job
 */
record RankVariables(int nRanks, String address, String secret) {
  /** This process's rank. */
  static final String RANK = "FLUXCCL_RANK";

  /** How many ranks there are. */
  static final String RANKS = "FLUXCCL_NRANKS";

  /** This process's number among those of its host. */
  static final String LOCAL_RANK = "FLUXCCL_LOCAL_RANK";

  /** How many processes of the job its host has. */
  static final String LOCAL_SIZE = "FLUXCCL_LOCAL_SIZE";

  /** Where rank 0 listens. */
  static final String ADDRESS = "FLUXCCL_ADDR";

  /** What admits a process to the job. */
  static final String SECRET = "FLUXCCL_SECRET";

  /** All that a process needs to join a job, in one: the address and the secret. */
  static final String UNIQUE_ID = "FLUXCCL_UNIQUE_ID";

  /** The launcher; a rank of {@code fluxccl} ends when that process is gone. */
  static final String PARENT = "FLUXCCL_PARENT_PID";

  private static final int SECRET_BYTES = 32;

  /** Variables of a new job on this host: a free port and a random secret. */
  static RankVariables forThisHost(int nRanks) throws IOException {
    byte[] secret = new byte[SECRET_BYTES];
    new SecureRandom().nextBytes(secret);
    InetAddress loopback = InetAddress.getByName("127.0.0.1");
    try (ServerSocket socket = new ServerSocket(0, 1, loopback)) {
      return new RankVariables(
          nRanks,
          loopback.getHostAddress() + ":" + socket.getLocalPort(),
          HexFormat.of().formatHex(secret));
    }
  }

  /** Adds what one rank needs, and removes what would lead it to another job. */
  void addTo(Map<String, String> environment, int rank) {
    environment.put(RANK, Integer.toString(rank));
    environment.put(RANKS, Integer.toString(nRanks));
    environment.put(LOCAL_RANK, Integer.toString(rank));
    environment.put(LOCAL_SIZE, Integer.toString(nRanks));
    environment.put(ADDRESS, address);
    environment.put(SECRET, secret);
    environment.remove(JobSecret.FILE_VARIABLE);
    environment.remove(UNIQUE_ID);
    environment.put(PARENT, Long.toString(ProcessHandle.current().pid()));
  }
}
