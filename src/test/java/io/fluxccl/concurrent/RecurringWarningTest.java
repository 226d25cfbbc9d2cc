// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

class RecurringWarningTest {
  private final Logger log = (Logger) LoggerFactory.getLogger(RecurringWarningTest.class);
  private final ListAppender<ILoggingEvent> lines = new ListAppender<>();
  private final AtomicLong now = new AtomicLong(-5);
  private final RecurringWarning warning = new RecurringWarning(log, now::get);

  @BeforeEach
  void listen() {
    log.setAdditive(false);
    lines.start();
    log.addAppender(lines);
  }

  @AfterEach
  void stop() {
    log.detachAppender(lines);
  }

  private List<String> warnings() {
    return lines.list.stream()
        .filter(each -> each.getLevel() == Level.WARN)
        .map(ILoggingEvent::getFormattedMessage)
        .toList();
  }

  @Test
  void shouldWriteOneLineAMinuteAndCountTheOthers() {
    for (int i = 0; i < 1000; i++) {
      warning.warn("stranger " + i);
      now.addAndGet(TimeUnit.MILLISECONDS.toNanos(100));
    }
    assertThat(warnings())
        .containsExactly(
            "stranger 0; more of them within a minute are counted only",
            "stranger 600; 599 more since the last such line");
    now.addAndGet(TimeUnit.MINUTES.toNanos(1));
    warning.warn("one more");
    assertThat(warnings()).last().isEqualTo("one more; 399 more since the last such line");
  }
}
