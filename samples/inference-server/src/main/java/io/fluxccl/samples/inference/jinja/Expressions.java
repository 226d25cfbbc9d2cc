// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.jinja;

import io.fluxccl.samples.inference.jinja.Lexer.Kind;
import io.fluxccl.samples.inference.jinja.Lexer.Token;
import io.fluxccl.samples.inference.jinja.Template.Function;
import io.fluxccl.samples.inference.jinja.Template.Scope;
import io.fluxccl.samples.inference.jinja.Template.Undefined;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Compiles expressions, with the precedence of Jinja's operators. */
class Expressions {
  /** Binary operators, from those that bind least. */
  private static final List<Set<String>> LEVELS =
      List.of(
          Set.of("or"),
          Set.of("and"),
          Set.of("==", "!=", "<", "<=", ">", ">=", "in", "not"),
          Set.of("+", "-"),
          Set.of("~"),
          Set.of("*", "/", "//", "%"),
          Set.of("**"));

  private static final int COMPARISONS = 2;
  private static final Set<String> AFTER_TESTS =
      Set.of("else", "or", "and", "if", "is", "in", "not");
  private static final Map<String, Expression> CONSTANTS =
      Map.of(
          "true", scope -> true,
          "True", scope -> true,
          "false", scope -> false,
          "False", scope -> false,
          "none", scope -> null,
          "None", scope -> null);

  private final List<Token> tokens;
  private int position;

  /** An expression. */
  @FunctionalInterface
  interface Expression {
    Object of(Scope scope);
  }

  Expressions(List<Token> tokens) {
    this.tokens = tokens;
  }

  final Token peek() {
    return tokens.get(position);
  }

  final Token next() {
    return tokens.get(peek().kind() == Kind.END ? position : position++);
  }

  /** Skips a name, an operator or a tag. */
  final boolean accept(String text) {
    boolean accepted = peek().is(text);
    position += accepted ? 1 : 0;
    return accepted;
  }

  final void expect(String text) {
    if (!accept(text)) {
      throw peek().error("expected '" + text + "', and found '" + peek().value() + "'");
    }
  }

  final String name() {
    if (peek().kind() != Kind.NAME) {
      throw peek().unexpected();
    }
    return (String) next().value();
  }

  /** Parses an expression, or several between commas, which make a list. */
  final Expression tuple() {
    Expression first = expression();
    if (!peek().is(",")) {
      return first;
    }
    List<Expression> items = new ArrayList<>(List.of(first));
    while (accept(",") && peek().kind() != Kind.TAG && !peek().is(")")) {
      items.add(expression());
    }
    return scope -> values(items, scope);
  }

  private static List<Object> values(List<Expression> items, Scope scope) {
    List<Object> values = new ArrayList<>();
    items.forEach(item -> values.add(item.of(scope)));
    return values;
  }

  final Expression expression() {
    Expression value = operation(0);
    while (accept("if")) {
      Expression then = value;
      Expression test = operation(0);
      Undefined none = new Undefined("the value of an 'if' without 'else'");
      Expression otherwise = accept("else") ? expression() : scope -> none;
      value = scope -> (Values.isTrue(test.of(scope)) ? then : otherwise).of(scope);
    }
    return value;
  }

  /** Parses the operators of a level and those that bind more. */
  final Expression operation(int level) {
    if (level == LEVELS.size()) {
      return unary(true);
    } else if (level == COMPARISONS && accept("not")) {
      Expression negated = operation(level);
      return scope -> !Values.isTrue(negated.of(scope));
    }
    Expression value = operation(level + 1);
    Expression middle = null; // of a < b < c
    while (isOperator(level)) {
      String name = (String) next().value();
      String operator = name.equals("not") && accept("in") ? "not in" : name;
      Expression left = middle == null ? value : middle;
      Expression right = operation(level + 1);
      Expression all = value;
      if (level < COMPARISONS) {
        value = scope -> choose(operator.equals("or"), left.of(scope), right, scope);
        continue;
      }
      Expression result = scope -> Values.operate(operator, left.of(scope), right.of(scope));
      value = middle == null ? result : scope -> choose(false, all.of(scope), result, scope);
      middle = level == COMPARISONS ? right : null;
    }
    return value;
  }

  private static Object choose(boolean wanted, Object first, Expression second, Scope scope) {
    return Values.isTrue(first) == wanted ? first : second.of(scope);
  }

  private boolean isOperator(int level) {
    Token token = peek();
    return (token.kind() == Kind.NAME || token.kind() == Kind.OPERATOR)
        && LEVELS.get(level).contains(token.value());
  }

  private Expression unary(boolean withFilters) {
    Expression value;
    if (accept("-")) {
      Expression positive = unary(false);
      value = scope -> Values.operate("-", 0L, positive.of(scope));
    } else {
      value = accept("+") ? unary(false) : primary();
    }
    value = postfix(value);
    return withFilters ? filters(value) : value;
  }

