// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.jinja;

/** A template that is malformed, uses what this package lacks, or refuses its variables. */
public final class TemplateException extends IllegalArgumentException {
  private static final long serialVersionUID = 1;

  private int line;

  TemplateException(String message) {
    super(message);
  }

  /** Creates the exception of a template that calls {@code raise_exception}. */
  static TemplateException raised(String message) {
    TemplateException raised = new TemplateException(message);
    raised.line = -1;
    return raised;
  }

  /** Adds the line of the template, unless a line is known already. */
  TemplateException at(int number) {
    line = line == 0 ? number : line;
    return this;
  }

  @Override
  public String getMessage() {
    return line > 0 ? "line " + line + ": " + super.getMessage() : super.getMessage();
  }
}
