// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Path;

/**
 * Loads DiSNI, and the one package that uses it, from the class path, and locates DiSNI's native
 * library. DiSNI loads that library by name. Without this loader, the JVM would search only folders
 * that are fixed when it starts.
 */
final class DisniLoader extends ClassLoader {
  private static final String LIBRARY = "disni";

  static {
    registerAsParallelCapable();
  }

  private final Path library;

  DisniLoader(Path library) {
    super(DisniLoader.class.getClassLoader());
    this.library = library;
  }

  private static boolean isOurs(String name) {
    return name.startsWith("com.ibm.disni.") || name.startsWith("io.fluxccl.transport.ib.disni.");
  }

  @Override
  protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
    if (!isOurs(name)) {
      return super.loadClass(name, resolve);
    }
    synchronized (getClassLoadingLock(name)) {
      Class<?> loaded = findLoadedClass(name);
      return loaded == null ? define(name) : loaded;
    }
  }

  private Class<?> define(String name) throws ClassNotFoundException {
    String file = name.replace('.', '/') + ".class";
    try (InputStream in = getParent().getResourceAsStream(file)) {
      if (in == null) {
        throw new ClassNotFoundException(name + " is not on the class path");
      }
      byte[] bytes = in.readAllBytes();
      return defineClass(name, bytes, 0, bytes.length);
    } catch (IOException e) {
      throw new ClassNotFoundException(name + " can't be read", e);
    }
  }

  @Override
  protected String findLibrary(String name) {
    return name.equals(LIBRARY) ? library.toString() : null;
  }
}
