// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

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

  /** Returns the inner object of an overlay; another object as it is. */
  public static Object unwrapped(Object object) {
    return of(object).map(overlay -> overlay.inner).orElse(object);
  }

  /** Returns the overrides of an overlay of this type. */
  public static <T> Optional<T> overrides(Class<T> type, Object object) {
    return of(object).map(overlay -> overlay.overrides).filter(type::isInstance).map(type::cast);
  }

  private static Optional<Overlay> of(Object object) {
    return object != null
            && Proxy.isProxyClass(object.getClass())
            && Proxy.getInvocationHandler(object) instanceof Overlay overlay
        ? Optional.of(overlay)
        : Optional.empty();
  }

  /** Answers the methods of {@code Object} for a proxy that equals only itself. */
  public static Object identity(Object proxy, Method method, Object[] arguments) {
    return switch (method.getName()) {
      case "equals" -> proxy == arguments[0];
      case "hashCode" -> System.identityHashCode(proxy);
      default -> "a proxy of a test";
    };
  }

  @Override
  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    if (method.getDeclaringClass() == Object.class) {
      return identity(proxy, method, arguments);
    }
    Method override = replaced.get(method);
    if (override == null && method.isDefault()) {
      return InvocationHandler.invokeDefault(proxy, method, arguments);
    }
    method.setAccessible(true); // of an interface that is not public
    try {
      return override == null
          ? method.invoke(inner, arguments)
          : override.invoke(overrides, arguments);
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }
}
