package io.fluxccl.cli;

import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.TypeConversionException;

/** Numbers of bytes as people write them: {@code 64}, {@code 1K}, {@code 16M}, {@code 1G}. */
final class ByteSize implements ITypeConverter<Long> {
  private static final Pattern FORM = Pattern.compile("(\\d{1,18})([KMGT]?)(?:I?B)?");
  private static final String SUFFIXES = "KMGT";

  @Override
  public Long convert(String text) {
    Matcher matcher = FORM.matcher(text.toUpperCase(Locale.ROOT));
    if (!matcher.matches()) {
      throw refuse(text);
    }
    int power = matcher.group(2).isEmpty() ? 0 : SUFFIXES.indexOf(matcher.group(2)) + 1;
    try {
      long size = Math.multiplyExact(Long.parseLong(matcher.group(1)), 1L << (10 * power));
      if (size > 0) {
        return size;
      }
    } catch (ArithmeticException e) {
      throw new TypeConversionException("'" + text + "' is too large");
    }
    throw refuse(text);
  }

  private static TypeConversionException refuse(String text) {
    return new TypeConversionException(
        "'" + text + "' is no size; give bytes from 1, or with a suffix, for example 1K, 16M, 1G");
  }
}
