// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.AppenderBase;
import io.fluxccl.Aborted;
import io.fluxccl.group.RankGroup;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.slf4j.LoggerFactory;
import org.slf4j.MDC;

/** Log lines contain the rank, also if several ranks share a JVM. */
@Timeout(60)
@Tag("alone") // excludes lines of other tests
class RankLogTest {
  private final Logger logger = (Logger) LoggerFactory.getLogger("io.fluxccl");
  private final Level level = logger.getLevel();
  private final List<ILoggingEvent> lines = new CopyOnWriteArrayList<>();
  private final AppenderBase<ILoggingEvent> appender =
      new AppenderBase<>() {
        @Override
        protected void append(ILoggingEvent line) {
          line.prepareForDeferredProcessing();
          lines.add(line);
        }
      };

  @BeforeEach
  void listen() {
    appender.start();
    logger.addAppender(appender);
    logger.setLevel(Level.DEBUG);
  }

  @AfterEach
  void end() {
    logger.detachAppender(appender);
    logger.setLevel(level);
    assertThat(MDC.get(RankLog.KEY)).as("the caller's context").isNull();
  }

  private static String onNewThread() {
    CompletableFuture<String> found = new CompletableFuture<>();
    new NonblockingThread(() -> found.complete(MDC.get(RankLog.KEY)), "test").start();
    return found.join();
  }

  private static String onBlockingThread() {
    CompletableFuture<String> found = new CompletableFuture<>();
    BlockingTasks.EXECUTOR.execute(() -> found.complete(MDC.get(RankLog.KEY)));
    return found.join();
  }

  @Test
  void shouldHandTheRankToThreadsAndTasks() {
    assertThat(RankLog.of(3, RankLogTest::onNewThread)).isEqualTo("3");
    assertThat(RankLog.of(4, RankLogTest::onBlockingThread)).isEqualTo("4");
    assertThat(RankLog.of(4, () -> RankLog.of(5, RankLogTest::onBlockingThread))).isEqualTo("5");
    assertThat(onNewThread()).isNull();
    assertThat(onBlockingThread()).isNull();
  }

  @Test
  void shouldLogTheRankIfRanksShareAJvm() {
    List<RankGroup> groups = RankGroup.local(2);
    groups.get(1).communicator().abort(Aborted.of(1, "as the test wants"));
    await().until(() -> linesOf("failed (aborted)").size() == 2);
    await().until(() -> linesOf("the job has failed").size() == 2);
    assertThat(linesOf("as the test wants"))
        .extracting(line -> line.getMDCPropertyMap().get(RankLog.KEY))
        .containsOnlyOnce("0", "1");
    RankGroup.closeAll(groups);
    for (ILoggingEvent line : lines) {
      if (line.getFormattedMessage().matches("(?s)rank [01] of 2.*")) {
        assertThat(line.getMDCPropertyMap())
            .as(line.getFormattedMessage())
            .containsEntry(RankLog.KEY, line.getFormattedMessage().substring(5, 6));
      }
    }
  }

  private List<ILoggingEvent> linesOf(String part) {
    return lines.stream().filter(line -> line.getFormattedMessage().contains(part)).toList();
  }
}
