// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.stepserver;

import io.fluxccl.FluxCclException;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.group.StepLoop;
import org.reactivestreams.Publisher;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;
import reactor.netty.ByteBufFlux;
import reactor.netty.DisposableServer;
import reactor.netty.http.server.HttpServer;
import reactor.netty.http.server.HttpServerRequest;
import reactor.netty.http.server.HttpServerResponse;

/** A rank of the server. The one with rank 0 serves HTTP and leads the steps of the others. */
public final class StepServer {
  /** Ends the job when it completes on rank 0. */
  final Sinks.Empty<Void> stop = Sinks.empty();

  /** Bound when this rank leads for the first time. */
  final Mono<? extends DisposableServer> http;

  /** Of the current generation; null while there is none that this rank leads. */
  private volatile Batcher batcher;

  StepServer(int port) {
    http =
        HttpServer.create()
            .host("127.0.0.1")
            .port(port)
            .route(routes -> routes.get("/generate/{prompt}/{count}", this::generate))
            .bind()
            .cache();
  }

  /** Runs a rank of the job that {@code fluxccl launch} started; the argument is the HTTP port. */
  public static void main(String[] args) {
    JoinOptions options = JoinOptions.fromEnvironment().withDevice(DeviceChoice.HOST);
    new StepServer(Integer.parseInt(args[0])).serve(RankGroup.generations(options)).block();
  }

  /** Serves in one generation after the other, until {@link #stop}. */
  Mono<Void> serve(Flux<RankGroup> generations) {
    return generations
        .concatMap(group -> serve(group).onErrorComplete(FluxCclException.class)) // then the next
        .then();
  }

  private Mono<Void> serve(RankGroup group) {
    Mono<Void> served = Mono.using(() -> new Mlp(group), model -> run(group, model), Mlp::close);
    return group.run(served);
  }

  /** Takes part with the rank that this process has in this generation. */
  private Mono<Void> run(RankGroup group, Mlp model) {
    StepLoop loop = StepLoop.of(group, Mlp.MAX_BATCH, 1, model::step);
    if (group.rank() > 0) {
      return loop.follow();
    }
    Batcher requests = new Batcher(loop, model);
    Mono<Void> stopped = stop.asMono().then(Mono.fromFuture(loop::shutdown));
    return http.doOnNext(bound -> batcher = requests)
        .then(Mono.firstWithSignal(loop.ended(), stopped))
        .doOnTerminate(() -> batcher = null)
        .doOnError(requests::fail);
  }

  private Publisher<Void> generate(HttpServerRequest request, HttpServerResponse response) {
    int prompt = number(request.param("prompt"), Mlp.TOKENS - 1);
    int count = number(request.param("count"), 1_000_000);
    Batcher requests = batcher;
    boolean serves = requests != null && !requests.hasFailed();
    if (prompt < 0 || count < 1 || !serves) {
      return response.status(serves ? 400 : 503).send();
    }
    return requests
        .generate((byte) prompt, count)
        .map(tokens -> response.sse().send(events(tokens), each -> true).then())
        .orElseGet(() -> response.status(429).send());
  }

  private static int number(String text, int max) {
    return text.matches("\\d{1,7}") && Integer.parseInt(text) <= max ? Integer.parseInt(text) : -1;
  }

  private static ByteBufFlux events(Flux<Byte> tokens) {
    return ByteBufFlux.fromString(
        tokens
            .map(token -> "data: " + token + "\n\n")
            .onErrorResume(e -> Mono.just("event: error\ndata: " + e.getMessage() + "\n\n")));
  }
}
