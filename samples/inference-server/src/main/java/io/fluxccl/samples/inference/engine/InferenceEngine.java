// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import io.fluxccl.FluxCclException;
import io.fluxccl.group.RankGroup;
import io.fluxccl.group.StepLoop;
import io.fluxccl.samples.inference.engine.Refused.Reason;
import io.fluxccl.samples.inference.engine.TextPiece.End;
import io.fluxccl.samples.inference.model.ChatTemplate;
import io.fluxccl.samples.inference.model.GenerationDefaults;
import io.fluxccl.samples.inference.model.LlamaConfig;
import io.fluxccl.samples.inference.model.SafeTensors;
import io.fluxccl.samples.inference.model.Tokenizer;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.IntStream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.publisher.Sinks;
import reactor.core.scheduler.Scheduler;
import reactor.core.scheduler.Schedulers;

/**
 * A rank of the server. Every rank runs its part of the model in successive generations; rank 0 has
 * the requests and leads the steps. Only rank 0 stores them, so they survive the death of any other
 * rank: the next generation computes their caches again and continues.
 */
public final class InferenceEngine implements TextEngine, AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(InferenceEngine.class);
  private static final Duration SOON = Duration.ofSeconds(1);
  private static final Refused NOT_FINITE =
      new Refused(
          Reason.FAILED,
          "the model computed a logit that is not a finite number; its weights, or its activations"
              + " for this prompt, exceed the range of floats",
          Duration.ZERO);
  private static final double SMOOTHING = 0.1;

  private final LlamaConfig config;
  private final SafeTensors weights;
  private final Tokenizer tokenizer;
  private final ChatTemplate chat;
  private final GenerationDefaults defaults;
  private final String name;
  private final ModelOptions options;
  private final Batch batch;

  /** Turns tokens into text, in their order, off the thread that leads the steps. */
  private final Scheduler texts = Schedulers.newSingle("texts", true);

  /** Steps whose tokens are not all on their way to the clients. */
  private final AtomicInteger unsentSteps = new AtomicInteger();

  private final AtomicLong steps = new AtomicLong();
  private final AtomicLong tokens = new AtomicLong();
  private final Sinks.Empty<Void> stop = Sinks.empty();
  private volatile double stepMillis;
  private volatile Generation serving;
  private volatile long generation;
  private volatile int nRanks;
  private volatile String device = "";

  /** The rank that the last generation lost; -1 while one serves, or if it is not known. */
  private volatile int lostRank = -1;

  /** The rank that answers no heartbeat; -1 if there is none. */
  private volatile int silentRank = -1;

  private volatile boolean draining;

  /** Its weights stay on the device between two generations; only used by the one that serves. */
  private RankModel model;

  /**
   * Opens a model's folder; nothing runs before {@link #serve}.
   *
   * @throws IOException if a file is missing or malformed
   */
  public InferenceEngine(Path folder, ModelOptions options) throws IOException {
    config = LlamaConfig.read(folder);
    weights = SafeTensors.open(folder);
    tokenizer = Tokenizer.read(folder);
    chat = ChatTemplate.read(folder, tokenizer);
    defaults = GenerationDefaults.read(folder);
    name = folder.toAbsolutePath().normalize().getFileName().toString();
    this.options = options;
    batch = new Batch(options, config.ends());
  }

  /**
   * Refuses a number of ranks that can't share the model, and a folder that lacks weights.
   *
   * @throws IllegalArgumentException that lists valid numbers, or names the tensor
   */
  public void requireServable(int ranks) {
    config.requireDivisible(ranks);
    config.requireTensors(weights);
  }

  /** Returns the chat template of the model. */
  public ChatTemplate chatTemplate() {
    return chat;
  }

  @Override
  public GenerationDefaults defaults() {
    return defaults;
  }

  /** Returns what the operator of a server should know about the model's folder. */
  public List<String> remarks() {
    List<String> remarks = new ArrayList<>();
    if (!tokenizer.addsTokens()) {
      remarks.add("tokenizer.json adds no begin token to prompts");
    }
    if (!defaults.unused().isEmpty()) {
      remarks.add("of generation_config.json, this server does not use " + defaults.unused());
    }
    return remarks;
  }

  Tokenizer tokenizer() {
    return tokenizer;
  }

  /** The steps that rank 0 leads in one generation. */
  private final class Generation {
    private final StepLoop loop;
    private final RankModel model;
    private final double communicationShare;

    // Guarded by this.
    private boolean inFlight;
    private boolean ended;
    private long begun;

    Generation(StepLoop loop, RankModel model) {
      this.loop = loop;
      this.model = model;
      this.communicationShare = model.communicationShare();
    }

    /** Begins a step, if none is in flight and there is work. */
    synchronized void step() {
      if (!inFlight && !ended) {
        attempt(this::begin);
      }
    }

    private void begin() {
      byte[] command = batch.nextStep();
      if (command != null) {
        inFlight = true;
        begun = System.nanoTime();
        loop.step(command).subscribe(null, reason -> {}, this::done);
      }
    }

    private synchronized void done() {
      if (!ended) {
        attempt(this::finish);
        step();
      }
    }

    private void finish() {
      inFlight = false;
      double millis = (System.nanoTime() - begun) / 1e6;
      stepMillis = stepMillis == 0 ? millis : stepMillis + SMOOTHING * (millis - stepMillis);
      steps.incrementAndGet();
      // Counted before the batch shrinks, because drain checks the batch first.
      unsentSteps.incrementAndGet();
      try {
        List<Batch.Token> next = batch.finishStep(model);
        tokens.addAndGet(next.size());
        texts.schedule(() -> next.forEach(InferenceEngine::send));
      } finally {
        texts.schedule(unsentSteps::decrementAndGet);
      }
    }

    /**
     * If it fails, all requests end: whichever it was, the next step would fail in the same way.
     */
    private void attempt(Runnable part) {
      try {
        part.run();
      } catch (RuntimeException e) {
        LOG.error("a step went wrong; the requests of the batch and the queue end", e);
        inFlight = false;
        failAll(new Refused(Reason.FAILED, "a step went wrong", SOON));
      }
    }

    synchronized void end() {
      ended = true;
    }
  }

  private void failAll(Refused reason) {
    List<Sequence> all = batch.clear();
    texts.schedule(() -> all.forEach(sequence -> sequence.stream.fail(reason)));
  }

  private static void send(Batch.Token token) {
    Sequence sequence = token.sequence();
    try {
      if (token.token() < 0) {
        sequence.stream.fail(NOT_FINITE);
      } else if (token.end() == End.STOP) {
        sequence.stream.end();
      } else if (!sequence.stream.add(token.token(), token.end(), token.logprobs())) {
        sequence.abandoned = true;
      }
    } catch (RuntimeException e) { // of the tokenizer: the other answers continue
      LOG.error("a token has no text", e);
      sequence.abandoned = true;
      sequence.stream.fail(e);
    }
  }

  /**
   * Takes part in one generation after the other, until {@link #close} on rank 0.
   *
   * @param generations as of {@link RankGroup#generations}
   */
  public Mono<Void> serve(Flux<RankGroup> generations) {
    return generations
        .concatMap(group -> serve(group).onErrorResume(FluxCclException.class, this::lost))
        .then();
  }

  private Mono<Void> lost(FluxCclException reason) {
    LOG.warn("generation {} ended: {}", generation, reason.getMessage());
    lostRank = reason.rank();
    return Mono.empty(); // the next generation begins
  }

  private Mono<Void> serve(RankGroup group) {
    generation = group.generation().number();
    nRanks = group.nRanks();
    device = group.device().kind().name().toLowerCase(Locale.ROOT);
    Mono<Void> served =
        Mono.using(() -> open(group), opened -> serve(group, opened), RankModel::leave);
    return served
        .subscribeOn(Schedulers.boundedElastic())
        .then(Mono.fromRunnable(this::closeModel))
        .then(Mono.defer(() -> Mono.fromFuture(group.closeAsync())));
  }

  private RankModel open(RankGroup group) {
    long begun = System.nanoTime();
    boolean keeps = model != null && model.fits(group);
    if (!keeps) {
      closeModel();
      model = new RankModel(group, config, weights, options);
    }
    model.join(group);
    LOG.info(
        "rank {} {} its weights and is ready after {} ms",
        group.rank(),
        keeps ? "has kept" : "has loaded",
        (System.nanoTime() - begun) / 1_000_000);
    return model;
  }

  private void closeModel() {
    if (model != null) {
      model.close();
      model = null;
    }
  }

  private Mono<Void> serve(RankGroup group, RankModel model) {
    int commandBytes = StepRows.commandBytes(options.maxRows());
    StepLoop loop = StepLoop.of(group, commandBytes, 1, model::step);
    if (group.rank() > 0) {
      return loop.follow();
    }
    Generation own = new Generation(loop, model);
    batch.restart();
    serving = own;
    lostRank = -1;
    LOG.info("generation {} serves with {} ranks", generation, group.nRanks());
    own.step();
    Disposable silence = group.silentRank().subscribe(silent -> silentRank = silent.orElse(-1));
    Mono<Void> stopped = stop.asMono().then(Mono.fromFuture(loop::shutdown));
    return Mono.firstWithSignal(loop.ended(), stopped)
        .doFinally(
            end -> {
              serving = null;
              silence.dispose();
              silentRank = -1;
              own.end();
            });
  }

  @Override
  public Flux<TextPiece> generate(TextRequest request) {
    return Flux.defer(() -> begin(request)).subscribeOn(Schedulers.boundedElastic());
  }

  private Flux<TextPiece> begin(TextRequest request) {
    if (draining || generation == 0) {
      return refuse(Reason.UNAVAILABLE, draining ? "the server shuts down" : "ranks are missing");
    }
    Sequence sequence = sequence(request);
    if (!batch.add(sequence)) {
      return refuse(Reason.BUSY, "%d requests wait already", options.maxWaiting());
    }
    if (draining) { // since then: close() may not have seen this sequence
      sequence.abandoned = true;
      return refuse(Reason.UNAVAILABLE, "the server shuts down");
    }
    Generation own = serving;
    if (own != null) {
      own.step();
    }
    long limit = request.deadline().toMillis();
    Flux<TextPiece> late =
        Mono.delay(request.deadline())
            .thenMany(refuse(Reason.DEADLINE, "not done within %d ms", limit));
    return sequence
        .stream
        .pieces()
        .takeUntilOther(late)
        .doFinally(end -> sequence.abandoned = true);
  }

  /** Returns a sequence for a request that the model can answer; throws {@link Refused} if not. */
  private Sequence sequence(TextRequest request) {
    TextRequest.Options wanted = request.options();
    boolean isText = wanted.promptTokens().isEmpty();
    int[] prompt =
        isText
            ? tokenizer.encode(request.prompt())
            : wanted.promptTokens().stream().mapToInt(Integer::intValue).toArray();
    int room = config.context() - prompt.length;
    if (prompt.length == 0 || room < 1) {
      throw invalid(
          "prompt",
          "the prompt has %d tokens; 1 to %d are possible",
          prompt.length,
          config.context() - 1);
    }
    requireKnown("prompt", IntStream.of(prompt));
    requireKnown("stop_token_ids", wanted.stopTokens().stream().mapToInt(Integer::intValue));
    if (request.sampling() != null) {
      requireKnown(
          "logit_bias",
          request.sampling().adjustments().bias().keySet().stream().mapToInt(Integer::intValue));
    }
    String prefix = isText ? request.prompt() : tokenizer.decode(prompt, 0, prompt.length);
    TextStream stream =
        new TextStream(tokenizer, prompt, request.stop(), wanted.echo() ? prefix : "");
    int maxTokens = Math.min(request.maxTokens(), room);
    Sequence sequence = new Sequence(prompt, maxTokens, request.sampling(), stream, wanted);
    if (sequence.pagesNeeded() > options.pages()) {
      throw invalid(
          "prompt",
          "prompt and answer need %d pages of the cache, which has %d",
          sequence.pagesNeeded(),
          options.pages());
    }
    return sequence;
  }

  private void requireKnown(String param, IntStream tokens) {
    tokens
        .filter(token -> token >= config.vocabulary())
        .findFirst()
        .ifPresent(
            token -> {
              throw invalid(
                  param,
                  "'%s' has the token %d, and the model only %d tokens",
                  param,
                  token,
                  config.vocabulary());
            });
  }

  private static Refused invalid(String param, String format, Object... values) {
    return Refused.invalid(param, String.format(Locale.ROOT, format, values));
  }

  private static Flux<TextPiece> refuse(Reason reason, String format, Object... values) {
    boolean helps = reason == Reason.BUSY || reason == Reason.UNAVAILABLE;
    return Flux.error(
        new Refused(
            reason, String.format(Locale.ROOT, format, values), helps ? SOON : Duration.ZERO));
  }

  @Override
  public EngineStatus status() {
    Generation own = serving;
    List<EngineStatus.Rank> ranks =
        IntStream.range(0, nRanks)
            .mapToObj(rank -> new EngineStatus.Rank(rank, device, state(own, rank)))
            .toList();
    return new EngineStatus(
        own != null && !draining,
        generation,
        ranks,
        batch.running(),
        batch.waiting(),
        options.maxWaiting(),
        batch.pagesUsed(),
        options.pages(),
        steps.get(),
        tokens.get(),
        stepMillis,
        own == null ? 0 : own.communicationShare);
  }

  private String state(Generation own, int rank) {
    if (own != null) {
      return rank == silentRank ? "silent" : "serving";
    }
    return rank == lostRank ? "missing" : "joining";
  }

  @Override
  public String modelName() {
    return name;
  }

  @Override
  public Mono<Void> drain() {
    return Mono.defer(
        () -> {
          draining = true;
          return Flux.interval(Duration.ofMillis(10))
              .takeUntil(tick -> batch.running() + batch.waiting() + unsentSteps.get() == 0)
              .then();
        });
  }

  /**
   * Ends the job on all ranks, if this is rank 0. Requests that run end with an error. Blocks until
   * they have, or a second at most. Idempotent.
   */
  @Override
  public void close() {
    draining = true;
    if (stop.tryEmitEmpty().isFailure()) {
      return;
    }
    Generation own = serving;
    if (own != null) {
      own.end();
    }
    failAll(new Refused(Reason.UNAVAILABLE, "the server shuts down", SOON));
    texts.disposeGracefully().timeout(SOON, Mono.empty()).block();
    tokenizer.close();
  }
}
