// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.jinja;

import io.fluxccl.samples.inference.jinja.Lexer.Kind;
import io.fluxccl.samples.inference.jinja.Lexer.Token;
import io.fluxccl.samples.inference.jinja.Template.Function;
import io.fluxccl.samples.inference.jinja.Template.Namespace;
import io.fluxccl.samples.inference.jinja.Template.Node;
import io.fluxccl.samples.inference.jinja.Template.Scope;
import io.fluxccl.samples.inference.jinja.Template.Undefined;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Compiles statements; {@link Expressions} compiles expressions. */
final class Parser extends Expressions {
  /** Thrown by {@code break} and {@code continue}. */
  private static final class LoopExit extends RuntimeException {
    private static final long serialVersionUID = 1;
    private static final LoopExit BREAK = new LoopExit();
    private static final LoopExit CONTINUE = new LoopExit();

    private LoopExit() {
      super(null, null, false, false);
    }
  }

  /** Loops around the present statement, in the same macro. */
  private int loops;

  Parser(List<Token> tokens) {
    super(tokens);
  }

  Node template() {
    return body();
  }

  /** Parses up to a tag with one of these names, or to the end of the template. */
  private Node body(String... ends) {
    List<Node> parts = new ArrayList<>();
    while (peek().kind() != Kind.END) {
      Token token = next();
      if (token.kind() == Kind.DATA) {
        String data = (String) token.value();
        parts.add((scope, out) -> out.append(data));
      } else if (token.is("{{")) {
        Expression value = tuple();
        expect("}}");
        parts.add(located(token, (scope, out) -> out.append(Values.text(value.of(scope)))));
      } else if (List.of(ends).contains(peek().value())) {
        return sequence(parts);
      } else {
        parts.add(located(token, statement()));
      }
    }
    if (ends.length > 0) {
      throw peek().error("the tag '" + ends[ends.length - 1] + "' is missing");
    }
    return sequence(parts);
  }

  private static Node sequence(List<Node> parts) {
    return (scope, out) -> parts.forEach(part -> part.write(scope, out));
  }

  private static Node located(Token token, Node node) {
    return (scope, out) -> {
      try {
        node.write(scope, out);
      } catch (TemplateException e) {
        throw e.at(token.line());
      } catch (ClassCastException | NullPointerException e) {
        throw token.error("a value of a wrong type: " + e.getMessage());
      }
    };
  }

  private Node statement() {
    Token tag = peek();
    switch (name()) {
      case "if":
        return condition();
      case "for":
        return loop();
      case "set":
        return assignment();
      case "macro":
        return macro();
      case "generation":
        return block("endgeneration");
      case "break":
      case "continue":
        if (loops == 0) {
          throw tag.unexpected();
        }
        expect("%}");
        LoopExit exit = tag.is("break") ? LoopExit.BREAK : LoopExit.CONTINUE;
        return (scope, out) -> {
          throw exit;
        };
      default:
        throw tag.error("this server does not know the tag '" + tag.value() + "'");
    }
  }

  /** Parses the end of a tag, the body after it, and the tag that ends the body. */
  private Node block(String end) {
    expect("%}");
    Node body = body(end);
    next();
    expect("%}");
    return body;
  }

  private Node condition() {
    Expression test = expression();
    expect("%}");
    Node then = body("elif", "else", "endif");
    Node otherwise;
    if (accept("elif")) {
      otherwise = condition();
    } else if (accept("else")) {
      otherwise = block("endif");
    } else {
      next();
      expect("%}");
      otherwise = (scope, out) -> {};
    }
    return (scope, out) -> (Values.isTrue(test.of(scope)) ? then : otherwise).write(scope, out);
  }

