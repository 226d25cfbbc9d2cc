package io.fluxccl.cli;

import static org.assertj.core.api.Assertions.assertThat;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import io.fluxccl.TransportFailure;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import java.io.IOException;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.ServiceConfigurationError;
import java.util.Set;
import org.junit.jupiter.api.Test;

class MainTest {
  private static final FakeBackend BACKEND = new FakeBackend();

  @Test
  void shouldShowHelpAndVersion() {
    assertThat(Cli.run(BACKEND, "--help").out()).contains("perf", "launch", "info");
    assertThat(Cli.run(BACKEND, "perf", "all-reduce", "--help").out())
        .contains("--ranks", "--jit-warmup", "--json");
    assertThat(Cli.run(BACKEND, "--version").out()).matches("fluxccl \\d+\\.\\d+\\.\\S+\\s+");
  }

  @Test
  void shouldSayWhatIsMissingWhenNoCommandIsGiven() {
    assertThat(Cli.run(BACKEND).code()).isEqualTo(ExitCode.USAGE);
    assertThat(Cli.run(BACKEND).err()).contains("no command given");
    assertThat(Cli.run(BACKEND, "perf").err()).contains("try 'fluxccl perf all-reduce'");
    assertThat(Cli.run(BACKEND, "launch", "-n", "0", "true").err()).contains("ranks=0");
    assertThat(Cli.run(BACKEND, "launch", "-n", "2").code()).isEqualTo(ExitCode.USAGE);
  }

  @Test
  void shouldShowWhatThereIsAndHideTheSecret() {
    Cli run =
        Cli.run(
            BACKEND,
            Map.of(RankVariables.SECRET, "hunter2", "FLUXCCL_LOG", "debug", "HOME", "/nowhere"),
            "info");

    assertThat(run.code()).isZero();
    assertThat(run.out())
        .contains("host: ", "fake device 0", "exact", "CUDA_IPC", "FLUXCCL_LOG", "(secret)")
        .doesNotContain("hunter2", "/nowhere");
  }

  @Test
  void shouldShowTheSameAsJson() throws IOException {
    Cli run = Cli.run(BACKEND, "info", "--json");

    try (JsonParser json = new JsonFactory().createParser(run.out())) {
      int fields = 0;
      while (json.nextToken() != null) {
        fields += json.currentName() == null ? 0 : 1;
      }
      assertThat(fields).isPositive();
    }
    assertThat(run.out()).contains("\"transports\"", "\"SHM\"");
  }

  @Test
  void shouldSayOfEachTransportWhetherItCanBeUsed() {
    Map<String, String> transports =
        SystemReport.transports(List.<TransportProvider>of(new Provider()).iterator());

    assertThat(transports)
        .containsEntry("SHM", "available")
        .containsEntry("IB0", "not available, because there is no card")
        .containsEntry("NET", "not in this build");
  }

  @Test
  void shouldGoOnWhenAProviderCannotBeLoaded() {
    Iterator<TransportProvider> providers =
        new Iterator<>() {
          private int next;

          @Override
          public boolean hasNext() {
            return next < 2;
          }

          @Override
          public TransportProvider next() {
            if (next++ == 0) {
              throw new ServiceConfigurationError("half a jar");
            }
            return new Provider();
          }
        };

    assertThat(SystemReport.transports(providers))
        .containsEntry("SHM", "available")
        .containsEntry("(provider 1)", "can't be loaded: half a jar");
  }

  private static final class Provider implements TransportProvider {
    @Override
    public Set<Transport> transports() {
      return Set.of(Transport.SHM, Transport.IB0);
    }

    @Override
    public Optional<String> unavailableBecause(Transport transport) {
      return transport == Transport.SHM ? Optional.empty() : Optional.of("there is no card");
    }

    @Override
    public TransportContext open(Transport transport, TransportEnvironment environment) {
      throw new TransportFailure(0, "not opened here");
    }
  }
}
