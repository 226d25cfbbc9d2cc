// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.stepserver;

import static org.awaitility.Awaitility.await;

import java.net.ConnectException;
import java.time.Duration;
import java.util.List;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.netty.ByteBufFlux;
import reactor.netty.http.client.HttpClient;
import reactor.netty.resources.ConnectionProvider;

/** A client of the server, with a connection for each request. */
final class EventClient {
  private static final Duration LONG = Duration.ofSeconds(60);

  private final HttpClient client;

  EventClient(int port) {
    client = HttpClient.create(ConnectionProvider.newConnection()).host("127.0.0.1").port(port);
  }

  Mono<Integer> status(String path) {
    return client.get().uri(path).response().map(response -> response.status().code());
  }

  /** Returns the lines of the events as they arrive; for an error, one line with the status. */
  Flux<String> tokens(int prompt, int count) {
    return client
        .get()
        .uri("/generate/" + prompt + "/" + count)
        .response((response, content) -> lines(response.status().code(), content));
  }

  private static Flux<String> lines(int status, ByteBufFlux content) {
    return status == 200
        ? content
            .asString()
            // The network cuts events anywhere.
            .concatMapIterable(text -> List.of(text.split("")))
            .bufferUntil("\n"::equals)
            .map(characters -> String.join("", characters).strip())
            .filter(line -> !line.isEmpty())
        : Flux.just("status " + status);
  }

  List<String> all(int prompt, int count) {
    return tokens(prompt, count).collectList().block(LONG);
  }

  void awaitServing() {
    Mono<Integer> served = status("/generate/1/1").onErrorReturn(ConnectException.class, 0);
    await().until(() -> served.block(LONG) == 200);
  }
}
