// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.IntView;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestPlan;

/**
 * An archive of classes of the JDK and of the dependencies (class data sharing). With it, the start
 * of a test's JVM takes a third less processor time. It is made once for a class path, in the
 * folder that {@code fluxccl.test.archives} names. The JUnit launcher finds this listener.
 */
public final class ClassArchive implements TestExecutionListener {
  /** Loads what most ranks load. */
  public static void main(String[] args) throws IOException {
    JoinOptions options =
        JoinOptions.of(0, 1)
            .withDevice(DeviceChoice.HOST)
            .withAddress("127.0.0.1:" + Ports.reserved());
    try (RankGroup group = RankGroup.join(options).join();
        IntView x = group.device().allocateInts(1)) {
      group.collectives().allReduce(x, ReduceOp.SUM).block();
    }
  }

  @Override
  public void testPlanExecutionStarted(TestPlan plan) {
    String folder = System.getProperty("fluxccl.test.archives", "");
    if (!folder.isEmpty()) {
      // An archive is of jars only, and they must come first.
      String[] all = System.getProperty("java.class.path").split(":");
      String jars = where(all, true);
      System.setProperty("java.class.path", jars + ":" + where(all, false));
      use(Path.of(folder), jars);
    }
  }

  private static String where(String[] all, boolean isJar) {
    return Arrays.stream(all)
        .filter(each -> each.endsWith(".jar") == isJar)
        .collect(Collectors.joining(":"));
  }

  private static void use(Path folder, String jars) {
    Path archive =
        folder.resolve(Integer.toHexString((jars + Runtime.version()).hashCode()) + ".jsa");
    try {
      Files.createDirectories(folder);
      if (Files.exists(archive) || make(archive, jars)) {
        System.setProperty(
            "fluxccl.jvm.args",
            System.getProperty("fluxccl.jvm.args") + " -XX:SharedArchiveFile=" + archive);
      }
    } catch (IOException | AssertionError | FluxCclException e) {
      System.err.println("no archive of classes for the JVMs of tests: " + e);
    }
  }

  /** Returns false where another JVM makes it at this moment. */
  private static boolean make(Path archive, String jars) throws IOException {
    try (FileChannel channel =
            FileChannel.open(
                archive.resolveSibling("lock"),
                StandardOpenOption.CREATE,
                StandardOpenOption.WRITE);
        FileLock lock = channel.tryLock()) {
      if (lock == null) {
        return false;
      }
      String list = archive + ".list";
      Path made = Path.of(archive + ".made");
      java("-XX:DumpLoadedClassList=" + list, "-cp", classPath(), ClassArchive.class.getName());
      java(
          "-Xshare:dump",
          "-XX:SharedClassListFile=" + list,
          "-XX:SharedArchiveFile=" + made,
          "-cp",
          jars);
      Files.move(made, archive, StandardCopyOption.ATOMIC_MOVE);
      return true;
    }
  }

  private static String classPath() {
    return System.getProperty("java.class.path");
  }

  private static void java(String... arguments) {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(TestJvms.ofBuild());
    command.addAll(List.of(arguments));
    TestJvms.run(command);
  }
}
