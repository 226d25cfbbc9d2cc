// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceBuffer;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** An application server can discard an application that has closed its groups. */
@Timeout(180)
class ClassLoaderTest {
  private static final String LIBRARY = "io[.]fluxccl[.]";
  private static final String LIBRARY_AND_DEPENDENCIES =
      "(io[.]fluxccl|io[.]netty|io[.]micrometer|org[.]agrona|org[.]reactivestreams|reactor)[.]";

  /** The application, loaded by its own class loader. */
  static final class Application implements Runnable {
    @Override
    public void run() {
      List<RankGroup> groups =
          RankGroup.local(2, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST));
      List<DeviceBuffer> buffers = new ArrayList<>();
      List<CompletableFuture<Void>> sums = new ArrayList<>();
      for (RankGroup each : groups) {
        DeviceBuffer x = each.device().allocate(1024);
        buffers.add(x);
        sums.add(each.collectives().allReduce(x, DataType.INT32, ReduceOp.SUM).toFuture());
      }
      sums.forEach(CompletableFuture::join);
      buffers.forEach(DeviceBuffer::close);
      RankGroup.closeAll(groups);
    }
  }

  /** Loads the classes of a pattern itself, as a server does for an application's libraries. */
  private static final class ApplicationLoader extends URLClassLoader {
    private final Pattern own;

    ApplicationLoader(Pattern own) {
      super("application", classPath(), ClassLoaderTest.class.getClassLoader());
      this.own = own;
    }

    private static URL[] classPath() {
      List<URL> urls = new ArrayList<>();
      for (String entry : System.getProperty("java.class.path").split(":")) {
        try {
          urls.add(Path.of(entry).toUri().toURL());
        } catch (MalformedURLException e) {
          throw new IllegalStateException(e);
        }
      }
      return urls.toArray(URL[]::new);
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      synchronized (getClassLoadingLock(name)) {
        boolean isNew = own.matcher(name).lookingAt() && findLoadedClass(name) == null;
        return isNew ? findClass(name) : super.loadClass(name, resolve);
      }
    }
  }

  @Test
  void shouldLeaveNothingThatRetainsTheClassLoaderOfAnApplication() throws Exception {
    // The JDK's own timer thread retains the class loader of its first user.
    CompletableFuture.delayedExecutor(1, TimeUnit.MILLISECONDS).execute(() -> {});
    List<WeakReference<ClassLoader>> loaders =
        List.of(runInItsOwnLoader(LIBRARY), runInItsOwnLoader(LIBRARY_AND_DEPENDENCIES));
    // The JDK's method handles for records retain the last class of a loader that a new record
    // compares, from JDK 25 on by a soft reference: here one of the third loader.
    runInItsOwnLoader(LIBRARY_AND_DEPENDENCIES);
    await()
        .atMost(Duration.ofSeconds(60))
        .untilAsserted(
            () -> {
              System.gc();
              assertThat(loaders).extracting(WeakReference::get).containsOnlyNulls();
            });
  }

  /** A method of its own, so that no variable of the test refers to the loader. */
  private static WeakReference<ClassLoader> runInItsOwnLoader(String own)
      throws IOException, ReflectiveOperationException, InterruptedException {
    try (ApplicationLoader loader = new ApplicationLoader(Pattern.compile(own))) {
      Class<?> application = loader.loadClass(Application.class.getName());
      assertThat(application).isNotSameAs(Application.class);
      var constructor = application.getDeclaredConstructor();
      constructor.setAccessible(true);
      List<Throwable> failures = new ArrayList<>();
      Thread thread = new Thread((Runnable) constructor.newInstance(), "application");
      thread.setContextClassLoader(loader);
      thread.setUncaughtExceptionHandler((unused, failure) -> failures.add(failure));
      thread.start();
      thread.join();
      assertThat(failures).isEmpty();
      return new WeakReference<>(loader);
    }
  }
}
