// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.bootstrap.JobSecret;
import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.net.ServerSocket;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;

/**
 * The environment variables that give a process its rank. The secret is passed only this way,
 * because every user of the machine can read a command line.
 *
 * @param nRanks how many ranks there are
 * @param address where rank 0 listens, as host:port
 * @param secret the secret of the job, which a process needs to join
 */
record RankVariables(int nRanks, String address, String secret) {
  /** The rank of this process. */
  static final String RANK = "FLUXCCL_RANK";

  /** The number of ranks. */
  static final String RANKS = "FLUXCCL_NRANKS";

  /** The secret of the job. */
  static final String SECRET = JobSecret.VARIABLE;

  /** Address and secret of the job in one. */
  static final String UNIQUE_ID = "FLUXCCL_UNIQUE_ID";

  /** The launcher; a rank of {@code fluxccl} ends when that process has ended. */
  static final String PARENT = "FLUXCCL_PARENT_PID";

  /** The host of the job's address: the first of these that this network namespace has. */
  private static final List<String> LOOPBACKS = List.of("127.0.0.1", "::1");

  /** Returns the variables of a new job on this host, with a free port and a random secret. */
  static RankVariables forThisHost(int nRanks) throws IOException {
    for (String address : LOOPBACKS) {
      InetAddress loopback = InetAddress.getByName(address);
      // A port can be bound there, even though nothing can connect to it.
      NetworkInterface carrier = NetworkInterface.getByInetAddress(loopback);
      if (carrier != null && carrier.isUp()) {
        try (ServerSocket socket = freePort(loopback, 100)) {
          String host = address.indexOf(':') < 0 ? address : "[" + address + "]";
          String place = host + ":" + socket.getLocalPort();
          return new RankVariables(nRanks, place, JobSecret.random().text());
        }
      }
    }
    throw new IOException(
        "this network namespace has neither of the addresses for ranks, 127.0.0.1 and ::1;"
            + " run: ip link set lo up");
  }

  /**
   * Binds a free port, below those that most systems give to other sockets before rank 0 has it.
   */
  private static ServerSocket freePort(InetAddress loopback, int attempts) throws IOException {
    try {
      return new ServerSocket(ThreadLocalRandom.current().nextInt(10_000, 30_000), 1, loopback);
    } catch (BindException e) {
      if (attempts == 1) {
        throw e;
      }
      return freePort(loopback, attempts - 1);
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
