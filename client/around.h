/* SPDX-License-Identifier: MIT */
/* The lease that mpsctl itself runs under, if it does: one that its shell took, or that of a job.
 */
#pragma once

/* Its id as the environment has it; "" without. */
const char *around_id(void);

/* For who waits: says on stderr that there is such a lease, held by a process above this one, and
 * how it is given back. Says nothing when that cannot be found out in a moment. */
void around_note(const char *socket);
