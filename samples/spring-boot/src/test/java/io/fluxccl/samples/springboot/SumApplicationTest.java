// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.springboot;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.Aborted;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.group.RankGroup;
import java.io.IOException;
import java.net.BindException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.context.event.ApplicationPreparedEvent;
import org.springframework.context.ApplicationListener;
import org.springframework.context.ConfigurableApplicationContext;

/** The application's two ranks, in one JVM, over HTTP. */
@Timeout(120)
class SumApplicationTest {
  private static final Duration LONG = Duration.ofSeconds(60);
  private static final int RANKS = 2;

  private final HttpClient client = HttpClient.newHttpClient();
  private List<ConfigurableApplicationContext> ranks = List.of();

  @BeforeEach
  void start() throws IOException {
    int port = freePort();
    String secret = JobSecret.random().text();
    List<CompletableFuture<ConfigurableApplicationContext>> starting = new ArrayList<>();
    for (int rank = 0; rank < RANKS; rank++) {
      SpringApplicationBuilder application = application(rank, port, secret);
      CompletableFuture<Void> prepared = new CompletableFuture<>();
      application.listeners(
          new ApplicationListener<ApplicationPreparedEvent>() {
            @Override
            public void onApplicationEvent(ApplicationPreparedEvent event) {
              prepared.complete(null);
            }
          });
      String name = "start-" + rank;
      starting.add(
          CompletableFuture.supplyAsync(application::run, task -> new Thread(task, name).start()));
      // One sets up logging at a time: the applications of a JVM share it.
      CompletableFuture.anyOf(prepared, starting.get(rank)).join();
    }
    ranks = starting.stream().map(CompletableFuture::join).toList();
  }

  private static SpringApplicationBuilder application(int rank, int port, String secret) {
    return new SpringApplicationBuilder(SumApplication.class)
        .properties(
            "server.port=0",
            "fluxccl.rank=" + rank,
            "fluxccl.ranks=" + RANKS,
            "fluxccl.address=127.0.0.1:" + port,
            "fluxccl.secret=" + secret,
            "fluxccl.device=host",
            "fluxccl.join-timeout=60s",
            "management.endpoint.health.show-details=always",
            "management.endpoints.web.exposure.include=health,metrics");
  }

  /** Returns a port that the system gives to no socket by itself, so that it stays free. */
  private static int freePort() throws IOException {
    while (true) {
      int port = ThreadLocalRandom.current().nextInt(30_000, 32_000);
      try (ServerSocket probe = new ServerSocket(port, 1, InetAddress.getLoopbackAddress())) {
        return probe.getLocalPort();
      } catch (BindException taken) {
        continue;
      }
    }
  }

  @AfterEach
  void stop() {
    ranks.forEach(ConfigurableApplicationContext::close);
  }

  private String get(int rank, String path) throws Exception {
    String port = ranks.get(rank).getEnvironment().getProperty("local.server.port");
    URI uri = URI.create("http://127.0.0.1:" + port + path);
    return client.send(HttpRequest.newBuilder(uri).build(), BodyHandlers.ofString()).body();
  }

  @Test
  void shouldServeSumsAndShowHealthAndMetersUntilTheGroupFails() throws Exception {
    assertThat(get(0, "/sum/14")).isEqualTo("42");
    assertThat(get(0, "/sum/-1")).isEqualTo("-3");
    for (int rank = 0; rank < RANKS; rank++) {
      assertThat(get(rank, "/actuator/health")).contains("\"fluxccl\"", "\"status\":\"UP\"");
      assertThat(get(rank, "/actuator/metrics/fluxccl.ranks")).contains("\"value\":2.0");
    }

    ranks.get(1).getBean(RankGroup.class).communicator().abort(Aborted.of(1, "out of paper"));

    for (int rank = 0; rank < RANKS; rank++) {
      int each = rank;
      await().atMost(LONG).until(() -> get(each, "/actuator/health").contains("out of paper"));
      assertThat(get(rank, "/actuator/health"))
          .contains("\"status\":\"DOWN\"", "\"failedRank\":1", "\"code\":\"ABORTED\"");
      await()
          .atMost(LONG)
          .until(() -> get(each, "/actuator/metrics/fluxccl.ranks").contains("\"value\":0.0"));
    }
    assertThat(get(0, "/sum/14")).contains("500");
  }

  @Test
  void shouldLeaveWithoutAnAbortWhileRank0Serves() {
    RankGroup first = ranks.get(0).getBean(RankGroup.class);
    SumApplication.Sums sums = ranks.get(0).getBean(SumApplication.Sums.class);
    CompletableFuture<Void> requests =
        CompletableFuture.runAsync(
            () -> {
              while (first.communicator().failure() == null) {
                sums.sum(14).onErrorComplete().block();
              }
            });
    ranks.get(1).close();
    assertThat(requests).succeedsWithin(LONG);
    assertThat(first.communicator().failure()).isNotInstanceOf(Aborted.class);
  }
}