  private Node loop() {
    List<String> targets = targets();
    expect("in");
    Expression items = operation(0);
    Expression test = accept("if") ? expression() : scope -> true;
    expect("%}");
    loops++;
    Node body = body("else", "endfor");
    loops--;
    Node none = (scope, out) -> {};
    if (accept("else")) {
      none = block("endfor");
    } else {
      next();
      expect("%}");
    }
    Node otherwise = none;
    return (scope, out) -> {
      List<Object> passed = new ArrayList<>();
      for (Object item : Values.items(items.of(scope))) {
        Scope inner = scope.inner();
        assign(inner, targets, item);
        if (Values.isTrue(test.of(inner))) {
          passed.add(item);
        }
      }
      run(passed, targets, body, scope, out);
      if (passed.isEmpty()) {
        otherwise.write(scope.inner(), out);
      }
    };
  }

  private static void run(
      List<Object> items, List<String> targets, Node body, Scope scope, StringBuilder out) {
    for (int i = 0; i < items.size(); i++) {
      Scope inner = scope.inner();
      assign(inner, targets, items.get(i));
      inner.set("loop", loop(items, i));
      try {
        body.write(inner, out);
      } catch (LoopExit exit) {
        if (exit == LoopExit.BREAK) {
          return;
        }
      }
    }
  }

  private static Map<String, Object> loop(List<Object> items, int i) {
    int left = items.size() - i;
    Map<String, Object> loop = new HashMap<>();
    loop.put("index", i + 1L);
    loop.put("index0", (long) i);
    loop.put("revindex", (long) left);
    loop.put("revindex0", left - 1L);
    loop.put("first", i == 0);
    loop.put("last", left == 1);
    loop.put("length", (long) items.size());
    loop.put("previtem", i == 0 ? new Undefined("'previtem'") : items.get(i - 1));
    loop.put("nextitem", left == 1 ? new Undefined("'nextitem'") : items.get(i + 1));
    return loop;
  }

  private List<String> targets() {
    List<String> targets = new ArrayList<>();
    do {
      targets.add(name());
    } while (accept(","));
    return targets;
  }

  private static void assign(Scope scope, List<String> targets, Object value) {
    List<Object> items = targets.size() == 1 ? List.of() : Values.items(value);
    if (targets.size() == 1) {
      scope.set(targets.get(0), value);
    } else if (items.size() != targets.size()) {
      throw new TemplateException(items.size() + " values for " + targets);
    }
    for (int i = 0; i < items.size(); i++) {
      scope.set(targets.get(i), items.get(i));
    }
  }

  private Node assignment() {
    List<String> targets = targets();
    if (accept(".")) {
      return attribute(targets.get(0), name());
    } else if (accept("=")) {
      Expression value = tuple();
      expect("%}");
      return (scope, out) -> assign(scope, targets, value.of(scope));
    }
    Expression[] body = {null};
    Expression value = filters(scope -> body[0].of(scope));
    Node text = block("endset");
    body[0] = scope -> text(text, scope.inner());
    return (scope, out) -> assign(scope, targets, value.of(scope));
  }

  private Node attribute(String name, String attribute) {
    expect("=");
    Expression value = tuple();
    expect("%}");
    return (scope, out) -> {
      if (!(scope.get(name) instanceof Namespace namespace)) {
        throw Values.wrong(scope.get(name), "a namespace");
      }
      namespace.values().put(attribute, value.of(scope));
    };
  }

  private static String text(Node body, Scope scope) {
    StringBuilder out = new StringBuilder();
    body.write(scope, out);
    return out.toString();
  }

  private Node macro() {
    String macro = name();
    Map<String, Expression> parameters = new LinkedHashMap<>();
    expect("(");
    between(
        ")",
        () -> {
          String parameter = name();
          Undefined missing = new Undefined("'" + parameter + "'");
          parameters.put(parameter, accept("=") ? expression() : scope -> missing);
        });
    int outer = loops;
    loops = 0;
    Node body = block("endmacro");
    loops = outer;
    return (scope, out) -> {
      Function call =
          arguments -> {
            Scope inner = scope.inner();
            parameters.forEach(
                (name, absent) -> {
                  int index = inner.variables().size();
                  Object value = Functions.take(arguments, index, name, arguments);
                  inner.set(name, value == arguments ? absent.of(inner) : value);
                });
            return text(body, inner);
          };
      scope.set(macro, call);
    };
  }
}
