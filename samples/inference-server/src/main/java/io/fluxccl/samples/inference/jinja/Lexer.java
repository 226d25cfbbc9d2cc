// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.jinja;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Splits a template into tokens. Blanks before a block and the newline after it are removed, as
 * transformers sets {@code lstrip_blocks} and {@code trim_blocks}.
 */
final class Lexer {
  private static final Pattern OPENING = Pattern.compile("\\{[{%#]");
  private static final Pattern TOKEN =
      Pattern.compile(
          "\\s*(?:(?<name>[\\p{L}_][\\p{L}\\p{N}_]*)"
              + "|(?<float>[0-9][0-9_]*(?:\\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))"
              + "|(?<int>[0-9][0-9_]*)"
              + "|(?<string>'[^'\\\\]*+(?:\\\\.[^'\\\\]*+)*+'"
              + "|\"[^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+\")"
              + "|(?<op>//|\\*\\*|==|!=|<=|>=|[-+*/%~<>=.,:|()\\[\\]{}]))",
          Pattern.DOTALL);
  private static final Pattern ESCAPE =
      Pattern.compile("\\\\(?:x(\\p{XDigit}{2})|u(\\p{XDigit}{4})|(.))", Pattern.DOTALL);
  private static final List<String> KNOWN =
      List.of("\n", "\r", "\t", "\b", "\f", "\\", "'", "\"", "");

  private final String source;
  private final List<Token> tokens = new ArrayList<>();
  private int at;
  private int line = 1;
  private int counted;

  enum Kind {
    DATA,
    /** The begin or the end of a tag. */
    TAG,
    NAME,
    STRING,
    NUMBER,
    OPERATOR,
    END
  }

  /** A token; its value is a number or the text. */
  record Token(Kind kind, Object value, int line) {
    /** Returns whether this is a name, an operator or a tag of this text. */
    boolean is(String text) {
      return kind != Kind.DATA && kind != Kind.STRING && value.equals(text);
    }

    TemplateException error(String message) {
      return new TemplateException(message).at(line);
    }

    TemplateException unexpected() {
      return error("unexpected '" + value + "'");
    }
  }

  Lexer(String source) {
    String unix = source.replace("\r\n", "\n").replace('\r', '\n');
    this.source = unix.endsWith("\n") ? unix.substring(0, unix.length() - 1) : unix;
  }

  List<Token> tokens() {
    Matcher opening = OPENING.matcher(source);
    while (at < source.length()) {
      boolean found = opening.find(at);
      String data = source.substring(at, found ? opening.start() : source.length());
      if (!found) {
        at = source.length();
        add(Kind.DATA, data);
        break;
      }
      boolean lineStarts = at == 0 || source.charAt(at - 1) == '\n';
      at = opening.end();
      char kind = source.charAt(at - 1);
      char sign = at < source.length() ? source.charAt(at) : ' ';
      add(Kind.DATA, strip(data, kind, sign, lineStarts));
      at += sign == '-' || sign == '+' ? 1 : 0;
      if (kind == '#') {
        comment();
      } else {
        inside(kind == '{' ? "{{" : "{%", kind == '{' ? "}}" : "%}");
      }
    }
    add(Kind.END, "the end");
    return tokens;
  }

  private void add(Kind kind, Object value) {
    for (; counted < at; counted++) {
      line += source.charAt(counted) == '\n' ? 1 : 0;
    }
    if (kind != Kind.DATA || !value.equals("")) {
      tokens.add(new Token(kind, value, line));
    }
  }

  /** Returns the text before a tag, without the blanks that the tag removes. */
  private static String strip(String data, char kind, char sign, boolean lineStarts) {
    if (sign == '-') {
      return Values.strip(data, null, false, true);
    }
    int line = data.lastIndexOf('\n') + 1;
    boolean own =
        (line > 0 || lineStarts) && Values.strip(data.substring(line), null, true, false).isEmpty();
    return own && kind != '{' && sign != '+' ? data.substring(0, line) : data;
  }

  private void comment() {
    int end = source.indexOf("#}", at);
    if (end < 0) {
      throw new TemplateException("a comment has no end").at(line);
    }
    char sign = end > at ? source.charAt(end - 1) : ' ';
    at = end + 2;
    close("#}", sign);
  }

  /** Removes the blanks after a tag. */
  private void close(String end, char sign) {
    if (sign == '-') {
      while (at < source.length() && Values.isSpace(source.charAt(at))) {
        at++;
      }
    } else if (!end.equals("}}") && sign != '+' && source.startsWith("\n", at)) {
      at++;
    }
  }

  private void inside(String begin, String end) {
    add(Kind.TAG, begin);
    Deque<String> open = new ArrayDeque<>();
    Matcher matcher = TOKEN.matcher(source);
    while (true) {
      while (at < source.length() && Values.isSpace(source.charAt(at))) {
        at++;
      }
      char sign = at < source.length() ? source.charAt(at) : ' ';
      int signs = sign == '-' || (sign == '+' && end.equals("%}")) ? 1 : 0;
      if (open.isEmpty() && source.startsWith(end, at + signs)) {
        add(Kind.TAG, end);
        at += signs + end.length();
        close(end, signs == 0 ? ' ' : sign);
        return;
      }
      if (!matcher.region(at, source.length()).lookingAt()) {
        String rest = source.substring(at, Math.min(at + 10, source.length()));
        throw new TemplateException(
                rest.isEmpty() ? begin + " has no " + end : "unexpected '" + rest + "'")
            .at(line);
      }
      token(matcher, open);
      at = matcher.end();
    }
  }

  private void token(Matcher matcher, Deque<String> open) {
    String text = matcher.group().strip();
    if (matcher.group("name") != null) {
      add(Kind.NAME, text);
    } else if (matcher.group("string") != null) {
      add(Kind.STRING, unescape(text.substring(1, text.length() - 1)));
    } else if (matcher.group("op") != null) {
      int opening = "([{".indexOf(text);
      if (opening >= 0) {
        open.push(")]}".substring(opening, opening + 1));
      } else if (")]}".contains(text) && (open.isEmpty() || !open.pop().equals(text))) {
        throw new TemplateException("unexpected '" + text + "'").at(line);
      }
      add(Kind.OPERATOR, text);
    } else {
      String digits = text.replace("_", "");
      boolean whole = matcher.group("int") != null;
      add(Kind.NUMBER, whole ? (Object) Long.valueOf(digits) : Double.valueOf(digits));
    }
  }

  private static String unescape(String text) {
    return ESCAPE
        .matcher(text)
        .replaceAll(
            escape -> {
              String code = escape.group(1) == null ? escape.group(2) : escape.group(1);
              int known =
                  "nrtbf\\'\"\n".indexOf(escape.group(3) == null ? ' ' : escape.group(3).charAt(0));
              String character =
                  code != null
                      ? Character.toString(Integer.parseInt(code, 16))
                      : known < 0 ? escape.group() : KNOWN.get(known);
              return Matcher.quoteReplacement(character);
            });
  }
}
