// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.samples.alltoall.CustomAllToAll;
import io.fluxccl.samples.foreign.ForeignMemory;
import io.fluxccl.samples.fusion.Fusion;
import io.fluxccl.samples.overlap.Overlap;
import io.fluxccl.samples.pipeline.TwoLayers;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.RequiresGpus;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/** The samples whose kernels may run on GPUs; each checks its results itself. */
class GpuSamplesTest {
  private static final String OVERLAP = "samples/overlap/overlap.cu";
  private static final String FUSION = "samples/fusion/fusion.cu";
  private static final String PIPELINE = "samples/pipeline/layer.cu";
  private static final String BYTES = EmulatedGpus.HERE ? "100000" : "1000000";
  private static final String TIMES = EmulatedGpus.HERE ? "1" : "3";
  private static final String ALL_TO_ALL = "samples/custom-all-to-all/all_to_all.cu";

  @Test
  @EmulatedGpus
  @RequiresGpus
  void shouldOverlapComputingAndSending() {
    // The last tile is smaller than the others.
    assertThat(run(Overlap::run, OVERLAP, "-b", BYTES, "-t", "7", "-w", "5", "-i", TIMES)).isZero();
  }

  @Test
  @EmulatedGpus
  @RequiresGpus
  void shouldComputeAndPutInOneKernel() {
    assertThat(run(Fusion::run, FUSION, "-b", BYTES, "-t", "4000", "-w", "5", "-i", TIMES))
        .isZero();
  }

  @Test
  @EmulatedGpus
  @RequiresGpus
  void shouldRunAnAllToAllOfOnesOwn() {
    String sizes = EmulatedGpus.HERE ? "16,4112,65536" : "16,4112,1048576";
    assertThat(run(CustomAllToAll::run, ALL_TO_ALL, "-b", sizes, "-i", TIMES)).isZero();
  }

  @Test
  @RequiresGpus
  void shouldDoStepsAsPipelines() {
    assertThat(run(TwoLayers::run, PIPELINE, "-d", "cuda", "-s", "96", "-i", "20")).isZero();
  }

  @Test
  void shouldDoStepsAsPipelinesOnTheHost() {
    assertThat(run(TwoLayers::run, PIPELINE, "-d", "host", "-n", "3", "-s", "96", "-i", "20"))
        .isZero();
  }

  @Test
  @RequiresGpus
  void shouldAllReduceAnEnginesMemoryOnItsStream() {
    assertThat(ForeignMemory.run("-d", "cuda", "-s", "300000", "-i", "50")).isZero();
  }

  @Test
  void shouldAllReduceAnEnginesMemoryOnTheHost() {
    assertThat(ForeignMemory.run("-d", "host", "-n", "3", "-s", "30000", "-i", "5")).isZero();
  }

  @Test
  void shouldFailWithAMessageIfThereIsNoGpu() {
    assumeTrue(CudaDriver.count() == 0, "there are GPUs");
    PrintStream before = System.err;
    ByteArrayOutputStream said = new ByteArrayOutputStream();
    System.setErr(new PrintStream(said, true, StandardCharsets.UTF_8));
    try {
      assertThat(run(Overlap::run, OVERLAP)).isOne();
    } finally {
      System.setErr(before);
    }
    assertThat(said.toString(StandardCharsets.UTF_8))
        .contains("there is none: ", "samples/all-pairs-all-reduce");
  }

  /** The folder that holds the samples: above the classes, here and in a bundle. */
  private static Path home() {
    Path folder = classes();
    while (!Files.isRegularFile(folder.resolve(OVERLAP))) {
      folder = folder.getParent();
      assertThat(folder).as("a folder above %s with %s", classes(), OVERLAP).isNotNull();
    }
    return folder;
  }

  private static Path classes() {
    try {
      return Path.of(Overlap.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    } catch (URISyntaxException e) {
      throw new IllegalStateException(e);
    }
  }

  private interface Program {
    int run(String... args);
  }

  private static int run(Program program, String kernels, String... options) {
    String[] args = new String[options.length + 2];
    args[0] = "--kernels";
    args[1] = home().resolve(kernels).toString();
    System.arraycopy(options, 0, args, 2, options.length);
    return program.run(args);
  }
}
