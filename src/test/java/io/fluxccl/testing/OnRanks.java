// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.collective.Collectives;
import io.fluxccl.collective.CollectivesOptions;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.lang.reflect.AnnotatedElement;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.jupiter.api.extension.ReflectiveInvocationContext;
import org.junit.platform.commons.support.AnnotationSupport;
import org.junit.platform.commons.support.ReflectionSupport;

/**
 * Runs a test method on each rank of a new group at once, if the method takes a {@link LocalRank},
 * {@link LocalRanks} or {@link Collectives}. The method shares its instance with the other ranks. A
 * class that is {@link EmulatedGpus}, {@link RequiresGpus} or {@link FakeCuda} gets ranks on GPUs.
 */
@Inherited
@Target({ElementType.TYPE, ElementType.METHOD})
@Retention(RetentionPolicy.RUNTIME)
@ExtendWith(OnRanks.Runner.class)
public @interface OnRanks {
  /** The number of ranks is the first argument of the parameterized test. */
  int FIRST_ARGUMENT = 0;

  /** The number of ranks on each host. */
  int value() default 2;

  /** The number of pretended hosts. */
  int hosts() default 1;

  /** The limit for all ranks together; 0 for that of the class, which is 60 s by default. */
  int seconds() default 0;

  /** A test class that opens the collectives of its methods itself. */
  interface Opening {
    /** Opens the collectives of a rank; the runner closes them. */
    Collectives open(LocalRank rank);
  }

  /** A test class that creates the ranks of its methods itself. */
  interface Placing {
    /** Creates ranks; the runner closes them. */
    LocalRanks ranks(int nRanks);
  }

  /** Runs the methods. */
  final class Runner implements InvocationInterceptor, ParameterResolver {
    private static final List<Class<?>> RANKED =
        List.of(LocalRank.class, LocalRanks.class, Collectives.class);

    /** Creates ranks of one host on the devices that a test is for. */
    public static LocalRanks create(Object test, int nRanks) {
      return test instanceof Placing placing
          ? placing.ranks(nRanks)
          : create(isOnGpus(test.getClass()), 1, nRanks);
    }

    private static LocalRanks create(boolean isOnGpus, int hosts, int ranksPerHost) {
      if (hosts == 1) {
        return isOnGpus ? LocalRanks.onGpus(ranksPerHost) : LocalRanks.of(ranksPerHost);
      }
      return isOnGpus
          ? LocalRanks.ofHostsOnGpus(hosts, ranksPerHost)
          : LocalRanks.ofHosts(hosts, ranksPerHost);
    }

    /** Returns whether a test is for GPUs. */
    public static boolean isOnGpus(AnnotatedElement test) {
      return Stream.of(EmulatedGpus.class, RequiresGpus.class, FakeCuda.class)
          .anyMatch(annotation -> AnnotationSupport.isAnnotated(test, annotation));
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
      return RANKED.contains(parameter.getParameter().getType());
    }

    /** Returns nothing: each rank gets its own. */
    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
      return null;
    }

    @Override
    public void interceptTestMethod(
        Invocation<Void> invocation,
        ReflectiveInvocationContext<Method> call,
        ExtensionContext context)
        throws Throwable {
      Method method = call.getExecutable();
      if (Arrays.stream(method.getParameterTypes()).noneMatch(RANKED::contains)) {
        invocation.proceed();
        return;
      }
      invocation.skip();
      Optional<OnRanks> ofClass =
          AnnotationSupport.findAnnotation(call.getTargetClass(), OnRanks.class);
      OnRanks on =
          AnnotationSupport.findAnnotation(method, OnRanks.class).or(() -> ofClass).orElseThrow();
      int seconds = on.seconds() > 0 ? on.seconds() : ofClass.map(OnRanks::seconds).orElse(0);
      int ranksPerHost =
          on.value() == FIRST_ARGUMENT ? (int) call.getArguments().get(0) : on.value();
      Object test = call.getTarget().orElseThrow();
      try (LocalRanks ranks =
          test instanceof Placing placing
              ? placing.ranks(ranksPerHost)
              : create(isOnGpus(method) || isOnGpus(test.getClass()), on.hosts(), ranksPerHost)) {
        ranks.run(Duration.ofSeconds(seconds > 0 ? seconds : 60), rank -> run(call, ranks, rank));
      }
    }

    @Override
    public void interceptTestTemplateMethod(
        Invocation<Void> invocation,
        ReflectiveInvocationContext<Method> call,
        ExtensionContext context)
        throws Throwable {
      interceptTestMethod(invocation, call, context);
    }

    private static void run(
        ReflectiveInvocationContext<Method> call, LocalRanks ranks, LocalRank rank) {
      Object test = call.getTarget().orElseThrow();
      List<Class<?>> types = List.of(call.getExecutable().getParameterTypes());
      boolean isOpen = types.contains(Collectives.class);
      try (Collectives collectives = isOpen ? open(test, rank) : null) {
        Object[] arguments = call.getArguments().toArray();
        for (int i = 0; i < arguments.length; i++) {
          if (types.get(i) == LocalRank.class) {
            arguments[i] = rank;
          } else if (types.get(i) == LocalRanks.class) {
            arguments[i] = ranks;
          } else if (types.get(i) == Collectives.class) {
            arguments[i] = collectives;
          }
        }
        ReflectionSupport.invokeMethod(call.getExecutable(), test, arguments);
      }
    }

    private static Collectives open(Object test, LocalRank rank) {
      Collectives collectives =
          test instanceof Opening opening ? opening.open(rank) : rank.collectives();
      rank.awaitAll();
      return collectives;
    }

    /** Opens collectives on all ranks; a rank that ends the job next disturbs no opening. */
    public static Collectives lane(LocalRank rank, CollectivesOptions options) {
      Collectives collectives = Collectives.create(rank.communicator(), options).join();
      rank.awaitAll();
      return collectives;
    }
  }
}
