// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import com.sun.management.OperatingSystemMXBean;
import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.group.DeviceChoice;
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
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.UnaryOperator;
import java.util.stream.IntStream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import reactor.core.Disposable;
import reactor.core.Scannable;
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

  // Failures in a row of the same tokens after which a request is the cause, if none names a row.
  private static final int FAULTS_TO_BLAME = 2;
  private static final int LOST_RANKS_TO_BLAME = 3;

  private final LlamaConfig config;
  private final SafeTensors weights;
  private final Tokenizer tokenizer;
  private final ChatTemplate chat;
  private final GenerationDefaults defaults;
  private final String name;
  private final ModelOptions options;
  private final RestartLimits limits;
  private final UnaryOperator<StepLoop.Step> wrapper;
  private final Batch batch;

  /** Turns tokens into text, in their order, off the thread that leads the steps. */
  private final Scheduler texts = Schedulers.newSingle("texts", true);

  /** Answers whose subscribers have received neither their end nor an error, and not cancelled. */
  private final AtomicInteger answers = new AtomicInteger();

  private final AtomicLong steps = new AtomicLong();
  private final AtomicLong tokens = new AtomicLong();
  private final Sinks.Empty<Void> stop = Sinks.empty();
  private volatile double stepMillis;
  private final AtomicReference<Generation> serving = new AtomicReference<>();
  private volatile long generation;
  private volatile int nRanks;
  private volatile String device = "";

  /** The rank that the last generation lost; -1 while one serves, or if it is not known. */
  private volatile int lostRank = -1;

  private volatile boolean draining;

  // Failed generations of this process.
  private volatile long restarts;
  private volatile String lastFailure;

  // Only used between two generations.
  private int failuresInARow;
  private long tokensBefore;
  private long servingSince;

  /** Its weights stay on the device between two generations; only used by the one that serves. */
  private RankModel model;

  /**
   * Opens a model's folder; nothing runs before {@link #serve}.
   *
   * @throws IOException if a file is missing or malformed
   */
  public InferenceEngine(Path folder, ModelOptions options) throws IOException {
    this(folder, options, RestartLimits.DEFAULT);
  }

  /** Opens a model's folder, with other limits of restarts. */
  public InferenceEngine(Path folder, ModelOptions options, RestartLimits limits)
      throws IOException {
    this(folder, options, limits, UnaryOperator.identity());
  }

  /** Opens a model's folder; {@code wrapper} gets this rank's part of each step, for tests. */
  InferenceEngine(
      Path folder, ModelOptions options, RestartLimits limits, UnaryOperator<StepLoop.Step> wrapper)
      throws IOException {
    this.limits = limits;
    this.wrapper = wrapper;
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

  /**
   * Refuses options for which this machine lacks memory, if ranks run on the host device.
   *
   * @throws IllegalArgumentException that names the pages that fit
   */
  public static void requireMemory(Path folder, ModelOptions options, int ranks)
      throws IOException {
    LlamaConfig config = LlamaConfig.read(folder);
    config.requireDivisible(ranks);
    try (Device device = DeviceChoice.fromEnvironment().open(0, "inference-server")) {
      if (device.kind() == DeviceKind.HOST) {
        var machine = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        HostFootprint.of(config, options, ranks)
            .require(
                options.pages(),
                Runtime.getRuntime().maxMemory(),
                machine.getTotalMemorySize() / ranks);
      }
    }
  }

  /** The steps that rank 0 leads in one generation. */
  private final class Generation {
    private final StepLoop loop;
    private final RankModel model;
    private final double communicationShare;

    /** The rank that answers no heartbeat; -1 if there is none. */
    private volatile int silentRank = -1;

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
      failBroken();
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
      List<Batch.Token> next = batch.finishStep(model);
      tokens.addAndGet(next.size());
      texts.schedule(() -> next.forEach(InferenceEngine::send));
      failBroken();
    }

    /**
     * If it fails, all requests end: the batch has removed each request that it found to be the
     * cause, so the next step would fail in the same way.
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
    fail(batch.clear(), reason);
  }

  private void fail(List<Sequence> sequences, Refused reason) {
    texts.schedule(() -> sequences.forEach(sequence -> sequence.stream.fail(reason)));
  }

  private void failBroken() {
    for (Batch.Broken broken : batch.takeBroken()) {
      LOG.error("a request has no place in a step; it ends", broken.reason());
      String text = "the server can't compute this request: " + broken.reason();
      fail(List.of(broken.sequence()), new Refused(Reason.FAILED, text, Duration.ZERO));
    }
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
        .concatMap(group -> serve(group).onErrorResume(e -> lost(group, FluxCclException.from(e))))
        .onErrorResume(e -> isClosed() ? afterClose(e) : Mono.error(e))
        .then();
  }

  /** Close has ended all requests; the model is closed as after a generation that succeeds. */
  private Mono<Void> afterClose(Throwable reason) {
    LOG.warn("after the server was closed: {}", reason.toString());
    return Mono.<Void>fromRunnable(this::closeModel).subscribeOn(Schedulers.boundedElastic());
  }

  /** Ends the requests that made a generation fail, and waits before the next one begins. */
  private Mono<Void> lost(RankGroup group, FluxCclException reason) {
    if (group.communicator().failure() == null) {
      group.communicator().abort(reason); // so that the other ranks begin the next one, too
    }
    LOG.warn("generation {} ended: {}", generation, reason.getMessage());
    lostRank = reason.rank();
    if (group.rank() > 0) {
      return Mono.empty(); // rank 0 decides whether the next generation serves
    }
    if (isClosed()) {
      return Mono.error(reason); // to serve: no generation follows
    }
    Generation own = serving.get();
    if (own != null) {
      own.end(); // its step neither completes nor begins from here on
    }
    lastFailure = reason.getMessage();
    restarts++;
    boolean healthy =
        own != null && System.nanoTime() - servingSince > RestartLimits.HEALTHY.toNanos();
    boolean succeeded = endGuilty(reason) || tokens.get() > tokensBefore || healthy;
    failuresInARow = succeeded ? 1 : failuresInARow + 1;
    return failuresInARow > limits.most() ? giveUp(reason) : pause();
  }

  private boolean endGuilty(FluxCclException reason) {
    boolean lost =
        switch (reason.code()) {
          case REMOTE_FAILURE, TRANSPORT_FAILURE, TIMEOUT -> true;
          default -> false;
        };
    List<Sequence> guilty =
        batch.blame(
            RowFailure.place(reason.getMessage()), lost ? LOST_RANKS_TO_BLAME : FAULTS_TO_BLAME);
    String text = "this request made a step fail: " + reason.getMessage();
    fail(guilty, new Refused(Reason.FAILED, text, Duration.ZERO));
    if (!guilty.isEmpty()) {
      LOG.error("{} request(s) made the step fail and end; the others continue", guilty.size());
    }
    return !guilty.isEmpty();
  }

  private Mono<Void> pause() {
    Duration wait = limits.wait(failuresInARow);
    if (wait.isZero()) {
      return Mono.empty();
    }
    LOG.warn("{} generations in a row have failed; waiting {}", failuresInARow, wait);
    return Mono.delay(wait).then();
  }

  private Mono<Void> giveUp(FluxCclException reason) {
    String text =
        String.format(
            Locale.ROOT,
            "gave up after %d generations in a row that failed (limit: --failures=%d); the last"
                + " one: %s",
            failuresInARow,
            limits.most(),
            reason.getMessage());
    LOG.error(text);
    draining = true;
    failAll(new Refused(Reason.UNAVAILABLE, text, Duration.ZERO));
    return Mono.error(reason.withMessage(text));
  }

  private Mono<Void> serve(RankGroup group) {
    generation = group.generation().number();
    nRanks = group.nRanks();
    tokensBefore = tokens.get();
    device = group.device().kind().name().toLowerCase(Locale.ROOT);
    Mono<Void> served =
        Mono.using(() -> open(group), opened -> serve(group, opened), RankModel::leave);
    return served
        .subscribeOn(Schedulers.boundedElastic())
        .then(Mono.fromRunnable(this::closeModel))
        .then(Mono.defer(() -> Mono.fromFuture(group.closeAsync())));
  }

  private RankModel open(RankGroup group) {
    try {
      return openModel(group);
    } catch (OutOfMemoryError e) { // which no Mono passes on
      closeModel();
      throw new Aborted(
          group.rank(),
          "rank " + group.rank() + " has too little memory for its part of the model: " + e,
          e);
    }
  }

  private RankModel openModel(RankGroup group) {
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
    StepLoop loop = StepLoop.of(group, commandBytes, 1, wrapper.apply(model::step));
    if (group.rank() > 0) {
      return loop.follow();
    }
    Generation own = new Generation(loop, model);
    batch.restart();
    servingSince = System.nanoTime();
    serving.set(own);
    lostRank = -1;
    LOG.info("generation {} serves with {} ranks", generation, group.nRanks());
    own.step();
    Disposable silence = group.silentRank().subscribe(silent -> own.silentRank = silent.orElse(-1));
    Mono<Void> stopped = stop.asMono().then(Mono.fromFuture(loop::shutdown));
    return Mono.firstWithSignal(loop.ended(), stopped)
        .doFinally(
            end -> {
              serving.compareAndSet(own, null); // the next generation may serve already
              silence.dispose();
              own.end();
            });
  }

  @Override
  public Flux<TextPiece> generate(TextRequest request) {
    return Flux.using(
            answers::incrementAndGet, // then reads draining; drain writes it, then reads answers
            open -> Flux.defer(() -> begin(request)), // a refusal counts until it is sent
            open -> answers.decrementAndGet(),
            false)
        .subscribeOn(Schedulers.boundedElastic());
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
    Generation own = serving.get();
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
    Generation own = serving.get();
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
        own == null ? 0 : own.communicationShare,
        restarts,
        lastFailure);
  }

  private String state(Generation own, int rank) {
    if (own != null) {
      return rank == own.silentRank ? "silent" : "serving";
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
          return Flux.interval(Duration.ofMillis(10)).takeUntil(tick -> answers.get() == 0).then();
        });
  }

  private boolean isClosed() {
    return stop.scan(Scannable.Attr.TERMINATED);
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
    Generation own = serving.get();
    if (own != null) {
      own.end();
    }
    failAll(new Refused(Reason.UNAVAILABLE, "the server shuts down", SOON));
    texts.disposeGracefully().timeout(SOON, Mono.empty()).block();
    tokenizer.close();
  }
}
