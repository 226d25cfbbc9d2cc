package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;

class NonblockingThreadTest {
  @Test
  void shouldSayWhatToRaiseWhenTheSystemGivesNoThread() {
    NonblockingThread thread = new NonblockingThread(() -> {}, "fluxccl-too-large", 1L << 60);
    assertThatThrownBy(thread::start)
        .isInstanceOf(DeviceFailure.class)
        .hasMessageContaining("fluxccl-too-large")
        .hasMessageContaining("ulimit -u")
        .hasCauseInstanceOf(OutOfMemoryError.class);
  }
}