  private Expression primary() {
    Token token = next();
    Object literal = token.value();
    switch (token.kind()) {
      case NAME:
        String name = (String) literal;
        return CONSTANTS.getOrDefault(name, scope -> scope.get(name));
      case NUMBER:
        return scope -> literal;
      case STRING:
        String text = (String) literal;
        while (peek().kind() == Kind.STRING) {
          text += next().value();
        }
        String whole = text;
        return scope -> whole;
      default:
        if (token.is("(")) {
          Expression inner = peek().is(")") ? scope -> List.of() : tuple();
          expect(")");
          return inner;
        } else if (token.is("[")) {
          List<Expression> items = new ArrayList<>();
          between("]", () -> items.add(expression()));
          return scope -> values(items, scope);
        } else if (token.is("{")) {
          return map();
        }
        throw token.unexpected();
    }
  }

  /** Parses parts with commas between them. */
  final void between(String end, Runnable part) {
    while (!accept(end)) {
      part.run();
      if (!peek().is(end)) {
        expect(",");
      }
    }
  }

  private Expression map() {
    List<Expression> keys = new ArrayList<>();
    List<Expression> items = new ArrayList<>();
    between(
        "}",
        () -> {
          keys.add(expression());
          expect(":");
          items.add(expression());
        });
    return scope -> {
      Map<Object, Object> map = new LinkedHashMap<>();
      for (int i = 0; i < keys.size(); i++) {
        map.put(keys.get(i).of(scope), items.get(i).of(scope));
      }
      return map;
    };
  }

  private Expression postfix(Expression of) {
    Expression value = of;
    while (true) {
      Expression base = value;
      if (accept(".")) {
        Object key = peek().kind() == Kind.NUMBER ? next().value() : name();
        value = scope -> Functions.member(base.of(scope), key);
      } else if (accept("[")) {
        value = subscript(base);
      } else if (accept("(")) {
        value = call(base);
      } else {
        return value;
      }
    }
  }

  private Expression subscript(Expression base) {
    Expression none = scope -> null;
    Expression[] parts = {none, none, none};
    int colons = 0;
    while (!accept("]")) {
      if (colons < 2 && accept(":")) {
        colons++;
      } else if (parts[colons] == none) {
        parts[colons] = expression();
      } else {
        throw peek().unexpected();
      }
    }
    Expression first = parts[0];
    return colons == 0
        ? scope -> Values.item(base.of(scope), first.of(scope))
        : scope ->
            Values.slice(base.of(scope), first.of(scope), parts[1].of(scope), parts[2].of(scope));
  }

  /** Parses the arguments of a call, by name or by position. */
  private Map<String, Expression> arguments() {
    Map<String, Expression> arguments = new LinkedHashMap<>();
    between(
        ")",
        () -> {
          boolean named = peek().kind() == Kind.NAME && tokens.get(position + 1).is("=");
          String name = named ? name() : String.valueOf(arguments.size());
          if (named) {
            expect("=");
          }
          arguments.put(name, expression());
        });
    return arguments;
  }

  private static Object call(
      String name, Function function, Map<String, Expression> arguments, Scope scope) {
    Map<String, Object> values = new LinkedHashMap<>();
    arguments.forEach((key, value) -> values.put(key, value.of(scope)));
    Object result = function.call(values);
    if (!values.isEmpty()) {
      throw new TemplateException(name + " does not support the argument " + values.keySet());
    }
    return result;
  }

  private Expression call(Expression called) {
    Map<String, Expression> arguments = arguments();
    return scope -> {
      Object function = called.of(scope);
      if (function instanceof Function known) {
        return call("the function", known, arguments, scope);
      }
      throw Values.wrong(function, "a function");
    };
  }

  /** Parses the filters and tests after a value. */
  final Expression filters(Expression of) {
    Expression value = of;
    while (true) {
      if (accept("|")) {
        value = filter(value);
      } else if (accept("is")) {
        value = test(value);
      } else {
        return value;
      }
    }
  }

  /** Parses a filter's name and its arguments. */
  final Expression filter(Expression value) {
    Token token = peek();
    String name = name();
    if (!Functions.FILTERS.containsKey(name)) {
      throw token.error("this server does not know the filter '" + name + "'");
    }
    Map<String, Expression> arguments = accept("(") ? arguments() : Map.of();
    return scope -> {
      Object filtered = value.of(scope);
      Function filter = values -> Functions.filter(name, filtered, values);
      return call("the filter " + name, filter, arguments, scope);
    };
  }

  private Expression test(Expression value) {
    boolean negated = accept("not");
    Token token = peek();
    String name = name();
    if (!Functions.TESTS.containsKey(name)) {
      throw token.error("this server does not know the test '" + name + "'");
    }
    Map<String, Expression> arguments = Map.of();
    Token follows = peek();
    if (accept("(")) {
      arguments = arguments();
    } else if (follows.kind() == Kind.STRING
        || follows.kind() == Kind.NUMBER
        || (follows.kind() == Kind.NAME && !AFTER_TESTS.contains(follows.value()))) {
      arguments = Map.of("0", postfix(primary()));
    }
    Map<String, Expression> all = arguments;
    return scope -> {
      Object tested = value.of(scope);
      Function test = values -> Functions.test(name, tested, values) != negated;
      return call("the test " + name, test, all, scope);
    };
  }
}
