// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.ways;

import java.lang.instrument.Instrumentation;
import java.net.URI;
import java.nio.file.Path;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Predicate;
import net.bytebuddy.agent.ByteBuddyAgent;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.matcher.ElementMatchers;

/**
 * Records which classes of the library run code: {@link #install} adds a call of {@link #enter} to
 * the start of each method and constructor. A nested type counts as its top-level class. Enums,
 * exceptions and the test kit do not count.
 */
public final class Ways {
  private static final Path LIBRARY = Path.of("target/classes").toAbsolutePath();

  /** The threads that ran code of each type while recording. */
  private static final Map<String, Set<String>> THREADS = new ConcurrentHashMap<>();

  private static volatile boolean recording;

  /** The type whose first method ends the recording. */
  private static volatile String last = "";

  private Ways() {}

  /** Instruments the library's classes. */
  static void install() {
    Instrumentation instrumentation = ByteBuddyAgent.install();
    new AgentBuilder.Default()
        .disableClassFormatChanges()
        // Reflection on a type would load others, past this agent.
        .with(AgentBuilder.DescriptionStrategy.Default.POOL_ONLY)
        // JUnit loads the types in the signatures of a test class before.
        .with(AgentBuilder.RedefinitionStrategy.RETRANSFORMATION)
        .type(
            (type, loader, module, redefined, domain) ->
                type.getName().startsWith("io.fluxccl.")
                    && domain != null
                    && isLibrary(domain.getCodeSource().getLocation().toString()))
        .transform(
            (builder, type, loader, module, domain) ->
                builder.visit(
                    Advice.to(Ways.class)
                        .on(
                            ElementMatchers.isMethod()
                                .or(ElementMatchers.isConstructor())
                                .and(ElementMatchers.not(ElementMatchers.isAbstract())))))
        .installOn(instrumentation);
  }

  private static boolean isLibrary(String location) {
    return Path.of(URI.create(location)).equals(LIBRARY);
  }

  /** Inlined into each method. */
  @Advice.OnMethodEnter
  static void inlined(@Advice.Origin("#t") String type) {
    enter(type);
  }

  /** Notes that the calling thread runs code of a type. */
  public static void enter(String type) {
    if (recording && type.equals(last)) {
      recording = false;
    }
    if (recording) {
      THREADS
          .computeIfAbsent(type, name -> ConcurrentHashMap.newKeySet())
          .add(Thread.currentThread().getName());
    }
  }

  /** Begins to record. */
  static void start() {
    last = "";
    recording = true;
  }

  /** Begins to record, until a method of a type runs. */
  static void startUntil(Class<?> type) {
    last = type.getName();
    recording = true;
  }

  /** Pauses the recording. */
  static void stop() {
    recording = false;
  }

  /** Returns and forgets the simple names of the classes that ran on threads with such names. */
  static Set<String> take(Predicate<String> threadName) {
    Set<String> classes = new TreeSet<>();
    THREADS.forEach(
        (type, threads) -> {
          if (threads.stream().anyMatch(threadName) && isCounted(type)) {
            classes.add(type.substring(type.lastIndexOf('.') + 1).replaceAll("\\$.*", ""));
          }
        });
    THREADS.clear();
    return classes;
  }

  private static boolean isCounted(String type) {
    String top = type.replaceAll("\\$.*", "");
    return !top.startsWith("io.fluxccl.testkit.") && !isEnumOrException(top);
  }

  private static boolean isEnumOrException(String name) {
    try {
      Class<?> type = Class.forName(name, false, Ways.class.getClassLoader());
      return type.isEnum() || Throwable.class.isAssignableFrom(type);
    } catch (ClassNotFoundException e) {
      throw new IllegalStateException(name, e);
    }
  }
}
