// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.http;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.samples.inference.engine.Refused;
import io.fluxccl.samples.inference.engine.TextPiece;
import io.fluxccl.samples.inference.engine.TextPiece.End;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import reactor.core.publisher.Flux;

/** The page, in a browser. */
class PageTest {
  private static final Pattern ENDED =
      Pattern.compile("(?s)id=\"speed\">\\d.*id=\"end\">stop|id=\"end\">an error");

  @TempDir Path profile;

  private final Served served = new Served();

  @AfterEach
  void close() {
    served.close();
  }

  @Test
  void shouldShowTheAnswerAndTheRanks() throws Exception {
    served.engine.status = () -> FakeEngine.status(false, "joining");
    Flux<TextPiece> pieces = FakeEngine.answer(End.STOP, " there", " was", " a <b>", " cat");
    served.engine.script = request -> pieces.delayElements(Duration.ofMillis(40));

    String dom = dom("/?prompt=Once&run=1&seed=7&max=20");

    assertThat(dom).contains("Once</span> there was a &lt;b&gt; cat</div>");
    assertThat(dom).contains("<b id=\"count\">4</b>", "<b id=\"end\">stop</b>");
    assertThat(dom).containsPattern("<b id=\"first\">\\d+ ms</b>");
    assertThat(dom).containsPattern("<b id=\"speed\">\\d+\\.\\d</b>");
    assertThat(dom)
        .contains("<li class=\"serving\" title=\"NVIDIA H200 (GPU 0)\">")
        .contains("<li class=\"joining\" title=\"NVIDIA H200 (GPU 1)\">")
        .contains("not ready", "3.25 ms", "18 %", "384 of 1024", "3 of 64", FakeEngine.MODEL)
        .contains("<b id=\"generation\">2</b>", "<b id=\"running\">7</b>");
    assertThat(served.engine.requests.element().sampling().seed()).isEqualTo(7);
    assertThat(served.engine.requests.element().maxTokens()).isEqualTo(20);
  }

  @Test
  void shouldShowWhyThereIsNoAnswer() throws Exception {
    served.engine.script = request -> Flux.error(FakeEngine.refused(Refused.Reason.BUSY));

    String dom = dom("/?prompt=Once&run=1&mode=chat");

    assertThat(dom).contains("It is BUSY (again in 2 s)", "<b id=\"end\">an error</b>");
  }

  /** The page once the answer has ended. The browser's time runs ahead of a stream. */
  private String dom(String path) throws Exception {
    Optional<String> browser = browser();
    assumeTrue(browser.isPresent(), "There is no chromium");
    String dom = "";
    for (int seconds = 40; seconds < 3000 && !ENDED.matcher(dom).find(); seconds *= 4) {
      dom = dom(browser.orElseThrow(), path, seconds);
    }
    return dom;
  }

  private String dom(String browser, String path, int seconds) throws Exception {
    List<String> command = new ArrayList<>(List.of(browser));
    command.addAll(
        List.of("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"));
    command.addAll(
        List.of("--user-data-dir=" + profile, "--virtual-time-budget=" + seconds * 1000));
    command.addAll(List.of("--dump-dom", served.uri(path).toString()));
    Process process =
        new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
    process
        .onExit()
        .orTimeout(60, TimeUnit.SECONDS)
        .exceptionally(late -> process.destroyForcibly());
    return new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
  }

  private static Optional<String> browser() {
    return Stream.of(System.getenv("PATH").split(File.pathSeparator))
        .flatMap(folder -> Stream.of("chromium", "google-chrome").map(n -> new File(folder, n)))
        .filter(File::canExecute)
        .map(File::getPath)
        .findFirst();
  }
}
