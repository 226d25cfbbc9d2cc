// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import java.util.List;
import java.util.ServiceLoader;

/**
 * Implementations that {@link ServiceLoader} finds, one object of each for the whole process. They
 * are looked for once, as that reads every jar of the class path.
 */
public final class Installed {
  private static final ClassValue<List<?>> FOUND =
      new ClassValue<>() {
        @Override
        protected List<?> computeValue(Class<?> service) {
          return ServiceLoader.load(service, service.getClassLoader()).stream()
              .map(ServiceLoader.Provider::get)
              .toList();
        }
      };

  private Installed() {}

  /**
   * Returns the implementations that the class loader of a service finds. Any thread; the first
   * call blocks, on files.
   *
   * @param service the interface
   * @throws java.util.ServiceConfigurationError if one can't be made; the next call looks again
   */
  @SuppressWarnings("unchecked") // ServiceLoader's providers are of the service
  public static <T> List<T> of(Class<T> service) {
    return (List<T>) FOUND.get(service);
  }
}
