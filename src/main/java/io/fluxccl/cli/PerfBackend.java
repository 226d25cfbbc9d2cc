package io.fluxccl.cli;

import io.fluxccl.collective.Collective;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.transport.Transport;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** What the command line needs of the library below it. */
interface PerfBackend {
  /**
   * How ranks are made.
   *
   * @param device which device
   * @param transport the one transport to use, or empty to choose by what can reach whom
   * @param timeout of set-up and of one collective
   * @param register whether buffers are registered
   * @param algorithms names of algorithms to be used wherever they can
   * @param tuning the file by which algorithms are chosen
   * @param compare whether NCCL is measured too
   */
  record RankOptions(
      DeviceChoice device,
      Optional<Transport> transport,
      Duration timeout,
      boolean register,
      Map<Collective, String> algorithms,
      Optional<Path> tuning,
      boolean compare) {}

  /** Makes the ranks of one JVM: called once by each rank's own thread, all at the same time. */
  @FunctionalInterface
  interface InProcessRanks {
    /**
     * Opens a rank and returns when it has found the others.
     *
     * @param rank from 0
     * @return the rank; the caller closes it
     */
    PerfRank open(int rank);
  }

  /**
   * Opens the rank that the environment (FLUXCCL_RANK and so on) says this process is, and returns
   * when it has found the others.
   *
   * @param options how
   * @return the rank; the caller closes it
   * @throws io.fluxccl.InvalidUsage if the environment names no rank
   */
  PerfRank fromEnvironment(RankOptions options);

  /**
   * Ranks that share this JVM.
   *
   * @param nRanks how many
   * @param options how
   * @return opens each
   */
  InProcessRanks inProcess(int nRanks, RankOptions options);

  /** What GPUs need and whether it is there, by name, for {@code info}. */
  default Map<String, String> gpuSupport() {
    return Map.of();
  }

  /** One line for each device, beside the host, that {@code info} lists. */
  List<String> devices();

  /** One line for each collective algorithm that {@code info} lists. */
  List<String> algorithms();
}
