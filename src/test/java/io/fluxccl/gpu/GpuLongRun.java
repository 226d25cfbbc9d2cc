// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.gpu;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.collective.Pipeline;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.transport.Transport;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import reactor.core.publisher.Mono;

/**
 * A rank that joins one job per line of its standard input. In each it all-reduces on its GPU until
 * a failure, and prints the failure and its time, on the clock that all processes of a machine
 * share. Started by {@link RankDeathGpuTest}.
 */
final class GpuLongRun {
  private static final int LARGE = 4 << 20;
  private static final int SMALL = 100;
  private static final Duration LIMIT = Duration.ofSeconds(30);

  private GpuLongRun() {}

  /** Arguments: rank, number of ranks. A line of input: address, secret, transport or auto. */
  public static void main(String[] args) throws Exception {
    int rank = Integer.parseInt(args[0]);
    int nRanks = Integer.parseInt(args[1]);
    BufferedReader jobs =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (CudaDevice device = CudaDevice.open(rank % CudaDriver.count());
        DeviceBuffer buffer = device.allocate(LARGE)) {
      System.out.println("ready");
      for (String job = jobs.readLine(); job != null; job = jobs.readLine()) {
        run(rank, nRanks, job.split(" "), device, buffer);
        System.out.println("closed");
      }
    }
  }

  private static void run(
      int rank, int nRanks, String[] job, CudaDevice device, DeviceBuffer buffer) {
    RankEnvironment environment =
        RankEnvironment.from(
            Map.of(
                "FLUXCCL_RANK",
                Integer.toString(rank),
                "FLUXCCL_NRANKS",
                Integer.toString(nRanks),
                "FLUXCCL_ADDR",
                job[0],
                "FLUXCCL_SECRET",
                job[1]));
    BootstrapOptions.Builder options = BootstrapOptions.builder();
    environment.secret().ifPresent(options::secret);
    CollectivesOptions how = CollectivesOptions.DEFAULT.withTimeout(LIMIT);
    if (!job[2].equals("auto")) {
      how = how.withTransport(Transport.valueOf(job[2]));
    }
    try (TcpBootstrap bootstrap = TcpBootstrap.create(rank, nRanks, options.build())) {
      bootstrap.initialize(environment).join();
      try (Communicator communicator = Communicator.create(bootstrap, device);
          Collectives collectives = Collectives.create(communicator, how).join()) {
        reduceUntilItFails(collectives, buffer);
      }
    }
  }

  private static void reduceUntilItFails(Collectives collectives, DeviceBuffer buffer) {
    Mono<Void> small = collectives.allReduce(buffer, buffer, SMALL, DataType.INT32, ReduceOp.SUM);
    Pipeline both =
        collectives
            .pipeline()
            .allReduce(buffer, DataType.INT32, ReduceOp.SUM)
            .allReduce(buffer, buffer, SMALL, DataType.INT32, ReduceOp.SUM);
    small.block();
    System.out.println("running");
    try {
      while (true) {
        both.run().block();
      }
    } catch (RuntimeException e) {
      // The clock first: what comes next takes time.
      long now = System.nanoTime();
      FluxCclException failure = FluxCclException.from(e);
      System.out.println("failed " + failure.code() + " rank=" + failure.rank() + " at=" + now);
      System.out.println(failure.getMessage());
    }
  }
}
