"""Mistakes in the filters that tasks of the JVM engine apply before they read other columns."""

from __future__ import annotations

from tests.mutation.mutation import Mutation

FILTERS = "ledgerlog_spark/datasource/skipping/row_filters.py"

MUTATIONS = [
    Mutation(
        "filter_of_another_type_is_sent",
        FILTERS,
        "    if family != test.literals[0].family:\n        return {}\n",
        "",
        "a task compares dates with numbers, and leaves out their entries",
    ),
    Mutation(
        "filter_of_a_metadata_column_reads_a_stored_one",
        FILTERS,
        "None if stored.is_metadata(test.column) else place_of(",
        "place_of(",
        "_offset means a stored column of this name",
    ),
    Mutation(
        "filter_of_join_keys_is_read_first",
        FILTERS,
        ' and not set(_operators_of(part)) <= {"IS_NOT_NULL", "AND", "OR"}',
        "",
        "every join reads its keys twice",
    ),
    Mutation(
        "filter_that_excludes_nothing_is_read_first",
        FILTERS,
        "if _may_exclude(part) and",
        "if",
        "the columns of an unknown filter are read for nothing",
    ),
    Mutation(
        "negated_and_excludes_like_an_and",
        FILTERS,
        'return any(of_parts) if (operator == "AND") is result else all(of_parts)',
        'return any(of_parts) if operator == "AND" else all(of_parts)',
        "NOT (x = 5 AND unknown) is read first and excludes nothing",
    ),
    Mutation(
        "infinity_is_spelled_as_in_python",
        FILTERS,
        'repr(number).replace("inf", "Infinity")',
        "repr(number)",
        "Java cannot read the literal",
    ),
    Mutation(
        "constants_of_a_list_lose_their_null",
        FILTERS,
        "values = [_value(literal) for literal in test.literals]",
        "values = [_value(literal) for literal in test.literals if literal.key is not None]",
        "NOT IN (5, NULL) passes, so nothing is left out",
    ),
]
