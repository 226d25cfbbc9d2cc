// SPDX-License-Identifier: Apache-2.0
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import io.kubernetes.client.openapi.JSON;
import io.kubernetes.client.openapi.models.V1Container;
import io.kubernetes.client.openapi.models.V1EnvVar;
import io.kubernetes.client.openapi.models.V1Job;
import io.kubernetes.client.openapi.models.V1Service;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.yaml.snakeyaml.Yaml;

/** samples/kubernetes/job.yaml. */
@Timeout(600)
class IndexedJobTest {
  private static final Path ROOT = Path.of(System.getProperty("fluxccl.root"));

  private final List<Process> pods = new ArrayList<>();
  private JsonObject service;
  private JsonObject job;
  @TempDir Path folder;

  @BeforeEach
  void read() throws IOException {
    List<JsonObject> documents = new ArrayList<>();
    String text = Files.readString(ROOT.resolve("samples/kubernetes/job.yaml"));
    Gson gson = new Gson();
    new Yaml().loadAll(text).forEach(each -> documents.add((JsonObject) gson.toJsonTree(each)));
    assertThat(documents).hasSize(2);
    service = documents.get(0);
    job = documents.get(1);
  }

  @AfterEach
  void endAll() {
    for (Process pod : pods) {
      pod.descendants().forEach(ProcessHandle::destroyForcibly);
      pod.destroyForcibly();
    }
  }

  @Test
  void shouldHaveNoFieldThatTheApiLacks() throws IOException {
    V1Service.validateJsonElement(service);
    V1Job.validateJsonElement(job);
  }

  @Test
  void shouldBeReadByAStrictCheck() {
    JsonObject template = job.getAsJsonObject("spec").getAsJsonObject("template");
    JsonElement value = template.getAsJsonObject("spec").remove("subdomain");
    template.getAsJsonObject("spec").add("subDomain", value);
    assertThatThrownBy(() -> V1Job.validateJsonElement(job)).hasMessageContaining("subDomain");
  }

  @Test
  void shouldNameTheServiceLikeTheJobAndSetTheNumberOfRanks() {
    V1Job read = JSON.getGson().fromJson(job, V1Job.class);
    V1Service headless = JSON.getGson().fromJson(service, V1Service.class);
    String name = read.getMetadata().getName();
    assertThat(read.getSpec().getCompletionMode()).isEqualTo("Indexed");
    assertThat(read.getSpec().getParallelism()).isEqualTo(read.getSpec().getCompletions());
    assertThat(read.getSpec().getTemplate().getSpec().getSubdomain()).isEqualTo(name);
    assertThat(headless.getMetadata().getName()).isEqualTo(name);
    assertThat(headless.getSpec().getClusterIP()).isEqualTo("None");
    assertThat(headless.getSpec().getSelector())
        .isEqualTo(Map.of("batch.kubernetes.io/job-name", name));
    assertThat(container(read).getEnv())
        .contains(
            new V1EnvVar().name("FLUXCCL_NRANKS").value("" + read.getSpec().getCompletions()));
  }

  @Test
  void shouldRunInProcessesWithTheVariablesAndNamesOfItsPods() throws Exception {
    V1Job read = JSON.getGson().fromJson(job, V1Job.class);
    String name = read.getMetadata().getName();
    int nRanks = read.getSpec().getCompletions();
    // An address of its own, as a pod has, so that other programs may have the port.
    long pid = ProcessHandle.current().pid();
    String address = "127.%d.%d.%d".formatted(1 + pid % 250, pid / 250 % 250, 1 + pid / 62500);
    Path names =
        Files.writeString(
            folder.resolve("names"),
            "127.0.0.1 localhost\n%s %s-0.%s\n".formatted(address, name, name));
    for (int index = 0; index < nRanks; index++) {
      start(container(read), name + "-" + index, index, names);
    }
    for (int index = 0; index < nRanks; index++) {
      assertThat(pods.get(index).waitFor(400, TimeUnit.SECONDS)).isTrue();
      String printed = Files.readString(folder.resolve("" + index));
      assertThat(pods.get(index).exitValue()).as(printed).isZero();
    }
    assertThat(folder.resolve("0"))
        .content()
        .contains("# nRanks " + nRanks + " ")
        .contains("Out of bounds values : 0 OK");
  }

  private static V1Container container(V1Job job) {
    return job.getSpec().getTemplate().getSpec().getContainers().get(0);
  }

  private void start(V1Container container, String hostName, int index, Path names)
      throws IOException {
    assertThat(container.getCommand()).containsExactly("bin/fluxccl");
    List<String> command = new ArrayList<>(List.of(ROOT.resolve("fluxccl").toString()));
    command.addAll(container.getArgs());
    command.addAll(List.of("-b", "1K", "-e", "64K", "-f", "64", "-n", "5", "--jit-warmup", "0"));
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.redirectOutput(folder.resolve("" + index).toFile());
    Map<String, String> environment = builder.environment();
    environment.keySet().removeIf(each -> each.startsWith("FLUXCCL_"));
    for (V1EnvVar each : container.getEnv()) {
      boolean secret = each.getValueFrom() != null;
      environment.put(each.getName(), secret ? "of secret train, key secret" : each.getValue());
    }
    environment.put("JOB_COMPLETION_INDEX", "" + index);
    environment.put("HOSTNAME", hostName);
    environment.put("FLUXCCL_DEVICE", "host");
    environment.put("FLUXCCL_JAVA_OPTS", "-XX:TieredStopAtLevel=1 -Djdk.net.hosts.file=" + names);
    pods.add(builder.start());
  }
}
