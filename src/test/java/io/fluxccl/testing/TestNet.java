// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Builds src/test/native/netplugin/test_net.c; a test that needs it is skipped without gcc. */
public final class TestNet {
  private static final String SOURCE = "netplugin/test_net.c";

  private TestNet() {}

  /**
   * A library with the plugin of one version; built once a folder.
   *
   * @param faults as the source says, for example {@code FAIL_AFTER=3}
   */
  public static Path library(Path folder, int version, String... faults) throws Exception {
    return shared(folder, "testnet", version, faults);
  }

  /** A library with the plugin of one version, and with a network that reduces by itself. */
  public static Path collectiveLibrary(Path folder, int version, String... faults)
      throws Exception {
    return shared(folder, "testcoll", version, faults, "src/test/native/netplugin/test_coll.c");
  }

  private static Path shared(
      Path folder, String prefix, int version, String[] faults, String... sources)
      throws Exception {
    String name = prefix + "-v" + version + String.join("-", faults).replace('=', '_') + ".so";
    if (Files.exists(folder.resolve(name))) {
      return folder.resolve(name);
    }
    List<String> options = new ArrayList<>(List.of("-pthread", "-fvisibility=hidden"));
    options.add("-DNET_VERSION=" + version);
    Arrays.stream(faults).map(fault -> "-D" + fault).forEach(options::add);
    options.addAll(List.of(sources));
    return NativePrograms.sharedLibrary(SOURCE, folder, name, options.toArray(new String[0]));
  }

  /** A library with the plugin in several versions. */
  public static Path library(Path folder, List<Integer> versions) throws Exception {
    Path library = folder.resolve("testnet-several.so");
    List<String> link = new ArrayList<>(List.of("-shared", "-pthread", "-o", library.toString()));
    for (int version : versions) {
      String object = folder.resolve("testnet-v" + version + ".o").toString();
      NativePrograms.compile(
          List.of(
              "-c",
              "-fvisibility=hidden",
              "-DNET_VERSION=" + version,
              "-o",
              object,
              "src/test/native/" + SOURCE));
      link.add(object);
    }
    NativePrograms.compile(link);
    return library;
  }
}
