// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.allpairs;

import io.fluxccl.bootstrap.BootstrapOptions;
import io.fluxccl.bootstrap.RankEnvironment;
import io.fluxccl.bootstrap.TcpBootstrap;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.group.DeviceChoice;
import java.time.Duration;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** The program: parses, sets up, all-reduces twice, checks every element. */
@Command(
    name = "all-pairs-all-reduce",
    mixinStandardHelpOptions = true,
    description =
        "All-reduces integer buffers, by the host and by kernels, and checks every element.")
public final class AllPairsAllReduce implements Callable<Integer> {
  private static final Duration TIMEOUT = Duration.ofSeconds(60);
  private static final long ALIGNMENT = 16;
  private static final long MAX_BYTES = 512L << 20;
  private static final int MAX_BUFFERS = 64;

  @Spec private CommandSpec spec;

  @Option(
      names = "-n",
      paramLabel = "BUFFERS",
      defaultValue = "5",
      description = "how many buffers (${DEFAULT-VALUE})")
  private int numBuffers;

  @Option(
      names = "-b",
      paramLabel = "BYTES",
      defaultValue = "1048576",
      description = "bytes of a buffer (${DEFAULT-VALUE}), rounded up to a multiple of ranks x 16")
  private long bytes;

  @Option(
      names = "-a",
      paramLabel = "IP:PORT",
      description = "where rank 0 listens; by default what the launcher says")
  private String address;

  @Option(
      names = "--network",
      paramLabel = "NETWORK",
      defaultValue = "ETHERNET",
      description = "between hosts: ${COMPLETION-CANDIDATES} (${DEFAULT-VALUE})")
  private Network.Kind network;

  @Option(names = "--within-hosts", description = "use the network between ranks of one host, too")
  private boolean withinHosts;

  private AllPairsAllReduce() {}

  /** Runs one rank; the exit code is 0 when every element was right. */
  public static void main(String[] args) {
    System.exit(new CommandLine(new AllPairsAllReduce()).execute(args));
  }

  @Override
  public Integer call() {
    RankEnvironment environment = RankEnvironment.fromEnvironment();
    checkArguments();
    BootstrapOptions.Builder options = BootstrapOptions.builder().timeout(TIMEOUT);
    environment.secret().ifPresent(options::secret);
    try (TcpBootstrap bootstrap =
        TcpBootstrap.create(environment.rank(), environment.nRanks(), options.build())) {
      if (address == null) {
        bootstrap.initialize(environment).join();
      } else {
        bootstrap.initialize(address).join();
      }
      int localRank = environment.localRank().orElse(bootstrap.localRank());
      try (Device device = DeviceChoice.fromEnvironment().open(localRank, "sample");
          Communicator communicator = Communicator.create(bootstrap, device)) {
        System.out.println("Rank " + bootstrap.rank() + " is on " + device.description());
        run(
            communicator,
            device.createStream("sample"),
            new Network(network, withinHosts),
            numBuffers,
            bytes);
      }
      System.out.println(
          "Rank " + bootstrap.rank() + ": all " + numBuffers + " buffers are right, twice.");
      return 0;
    }
  }

  private void checkArguments() {
    if (numBuffers < 1 || numBuffers > MAX_BUFFERS) {
      throw new ParameterException(
          spec.commandLine(), "-n " + numBuffers + ": give 1 to " + MAX_BUFFERS + " buffers");
    }
    if (bytes < 1 || bytes > MAX_BYTES) {
      throw new ParameterException(
          spec.commandLine(), "-b " + bytes + ": give 1 to " + MAX_BYTES + " bytes");
    }
    if (address != null && !address.matches("(\\S+:)?\\S+:\\d{1,5}")) {
      throw new ParameterException(
          spec.commandLine(), "-a " + address + ": give ip:port or interface:ip:port");
    }
  }

  private static PairKernels kernels(DeviceSide channels, DeviceStream stream) {
    return stream.device().kind() == DeviceKind.CUDA
        ? new PairKernelsOnGpu(channels, stream)
        : new JavaKernels(channels, stream);
  }

  private static long roundUp(long bytes, int nRanks) {
    long unit = nRanks * ALIGNMENT;
    return (bytes + unit - 1) / unit * unit;
  }

  /** All-reduces the buffers of one rank twice; throws at the first element that is wrong. */
  static void run(
      Communicator communicator, DeviceStream stream, Network network, int numBuffers, long bytes) {
    long size = roundUp(bytes, communicator.bootstrap().nRanks());
    try (Mesh mesh = Mesh.build(communicator, network, numBuffers, size).join();
        DeviceSide deviceSide = DeviceSide.build(mesh).join();
        PairKernels kernels = kernels(deviceSide, stream)) {
      System.out.println("Rank " + mesh.rank + " uses " + mesh.transports());
      SampleInputs.fill(mesh);
      new HostSide(mesh, kernels).allReduce().block(TIMEOUT);
      SampleInputs.check(mesh, "host side");
      SampleInputs.fill(mesh);
      // Nobody may put into a buffer that its owner is still filling.
      mesh.barrier().then(kernels.allPairsOfAll()).block(TIMEOUT);
      SampleInputs.check(mesh, "device side");
      mesh.barrier().block(TIMEOUT);
    }
  }
}
