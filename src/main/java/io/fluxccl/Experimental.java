// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Marks a package, a type or a member that any version may change or remove. A member whose
 * signature names a marked type counts as marked. A public API without this mark on itself, its
 * type and its package is stable: docs/12-in-your-project.md describes how it may change.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target({
  ElementType.PACKAGE,
  ElementType.TYPE,
  ElementType.CONSTRUCTOR,
  ElementType.METHOD,
  ElementType.FIELD
})
public @interface Experimental {}
