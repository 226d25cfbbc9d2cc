package io.fluxccl.cli;

import io.fluxccl.bootstrap.JobSecret;
import java.io.IOException;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.net.ServerSocket;
import java.util.Map;

/**
 * The environment variables that tell a process its rank. The secret is passed only this way,
 * because every user of the machine can read a command line.
 *
 * @param nRanks how many ranks there are
 * @param address where rank 0 listens, as host:port
 * @param secret the secret of the job, which a process needs to join
 */
record RankVariables(int nRanks, String address, String secret) {
  /** The rank of this process. */
  static final String RANK = "FLUXCCL_RANK";

  /** How many ranks there are. */
  static final String RANKS = "FLUXCCL_NRANKS";

  /** The secret of the job. */
  static final String SECRET = JobSecret.VARIABLE;

  /** Address and secret of the job in one. */
  static final String UNIQUE_ID = "FLUXCCL_UNIQUE_ID";

  /** The launcher; a rank of {@code fluxccl} ends when that process is gone. */
  static final String PARENT = "FLUXCCL_PARENT_PID";

  /** Returns the variables of a new job on this host, with a free port and a random secret. */
  static RankVariables forThisHost(int nRanks) throws IOException {
    InetAddress loopback = InetAddress.getByName("127.0.0.1");
    // A port can be bound there, even though nothing can connect to it.
    NetworkInterface carrier = NetworkInterface.getByInetAddress(loopback);
    if (carrier == null || !carrier.isUp()) {
      throw new IOException(
          "this network namespace has no 127.0.0.1, where ranks meet; run: ip link set lo up");
    }
    try (ServerSocket socket = new ServerSocket(0, 1, loopback)) {
      String address = loopback.getHostAddress() + ":" + socket.getLocalPort();
      return new RankVariables(nRanks, address, JobSecret.random().text());
    }
  }

  /** Adds the variables of one rank, and removes those of another job. */
  void addTo(Map<String, String> environment, int rank) {
    environment.put(RANK, Integer.toString(rank));
    environment.put(RANKS, Integer.toString(nRanks));
    environment.put("FLUXCCL_LOCAL_RANK", Integer.toString(rank));
    environment.put("FLUXCCL_LOCAL_SIZE", Integer.toString(nRanks));
    environment.put("FLUXCCL_ADDR", address);
    environment.put(SECRET, secret);
    environment.remove(JobSecret.FILE_VARIABLE);
    environment.remove(UNIQUE_ID);
    environment.put(PARENT, Long.toString(ProcessHandle.current().pid()));
  }
}
