// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/** The CUDA toolkit's compiler. Runs in its own process and temporary folder. */
final class Nvcc extends KernelCompiler.Toolchain {
  private static final String FOLDER_PREFIX = "fluxccl-nvcc-";
  private static final Duration QUESTION_TIMEOUT = Duration.ofSeconds(20);
  private static final Pattern RELEASE = Pattern.compile("release [0-9.]+, V([0-9.]+)");
  private static final Pattern ARCHITECTURE = Pattern.compile("^sm_([0-9]+)$", Pattern.MULTILINE);

  private final Path program;

  private Nvcc(Path program) {
    super(
        RELEASE
            .matcher(answer(program, "--version"))
            .results()
            .map(result -> "nvcc " + result.group(1) + " (" + program + ")")
            .findFirst()
            .orElse("nvcc ? (" + program + ")"),
        ARCHITECTURE
            .matcher(answer(program, "--list-gpu-code"))
            .results()
            .mapToInt(result -> Integer.parseInt(result.group(1)))
            .toArray());
    this.program = program;
  }

  /**
   * Finds nvcc.
   *
   * @throws DeviceFailure if there is none; lists the searched paths
   */
  static Nvcc find(CudaToolkit toolkit) {
    List<Path> candidates = toolkit.nvccCandidates();
    for (Path candidate : candidates) {
      if (Files.isExecutable(candidate)) {
        return new Nvcc(candidate);
      }
    }
    throw new DeviceFailure(
        0,
        "NVCC_MISSING",
        Text.of(
            "no nvcc found; looked for %s; install the CUDA toolkit or set CUDA_HOME to its folder",
            candidates));
  }

  @Override
  CudaModule.Image compile(
      KernelCompiler.Source source, CudaCompileOptions options, KernelCompiler.Target target) {
    try (TemporaryFolder folder = TemporaryFolder.create(FOLDER_PREFIX)) {
      return compileIn(folder.path(), source, options, target);
    } catch (IOException e) {
      throw new DeviceFailure(0, "NVCC", "nvcc's temporary files: " + e, e);
    }
  }

  private CudaModule.Image compileIn(
      Path folder,
      KernelCompiler.Source source,
      CudaCompileOptions options,
      KernelCompiler.Target target)
      throws IOException {
    Path headers = Files.createDirectory(folder.resolve("include"));
    for (Map.Entry<String, String> header : source.packed().entrySet()) {
      Path file = headers.resolve(header.getKey()).normalize();
      if (!file.startsWith(headers)) {
        throw new InvalidUsage(source.name() + " includes " + header.getKey());
      }
      Files.createDirectories(file.getParent());
      Files.writeString(file, header.getValue());
    }
    Path input = folder.resolve("kernel.cu");
    // Compiler messages and assertions in kernels then name the user's source.
    String name = source.name().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ");
    Files.writeString(input, "#line 1 \"" + name + "\"\n" + source.text());
    Path output = folder.resolve(target.cubin() ? "kernel.cubin" : "kernel.ptx");
    List<String> command = new ArrayList<>();
    command.add(program.toString());
    command.add(target.cubin() ? "-cubin" : "-ptx");
    command.addAll(arguments(target, options, List.of(headers)));
    command.addAll(List.of("-o", output.toString(), input.toString()));
    Run run = run(command, folder, options.timeout());
    if (run.exitCode() != 0 || !Files.isRegularFile(output)) {
      throw InvalidUsage.of(
          "%s did not compile %s: exit code %s, command %s\n%s",
          version, source.name(), run.exitCode(), String.join(" ", command), run.output().strip());
    }
    return target.image(Files.readAllBytes(output));
  }

  private static String answer(Path program, String question) {
    try (TemporaryFolder folder = TemporaryFolder.create(FOLDER_PREFIX)) {
      Run run = run(List.of(program.toString(), question), folder.path(), QUESTION_TIMEOUT);
      if (run.exitCode() != 0) {
        throw new DeviceFailure(
            run.exitCode(),
            "NVCC",
            program + " " + question + " ends with code " + run.exitCode() + ": " + run.output());
      }
      return run.output();
    } catch (IOException e) {
      throw new DeviceFailure(0, "NVCC", program + " can't be run: " + e, e);
    }
  }

  private record Run(int exitCode, String output) {}

  private static Run run(List<String> command, Path folder, Duration timeout) throws IOException {
    Path output = folder.resolve("output.txt"); // not a pipe, which would fill up and block nvcc
    Process process =
        new ProcessBuilder(command)
            .directory(folder.toFile())
            .redirectErrorStream(true)
            .redirectOutput(output.toFile())
            .redirectInput(ProcessBuilder.Redirect.from(Path.of("/dev/null").toFile()))
            .start();
    try {
      if (!process.waitFor(timeout.toNanos(), TimeUnit.NANOSECONDS)) {
        throw new Timeout(
            Timeout.NO_RANK,
            command.get(0) + " did not end within " + timeout.toMillis() + " ms: " + command);
      }
      return new Run(process.exitValue(), Files.readString(output));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new io.fluxccl.Aborted(
          Timeout.NO_RANK, "the thread was interrupted while " + command.get(0) + " ran", e);
    } finally {
      // nvcc starts other processes, which must not outlive it.
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
  }
}
