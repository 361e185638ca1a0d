/* SPDX-License-Identifier: MIT */
/* What every unit test shares: one suite with one test case, its exit status, and texts. */
#pragma once

#include <check.h>

#include "util.h"

/* Room for valgrind; waits inside of tests have a shorter deadline of their own. */
#define UNIT_TIMEOUT_SEC 120

#define unit_add_table(tcase, test, table) \
	tcase_add_loop_test(tcase, test, 0, (int)ELEMENTSOF(table))

#define unit_assert_contains(text, part)                                                         \
	do {                                                                                     \
		const char *_text = (text), *_part = (part);                                     \
		ck_assert_msg(strstr(_text, _part) != NULL, "\"%s\" has no \"%s\" in it", _text, \
			      _part);                                                            \
	} while (0)

/* Runs it and gives the exit status of the program. */
static inline int unit_run(const char *name, TCase *tcase)
{
	Suite *suite = suite_create(name);
	SRunner *runner;
	int n_failed;

	tcase_set_timeout(tcase, UNIT_TIMEOUT_SEC);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
