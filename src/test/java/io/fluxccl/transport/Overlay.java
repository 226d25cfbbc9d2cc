// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.Map;

/** Replaces some methods of an interface's implementation. */
public final class Overlay implements InvocationHandler {
  private final Object overrides;
  private final Object inner;
  private final Map<Method, Method> replaced = new HashMap<>();

  private Overlay(Class<?> type, Object overrides, Object inner) {
    this.overrides = overrides;
    this.inner = inner;
    for (Method method : type.getMethods()) {
      try {
        Method override =
            overrides.getClass().getDeclaredMethod(method.getName(), method.getParameterTypes());
        override.setAccessible(true);
        replaced.put(method, override);
      } catch (NoSuchMethodException e) {
        continue; // is not overridden
      }
    }
  }

  /**
   * Returns an object that calls a method of {@code overrides} if that has one of the same name and
   * parameters, otherwise the interface's default method, otherwise the method of {@code inner}.
   *
   * @param inner null if no other method is called
   */
  public static <T> T of(Class<T> type, Object overrides, T inner) {
    Overlay handler = new Overlay(type, overrides, inner);
    return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
  }

  @Override
  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    Method override = replaced.get(method);
    if (override == null && method.isDefault()) {
      return InvocationHandler.invokeDefault(proxy, method, arguments);
    }
    try {
      return override == null
          ? method.invoke(inner, arguments)
          : override.invoke(overrides, arguments);
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }
}
