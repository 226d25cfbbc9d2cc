// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Marks a package, a type or a member that may change or go in any version. A member whose
 * signature names a marked type counts as marked, too. What is public and not marked, neither
 * itself nor by its type or package, is stable: it changes as docs/12-in-your-project.md says.
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
