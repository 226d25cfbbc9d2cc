// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.jinja;

import java.util.HashMap;
import java.util.Map;

/** A compiled template. Thread-safe. */
public final class Template {
  private final Node body;

  private Template(Node body) {
    this.body = body;
  }

  /** A function that templates can call. */
  @FunctionalInterface
  public interface Function {
    /**
     * Calls it.
     *
     * @param arguments by name, or by position from "0" on; the function removes those that it
     *     reads, and the caller refuses the others
     */
    Object call(Map<String, Object> arguments);
  }

  /** A part that writes text. */
  @FunctionalInterface
  interface Node {
    void write(Scope scope, StringBuilder out);
  }

  /** A value that is missing; most uses of it are errors. */
  record Undefined(String what) {
    @Override
    public boolean equals(Object other) {
      return other instanceof Undefined;
    }

    @Override
    public int hashCode() {
      return 0;
    }
  }

  /** The value of {@code namespace()}, whose attributes inner scopes can set. */
  record Namespace(Map<String, Object> values) {}

  /** Variables; an inner scope can read those of the outer ones. */
  record Scope(Scope outer, Map<String, Object> variables) {
    Scope inner() {
      return new Scope(this, new HashMap<>());
    }

    void set(String name, Object value) {
      variables.put(name, value);
    }

    Object get(String name) {
      for (Scope scope = this; scope != null; scope = scope.outer) {
        if (scope.variables.containsKey(name)) {
          return scope.variables.get(name);
        }
      }
      Function global = Functions.GLOBALS.get(name);
      return global == null ? new Undefined("'" + name + "'") : global;
    }
  }

  /**
   * Compiles a template.
   *
   * @throws TemplateException if it is malformed, or has a tag, filter or test that is not known
   */
  public static Template compile(String source) {
    return new Template(new Parser(new Lexer(source).tokens()).template());
  }

  /**
   * Returns the text of the template.
   *
   * @param variables strings, booleans, Longs, Doubles, lists, maps, null, and {@link Function}s
   * @throws TemplateException if the template raises one, or uses a value in a wrong way
   */
  public String render(Map<String, Object> variables) {
    StringBuilder out = new StringBuilder();
    try {
      body.write(new Scope(null, new HashMap<>(variables)), out);
    } catch (StackOverflowError e) {
      throw new TemplateException("its macros call each other without end");
    }
    return out.toString();
  }
}
