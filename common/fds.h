/* SPDX-License-Identifier: MIT */
/* The standard descriptors. */
#pragma once

/* Opens /dev/null for those of 0, 1 and 2 that are closed, so that no other file becomes one of
 * them. Programs that are run find them closed, as they were. -errno when it cannot be done. */
int fds_fill_standard(void);
