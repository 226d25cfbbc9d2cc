// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testkit;

import io.fluxccl.InvalidUsage;
import io.fluxccl.collective.Collectives;
import io.fluxccl.group.Rank;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.jupiter.api.extension.ReflectiveInvocationContext;
import org.junit.platform.commons.support.AnnotationSupport;

/** The implementation of {@link Ranks}. */
final class RanksExtension
    implements BeforeEachCallback, AfterEachCallback, ParameterResolver, InvocationInterceptor {
  private static final ExtensionContext.Namespace NAMESPACE =
      ExtensionContext.Namespace.create(RanksExtension.class);

  /** The name of a configuration parameter of JUnit: milliseconds. */
  static final String LEAK_PATIENCE = "fluxccl.leaks.patience";

  /** Threads may do another task for 2 s, and memory is freed after its close. */
  private static final int DEFAULT_PATIENCE = 5000;

  private static final List<Class<?>> OF_A_RANK =
      List.of(LocalRank.class, Rank.class, Collectives.class);

  /** The ranks of one test. */
  private record Job(Ranks wanted, ResourceLeaks leaks, LocalRanks ranks) {
    static Job open(Ranks wanted) {
      ResourceLeaks leaks = ResourceLeaks.snapshot();
      int each = wanted.value() / wanted.hosts();
      if (wanted.hosts() < 1 || wanted.value() != each * wanted.hosts()) {
        throw InvalidUsage.of(
            "@Ranks(%d) hosts=%d; give hosts of equally many ranks",
            wanted.value(), wanted.hosts());
      }
      LocalRanks ranks =
          wanted.onGpus()
              ? LocalRanks.ofHostsOnGpus(wanted.hosts(), each)
              : LocalRanks.ofHosts(wanted.hosts(), each);
      return new Job(wanted, leaks, ranks);
    }
  }

  @Override
  public void beforeEach(ExtensionContext context) {
    Ranks wanted =
        AnnotationSupport.findAnnotation(context.getRequiredTestMethod(), Ranks.class)
            .or(() -> AnnotationSupport.findAnnotation(context.getRequiredTestClass(), Ranks.class))
            .orElseThrow();
    context.getStore(NAMESPACE).put(Job.class, Job.open(wanted));
  }

  @Override
  public void afterEach(ExtensionContext context) {
    Job job = context.getStore(NAMESPACE).remove(Job.class, Job.class);
    if (job == null) {
      return;
    }
    job.ranks.close();
    if (job.wanted.leakCheck()) {
      int patience =
          context
              .getConfigurationParameter(LEAK_PATIENCE, Integer::valueOf)
              .orElse(DEFAULT_PATIENCE);
      job.leaks.assertNone(Duration.ofMillis(patience));
    }
  }

  private static Job job(ExtensionContext context) {
    return context.getStore(NAMESPACE).get(Job.class, Job.class);
  }

  @Override
  public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
    Class<?> type = parameter.getParameter().getType();
    return job(context) != null && (type == LocalRanks.class || OF_A_RANK.contains(type));
  }

  /** Parameters of a rank get their values when the method runs on it. */
  @Override
  public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
    boolean isOfAll = parameter.getParameter().getType() == LocalRanks.class;
    return isOfAll ? job(context).ranks : null;
  }

  @Override
  public void interceptTestMethod(
      Invocation<Void> invocation,
      ReflectiveInvocationContext<Method> method,
      ExtensionContext context)
      throws Throwable {
    run(invocation, method, context);
  }

  @Override
  public void interceptTestTemplateMethod(
      Invocation<Void> invocation,
      ReflectiveInvocationContext<Method> method,
      ExtensionContext context)
      throws Throwable {
    run(invocation, method, context);
  }

  private static void run(
      Invocation<Void> invocation,
      ReflectiveInvocationContext<Method> method,
      ExtensionContext context)
      throws Throwable {
    Class<?>[] types = method.getExecutable().getParameterTypes();
    if (Arrays.stream(types).noneMatch(OF_A_RANK::contains)) {
      invocation.proceed();
      return;
    }
    invocation.skip();
    Job job = job(context);
    boolean collects = Arrays.asList(types).contains(Collectives.class);
    job.ranks.run(
        Duration.ofSeconds(job.wanted.seconds()),
        rank -> {
          try (Collectives collectives = collects ? rank.collectives() : null) {
            Object[] arguments = method.getArguments().toArray();
            for (int i = 0; i < arguments.length; i++) {
              arguments[i] =
                  types[i] == LocalRank.class || types[i] == Rank.class
                      ? rank
                      : types[i] == Collectives.class ? collectives : arguments[i];
            }
            invoke(method, context.getRequiredTestInstance(), arguments);
          }
        });
  }

  private static void invoke(
      ReflectiveInvocationContext<Method> method, Object instance, Object[] arguments)
      throws Exception {
    try {
      method.getExecutable().setAccessible(true);
      method.getExecutable().invoke(instance, arguments);
    } catch (InvocationTargetException e) {
      if (e.getCause() instanceof Error error) {
        throw error;
      }
      throw e.getCause() instanceof Exception exception ? exception : e;
    }
  }
}
