/* SPDX-License-Identifier: MIT */
#include "targets.h"

#include "cli.h"
#include "layout.h"
#include "match.h"
#include "varlink.h"

static int no_memory(void)
{
	cli_print("no memory for the answer");
	return CLI_FAILED;
}

static int none(const char *selector)
{
	cli_print("no instance matches \"%s\"; `mpsctl status` lists them", selector);
	return CLI_FAILED;
}

int targets_find(json_t *instances, const char *selector, json_t **ret)
{
	switch (match_instances(instances, selector, ret)) {
	case 0:
		return 0;
	case MATCH_NONE:
		return none(selector);
	case MATCH_AMBIGUOUS:
		cli_print("\"%s\" is the beginning of several instances' names; write more of it",
			  selector);
		return CLI_FAILED;
	default:
		return no_memory();
	}
}

static bool is_gang(const json_t *instance)
{
	return streq(layout_text(instance, "kind", ""), "gang");
}

static bool has(const json_t *instances, const json_t *instance)
{
	const json_t *other;
	size_t i;

	json_array_foreach(instances, i, other)
		if (streq(layout_text(other, "name", ""), layout_text(instance, "name", "")))
			return true;
	return false;
}

/* Adds what one word means. 0, or CLI_FAILED with a message. */
static int add(json_t *instances, const char *word, json_t *targets)
{
	_cleanup_json_ json_t *found = NULL;
	size_t n = 0, i;
	json_t *instance;
	int r;

	r = targets_find(instances, word, &found);
	if (r != 0)
		return r;
	json_array_foreach(found, i, instance) {
		if (is_gang(instance) && !match_is_named(instance, word))
			continue;
		n++;
		if (!has(targets, instance) && json_array_append(targets, instance) < 0)
			return no_memory();
	}
	return n > 0 ? 0 : none(word);
}

int targets_collect(json_t *instances, char *const words[], int n_words, json_t **ret)
{
	_cleanup_json_ json_t *targets = json_array();
	int r = targets ? 0 : no_memory();

	for (int i = 0; i < n_words && r == 0; i++)
		r = add(instances, words[i], targets);
	if (r == 0)
		*ret = TAKE_PTR(targets);
	return r;
}
